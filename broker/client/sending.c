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
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <linux/sockios.h>
#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/inside.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "wire/packet.h"

#define FDS_IN_FLIGHT_MAX 192
#define RETRY_LAST_MS     64
#define LOOKED_AT         32 /* so many connections are looked at in one go */

void connection_received_all(struct connection *c)
{
	if (c->fds_in_flight == 0)
		return;
	account_fds_received(c->account, c->fds_in_flight);
	c->fds_in_flight = 0;
	TAILQ_REMOVE(&c->broker->clients->in_flight, c, in_flight);
}

static bool look_whether_received(struct connection *c)
{
	int unread = 0;

	if (ioctl(c->socket, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	connection_received_all(c);
	return true;
}

/* Looks at the connections that were looked at longest ago, whoever's they are. */
static void look_around(struct broker *b)
{
	struct connection *c;

	for (int i = 0; i < LOOKED_AT && (c = TAILQ_FIRST(&b->clients->in_flight)); i++) {
		if (look_whether_received(c)) {
			if (!c->client)
				connection_let_go(c);
			continue;
		}
		TAILQ_REMOVE(&b->clients->in_flight, c, in_flight);
		TAILQ_INSERT_TAIL(&b->clients->in_flight, c, in_flight);
	}
}

/* Whether @n more descriptors may be sent. @most: so many may be in flight on the connection.
 * @part: what the user may have in flight is divided by it; 1 for what the user has asked for. */
static bool may_send_fds(struct connection *c, size_t n, size_t most, size_t part)
{
	const struct account *a = c->account;

	if (n == 0)
		return true;
	if (c->fds_in_flight > 0)
		look_whether_received(c);
	if (c->fds_in_flight + n > most)
		return false;
	if (account_may_send_fds(a, n, part))
		return true;
	look_around(c->broker);
	return account_may_send_fds(a, n, part);
}

/* Sends a packet. 0; -EAGAIN: it cannot go out now; otherwise the connection has failed. */
static int send_now(struct connection *c, const void *data, size_t size, const int *fds,
		    size_t n_fds, bool *wait_for_fds)
{
	int r;

	/* this is looked at before there is something in the socket again */
	if (c->fds_in_flight > 0)
		look_whether_received(c);
	*wait_for_fds = !may_send_fds(c, n_fds, FDS_IN_FLIGHT_MAX, 1);
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

int connection_send(struct connection *c, const struct wire_message *m, const int *fds,
		    size_t n_fds)
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

int connection_offer(struct connection *c, const struct wire_message *m, const int *fds,
		     size_t n_fds)
{
	unsigned char *packet = c->client->broker->scratch;
	size_t size = wire_encode(m, packet, WIRE_PACKET_MAX);

	if (size == 0)
		return -EMSGSIZE;
	if (c->waits || !has_room(c, size) ||
	    !may_send_fds(c, n_fds + fds_to_flush(c), c->client->broker->clients->max_fds_ahead, 2))
		return -EAGAIN;
	return connection_enqueue(c, packet, size, fds, n_fds);
}

bool connection_is_idle(const struct connection *c)
{
	return !c->waits;
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

bool connections_wait_for_flush(const struct broker *b)
{
	return !TAILQ_EMPTY(&b->clients->news);
}

/* ------------------------------------------------------------------------------------------- */

/* Descriptors that the peer has not received when its connection ends would not count any more,
 * but be there all the same. */
void connection_wait_until_received(struct connection *c)
{
	const struct timeval delay = {0, RETRY_LAST_MS * 1000};

	if (look_whether_received(c))
		connection_let_go(c);
	else
		broker_set_timer(c->broker, c->retry, &delay);
}

void connection_on_retry(evutil_socket_t fd, short what, void *data)
{
	struct connection *c = data;

	(void)fd, (void)what;
	if (c->client)
		connection_flush(c);
	else
		connection_wait_until_received(c);
}

void connections_look_whether_received(struct broker *b, const struct account *a)
{
	struct connection *c, *next;
	int looks = LOOKED_AT;

	for (c = TAILQ_FIRST(&b->clients->in_flight); c && looks > 0; c = next) {
		next = TAILQ_NEXT(c, in_flight); /* only @c can go */
		if (c->client || c->account != a)
			continue;
		looks--;
		if (look_whether_received(c))
			connection_let_go(c);
	}
}

void connections_catch_up(struct broker *b)
{
	struct connection *c, *next;

	for (c = TAILQ_FIRST(&b->clients->in_flight); c; c = next) {
		next = TAILQ_NEXT(c, in_flight); /* only @c can go */
		if (!c->client)
			connection_wait_until_received(c);
	}
}

void connections_end(struct broker *b)
{
	struct connection *c;

	while ((c = TAILQ_FIRST(&b->clients->in_flight))) {
		connection_received_all(c);
		connection_let_go(c);
	}
}
