/* SPDX-License-Identifier: MIT */

/*
 * The broker's end of a socket. Knows packets and queues, and when to stop; what a message means
 * is request.c's business, what becomes of a client whose connection fails is client.c's.
 *
 * Descriptors in flight need care: the kernel counts them against the sending user until they are
 * received, and refuses (ETOOMANYREFS) beyond RLIMIT_NOFILE, for every socket of that user: the
 * broker's, that is. So each connection may have a few unreceived ones at a time, and all of a user
 * so many (account.h); that user's messages wait beyond, and nobody else's.
 */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <linux/sockios.h>
#include <share/share.h>

#include "broker/broker.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/closer.h"
#include "broker/client/connection.h"
#include "broker/client/request.h"
#include "wire/packet.h"

#define PACKETS_A_TURN    16 /* that are not answered, before others get theirs */
#define PACKETS_AT_DEATH  1024
#define FDS_IN_FLIGHT_MAX 192
#define RETRY_MS          2 /* at first; then later and later */
#define RETRY_LAST_MS     64
#define LOOKED_AT         32 /* connections of a user, at a time: has it received what it was sent? */

struct queued {
	TAILQ_ENTRY(queued) link;
	struct charge charge, charge_descriptors;
	struct fd_list fds;
	size_t size;
	unsigned char data[];
};

struct connection {
	struct broker *broker;
	struct account *account; /* as long as the client has it; then a reference */
	struct client *client;   /* NULL: it has ended */
	int socket;
	struct closing *closing; /* NULL: no descriptor can come in */
	struct turn turn;        /* to read; to write, while something waits to go out */
	struct event
	    *retry; /* descriptors could not be sent; the socket may be writable all along */
	TAILQ_HEAD(, queued) queue;
	size_t fds_in_flight; /* at most: sent since the peer was last seen to have read all */
	TAILQ_ENTRY(connection) in_flight; /* in the broker, while there are any */
	int retry_ms;
	struct charge charge, charge_socket; /* once the client no longer has them */
};

static void queued_free(struct queued *q)
{
	charge_return(&q->charge);
	charge_return(&q->charge_descriptors);
	fd_list_close(&q->fds);
	free(q);
}

static void received_all(struct connection *c)
{
	if (c->fds_in_flight == 0)
		return;
	account_fds_received(c->account, c->fds_in_flight);
	c->fds_in_flight = 0;
	TAILQ_REMOVE(&c->broker->clients->in_flight, c, in_flight);
}

static void let_go(struct connection *c);

