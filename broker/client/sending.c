/* SPDX-License-Identifier: MIT */

/*
 * What goes out on a client's socket: at once if it can, else from a queue that the client pays
 * for.
 *
 * Descriptors in flight need care. Until they are received, the kernel counts them against the user
 * who has sent them, here the broker's. Beyond RLIMIT_NOFILE it refuses to send more
 * (ETOOMANYREFS), on every socket of that user. So each connection may have a few unreceived ones
 * at a time, and all connections of one client's user so many (account.h). Beyond that the messages
 * of that user wait, and nobody else's.
 */

#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <linux/sockios.h>
#include <share/share.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"

#define FDS_IN_FLIGHT_MAX 192

/* Sends a packet. 0; -EAGAIN: it cannot go out now; otherwise the connection has failed. */
static int send_now(struct connection *c, const void *data, size_t size, const int *fds,
		    size_t n_fds, bool *wait_for_fds)
{
	int r;

	/* this is looked at before there is something in the socket again */
	if (c->fds_in_flight > 0)
		connection_look_whether_received(c);
	*wait_for_fds = !connection_may_send_fds(c, n_fds, FDS_IN_FLIGHT_MAX, 1);
	if (*wait_for_fds)
		return -EAGAIN;
	r = packet_send(c->socket, data, size, fds, n_fds, false);
	if (r == -ETOOMANYREFS || r == -ENOMEM || r == -ENOBUFS) {
		*wait_for_fds = true;
		return -EAGAIN;
	}
	if (r == 0)
		c->retry_ms = RETRY_MS;
	if (r == 0 && n_fds > 0) {
		if (c->fds_in_flight == 0)
			TAILQ_INSERT_TAIL(&c->broker->clients->in_flight, c, in_flight);
		c->fds_in_flight += n_fds;
		account_fds_sent(c->account, n_fds);
	}
	return r;
}

/* Counts the descriptors that go out at the next flush. */
static size_t fds_to_flush(const struct connection *c)
{
	const struct queued *q;
	size_t n = 0;

	TAILQ_FOREACH (q, &c->queue, link)
		n += q->fds.n;
	return n;
}

/* Waits until the queue can go out; nothing is read before. 0, or -ENOMEM: then the connection has
 * failed. */
static int wait_to_send(struct connection *c, bool wait_for_fds)
{
	struct timeval delay = {0, c->retry_ms * 1000};

	c->waits = true;
	turn_await(&c->turn, wait_for_fds ? 0 : EPOLLOUT);
	if (!wait_for_fds)
		return 0;
	if (c->retry_ms < RETRY_LAST_MS)
		c->retry_ms *= 2;
	return event_add(c->retry, &delay) < 0 ? -ENOMEM : 0;
}

/* Copies the message, to go out when it counts (connections_flush()). Its descriptors are
 * duplicated only if it cannot go out then. 0 or negative errno. */
static int say(struct connection *c, const struct wire_message *m, const int *fds, size_t n_fds)
{
	unsigned char *packet = c->client->broker->scratch;
	size_t size = wire_encode(m, packet, WIRE_PACKET_MAX);

	return size > 0 ? connection_enqueue(c, packet, size, fds, n_fds) : -EMSGSIZE;
}

/* What a packet takes of the socket's buffer beside its bytes, or more. */
#define PACKET_COST 1024

/* Whether one more packet would go out at the next flush: POLLOUT says so only as long as three
 * quarters of the buffer are free. */
static bool has_room(const struct connection *c, size_t size)
{
	socklen_t option_size = sizeof(int);
	const struct queued *q;
	int used = 0, room = 0;

	if (ioctl(c->socket, SIOCOUTQ, &used) < 0 ||
	    getsockopt(c->socket, SOL_SOCKET, SO_SNDBUF, &room, &option_size) < 0)
		return false;
	size += (size_t)used;
	TAILQ_FOREACH (q, &c->queue, link)
		size += q->size + PACKET_COST;
	return size < (size_t)room;
}

/* As say(), but only if the message can go out now and leaves room for answers; else -EAGAIN, and
 * nothing has happened. */
static int offer(struct connection *c, const struct wire_message *m, const int *fds, size_t n_fds)
{
	unsigned char *packet = c->client->broker->scratch;
	size_t size = wire_encode(m, packet, WIRE_PACKET_MAX);

	if (size == 0)
		return -EMSGSIZE;
	if (c->waits || !has_room(c, size) ||
	    !connection_may_send_fds(c, n_fds + fds_to_flush(c),
				     c->client->broker->clients->max_fds_ahead, 2))
		return -EAGAIN;
	return connection_enqueue(c, packet, size, fds, n_fds);
}

/* ------------------------------------------------------------------------------------------- */

static void fail_to_send(struct connection *c, int error)
{
	if (error == -EDQUOT)
		client_hang_up(c->client, SHARE_EQUOTA, "it does not read what it is sent");
	else
		client_lose(c->client, error);
}

/* Sends the packet or has it wait. 0: it went out; 1: it waits; negative errno: the connection
 * has failed. */
static int send_queued(struct connection *c, struct queued *q)
{
	bool wait_for_fds;
	int r = send_now(c, q->data, q->size, q->fds.fds, q->fds.n, &wait_for_fds);

	if (r == 0)
		queued_free(c, q);
	if (r != -EAGAIN)
		return r;
	r = queued_let_wait(c, q);
	if (r == 0)
		r = wait_to_send(c, wait_for_fds);
	return r < 0 ? r : 1;
}

void connection_flush(struct connection *c)
{
	struct queued *q;
	int r = 0;

	/* what does not count yet is sent when it does */
	while (r == 0 && (q = TAILQ_FIRST(&c->queue)) && !q->is_news)
		r = send_queued(c, q);
	if (r < 0) {
		fail_to_send(c, r);
	} else if (r == 0 && c->waits) {
		c->waits = false;
		turn_await(&c->turn, EPOLLIN);
		c->client->broker->clients->rooms->caught_up(c->client);
	}
}

void connection_pause(struct connection *c)
{
	if (wait_to_send(c, true) < 0)
		client_lose(c->client, -ENOMEM);
}

/* Sends a packet that counts from now on, or has it wait behind others. */
static void send_news(struct connection *c, struct queued *q)
{
	int r;

	TAILQ_REMOVE(&c->broker->clients->news, q, news);
	q->is_news = false;
	if (c->client->end.drained) {
		queued_free(c, q);
		return;
	}
	r = c->waits ? queued_let_wait(c, q) : send_queued(c, q);
	if (r < 0)
		fail_to_send(c, r);
}

void connections_flush(struct broker *b)
{
	struct queued *q;

	while ((q = TAILQ_FIRST(&b->clients->news)))
		send_news(q->connection, q);
}

/* ------------------------------------------------------------------------------------------- */

void connection_on_retry(evutil_socket_t fd, short what, void *data)
{
	struct connection *c = data;

	(void)fd, (void)what;
	if (c->client)
		connection_flush(c);
	else
		connection_wait_until_received(c);
}

/* ------------------------------------------------------------------------------------------- */
/* What the broker says to a client                                                            */

/* Counts how long a request has taken to be answered. An answer that comes after the handler has
 * returned is counted if the time of its request was kept. */
static void count_answer(struct client *c, uint32_t serial)
{
	struct timed_request *request = &c->requests.current;

	if (request->serial != serial)
		return;
	latency_add(&c->broker->counters.by_message[request->type].latency,
		    clock_ns() - request->arrived_ns);
	request->serial = 0;
}

void client_send(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds)
{
	int r;

	if (!c->connection || c->end.drained)
		return;
	r = say(c->connection, m, fds, n_fds);
	if (m->serial)
		count_answer(c, m->serial);
	if (m->serial && !TAILQ_EMPTY(&c->requests.unanswered))
		unanswered_done(c, m->serial);
	if (r < 0)
		client_lose(c, r);
}

bool client_offer(struct client *c, const struct wire_message *m, const int *fds, size_t n_fds)
{
	int r;

	if (!c->connection || c->end.drained)
		return false;
	r = offer(c->connection, m, fds, n_fds);
	if (r < 0 && r != -EAGAIN)
		client_lose(c, r);
	return r == 0;
}

bool client_keeps_up(const struct client *c)
{
	return c->connection && !c->connection->waits;
}