static bool look_whether_received(struct connection *c)
{
	int unread = 0;

	if (ioctl(c->socket, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	received_all(c);
	return true;
}

/* At those that were looked at longest ago, whoever's they are. */
static void look_around(struct broker *b)
{
	struct connection *c;

	for (int i = 0; i < LOOKED_AT && (c = TAILQ_FIRST(&b->clients->in_flight)); i++) {
		if (look_whether_received(c)) {
			if (!c->client)
				let_go(c);
			continue;
		}
		TAILQ_REMOVE(&b->clients->in_flight, c, in_flight);
		TAILQ_INSERT_TAIL(&b->clients->in_flight, c, in_flight);
	}
}

/* @part: of what the user may have; 1 for what it has asked for. */
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

/* 0; -EAGAIN: not now; otherwise the connection has failed. */
static int send_now(struct connection *c, const void *data, size_t size, const int *fds,
		    size_t n_fds, bool *wait_for_fds)
{
	int r;

	/* before there is something in the socket again */
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

/* Nothing is read until it has gone out. 0 or -ENOMEM: the connection has failed. */
static int wait_to_send(struct connection *c, bool wait_for_fds)
{
	struct timeval delay = {0, c->retry_ms * 1000};

	turn_await(&c->turn, wait_for_fds ? 0 : EPOLLOUT);
	if (!wait_for_fds)
		return 0;
	if (c->retry_ms < RETRY_LAST_MS)
		c->retry_ms *= 2;
	return event_add(c->retry, &delay) < 0 ? -ENOMEM : 0;
}

static int enqueue(struct connection *c, const void *data, size_t size, const int *fds,
		   size_t n_fds)
{
	struct queued *q = calloc(1, sizeof(*q) + size);

	if (!q)
		return -ENOMEM;
	if (!charge_take(&q->charge, c->client->account, LIMIT_UNSENT, sizeof(*q) + size) ||
	    !charge_take(&q->charge_descriptors, c->client->account, LIMIT_DESCRIPTORS, n_fds)) {
		queued_free(q);
		return -EDQUOT;
	}
	for (size_t i = 0; i < n_fds; i++) {
		int fd = fd_dup(fds[i]);

		if (fd < 0) {
			queued_free(q);
			return fd;
		}
		q->fds.fds[q->fds.n++] = fd;
	}
	q->size = size;
	memcpy(q->data, data, size);
	TAILQ_INSERT_TAIL(&c->queue, q, link);
	return 0;
}

int connection_send(struct connection *c, const struct wire_message *m, const int *fds,
		    size_t n_fds)
{
	unsigned char *packet = c->client->broker->scratch;
	size_t size = wire_encode(m, packet, WIRE_PACKET_MAX);
	bool wait_for_fds = false;
	int r;

	if (size == 0)
		return -EMSGSIZE;
	if (!TAILQ_EMPTY(&c->queue))
		return enqueue(c, packet, size, fds, n_fds);
	r = send_now(c, packet, size, fds, n_fds, &wait_for_fds);
	if (r != -EAGAIN)
		return r;
	r = enqueue(c, packet, size, fds, n_fds);
	return r == 0 ? wait_to_send(c, wait_for_fds) : r;
}

int connection_offer(struct connection *c, const struct wire_message *m, const int *fds,
		     size_t n_fds)
{
	unsigned char *packet = c->client->broker->scratch;
	size_t size = wire_encode(m, packet, WIRE_PACKET_MAX);
	bool wait_for_fds;

	if (size == 0)
		return -EMSGSIZE;
	if (!TAILQ_EMPTY(&c->queue) ||
	    !may_send_fds(c, n_fds, c->client->broker->clients->max_fds_ahead, 2))
		return -EAGAIN;
	return send_now(c, packet, size, fds, n_fds, &wait_for_fds);
}

/* What there is to read; or its next turn at once, which is when there is room for the answer of a
 * request that takes more than one. */
static void await_more(struct connection *c)
{
	turn_await(&c->turn, c->client->requests.unfinished ? EPOLLOUT : EPOLLIN);
}

static void flush(struct connection *c)
{
	struct queued *q;
	bool wait_for_fds;
	int r;

	while ((q = TAILQ_FIRST(&c->queue))) {
		r = send_now(c, q->data, q->size, q->fds.fds, q->fds.n, &wait_for_fds);
		if (r == -EAGAIN) {
			r = wait_to_send(c, wait_for_fds);
			if (r == 0)
				return;
		}
		if (r < 0) {
			client_lose(c->client, r);
			return;
		}
		TAILQ_REMOVE(&c->queue, q, link);
		queued_free(q);
	}
	await_more(c);
	c->client->broker->clients->rooms->caught_up(c->client);
}

static void wait_until_received(struct connection *c);

static void on_retry(evutil_socket_t fd, short what, void *data)
{
	struct connection *c = data;

	(void)fd, (void)what;
	if (c->client)
		flush(c);
	else
		wait_until_received(c);
}

enum read_result {
	READ_NOTHING, /* nothing more is there, or the connection has ended */
	READ_MORE,    /* there may be more */
	READ_ANSWERED,
};

static enum read_result read_one(struct connection *c)
{
	struct client *client = c->client;
	struct broker *b = client->broker;
	size_t size = sizeof(b->packet);
	struct fd_list fds;
	bool answered;
	int r;

	/* no request has descriptors; what they are stays in the socket, and ends with it */
	r = c->closing ? packet_peek_fds(c->socket) : 0;
	if (r > 0) {
		client_hang_up(client, SHARE_EPROTO, wire_error_text(WIRE_E_FDS));
		return READ_NOTHING;
	}
	if (r == 0)
		r = packet_receive(c->socket, b->packet, &size, &fds, false);
	if (r == -EAGAIN)
		return READ_NOTHING;
	if (r == -EMSGSIZE) {
		client_hang_up(client, SHARE_EPROTO,
			       "a message was too large or lost its descriptors");
		return READ_NOTHING;
	}
	if (r < 0) {
		client_lose(client, r);
		return READ_NOTHING;
	}
	answered = client->broker->clients->rooms->handle(client, b->packet, size, &fds);
	fd_list_close(&fds);
	if (client->connection != c)
		return READ_NOTHING;
	return answered ? READ_ANSWERED : READ_MORE;
}

static void on_turn(struct turn *turn, uint32_t events)
{
	struct connection *c = (void *)((char *)turn - offsetof(struct connection, turn));
	struct client *client = c->client;

	if (!TAILQ_EMPTY(&c->queue)) {
		if (events & EPOLLOUT)
			flush(c);
		else
			/* hung up: nothing will go out any more, and while the socket is full
			 * nothing else says so again */
			client_lose(c->client, -EPIPE);
		return;
	}
	if (client->requests.unfinished) {
		client->requests.unfinished->go_on(client);
		if (client->connection == c && !client->requests.unfinished &&
		    TAILQ_EMPTY(&c->queue))
			await_more(c);
		return;
	}
	/* After an answer there is rarely more: asking would cost a system call on the way of every
	 * request. If there is, the loop comes back at once. Every packet may end the connection,
	 * and with it @c. */
	for (int i = 0; i < PACKETS_A_TURN; i++)
		if (read_one(c) != READ_MORE || !TAILQ_EMPTY(&c->queue) ||
		    client->requests.unfinished)
			break;
	if (client->requests.unfinished && TAILQ_EMPTY(&c->queue))
		await_more(c);
}

void connection_drain(struct connection *c)
{
	struct client *client = c->client;
	enum read_result result = READ_MORE;

	/* a socket holds a few hundred messages; if there are more, somebody else has the socket */
	for (int i = 0; i < PACKETS_AT_DEATH && result != READ_NOTHING; i++) {
		while (client->requests.unfinished)
			client->requests.unfinished->go_on(client);
		result = read_one(c);
	}
	while (client->requests.unfinished)
		client->requests.unfinished->go_on(client);
}

int connection_new(struct client *client, int socket, struct closing *closing,
		   struct connection **out)
{
	struct connection *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->broker = client->broker;
	c->account = client->account;
	c->client = client;
	c->socket = socket;
	c->retry_ms = RETRY_MS;
	TAILQ_INIT(&c->queue);
	c->turn.serve = on_turn;
	c->retry = event_new(client->broker->base, -1, 0, on_retry, c);
	r = c->retry ? turn_start(&client->broker->clients->turns, account_turns(client->account),
				  &c->turn, socket, EPOLLIN)
		     : -ENOMEM;
	if (r < 0) {
		c->socket = -1;
		connection_free(c);
		return r;
	}
	c->closing = closing;
	*out = c;
	return 0;
}

static void let_go(struct connection *c)
{
	if (c->retry)
		event_free(c->retry);
	if (c->closing)
		closing_start(c->closing, c->socket);
	else
		fd_close(c->socket);
	charge_return(&c->charge_socket);
	charge_return(&c->charge);
	if (!c->client)
		account_unref(c->account);
	free(c);
}

/* What the peer has not received by then would count no more, but be there all the same. */
static void wait_until_received(struct connection *c)
{
	const struct timeval delay = {0, RETRY_LAST_MS * 1000};

	if (look_whether_received(c))
		let_go(c);
	else
		broker_set_timer(c->broker, c->retry, &delay);
}

void connection_free(struct connection *c)
{
	struct queued *q;

	if (!c)
		return;
	turn_end(&c->turn);
	while ((q = TAILQ_FIRST(&c->queue))) {
		TAILQ_REMOVE(&c->queue, q, link);
		queued_free(q);
	}
	if (c->fds_in_flight == 0 || c->broker->has_ended) {
		received_all(c);
		let_go(c);
		return;
	}
	event_del(c->retry);
	shutdown(c->socket, SHUT_RDWR);
	account_ref(c->account);
	/* the socket stays open, so who does not read must not have more of them than clients */
	charge_split(&c->client->admission.descriptors, 1, &c->charge_socket);
	charge_take_beyond(&c->charge, c->account, LIMIT_CONNECTIONS, 1, UINT64_MAX / 2);
	c->client = NULL;
	wait_until_received(c);
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
			let_go(c);
	}
}

void connections_catch_up(struct broker *b)
{
	struct connection *c, *next;

	for (c = TAILQ_FIRST(&b->clients->in_flight); c; c = next) {
		next = TAILQ_NEXT(c, in_flight); /* only @c can go */
		if (!c->client)
			wait_until_received(c);
	}
}

void connections_end(struct broker *b)
{
	struct connection *c;

	while ((c = TAILQ_FIRST(&b->clients->in_flight))) {
		received_all(c);
		let_go(c);
	}
}

bool connection_is_idle(const struct connection *c)
{
	return TAILQ_EMPTY(&c->queue);
}

int connection_socket(const struct connection *c)
{
	return c->socket;
}

void connection_farewell(int socket, int error, const char *detail)
{
	struct wire_message m = {.type = WIRE_ERROR};
	unsigned char packet[2048];
	size_t size;

	m.error.error = error;
	m.error.detail = (struct wire_bytes){detail, (uint32_t)strnlen(detail, 1024)};
	size = wire_encode(&m, packet, sizeof(packet));
	packet_send(socket, packet, size, NULL, 0, false);
}
