/* SPDX-License-Identifier: MIT */

/*
 * The broker's end of a socket: how it comes and goes, and the descriptors that are under way on
 * it. What comes in is reading.c's business, what goes out sending.c's, and what becomes of a
 * client whose connection has failed hang_up.c's.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <event2/event.h>
#include <linux/sockios.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/inside.h"
#include "broker/keeper/kept.h"
#include "broker/socket/closer.h"

#define LOOKED_AT 32 /* so many connections are looked at in one go */

/* Frees a connection whose peer has received all that it was sent. */
static void let_go(struct connection *c)
{
	broker_free_event(c->retry);
	if (c->closing)
		closing_start_kept(c->closing, c->socket);
	else
		kept_close(c->socket);
	charge_return(&c->charge_socket);
	charge_return(&c->charge);
	if (!c->client)
		account_unref(c->account);
	free(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Descriptors in flight                                                                       */

/* Stops counting the descriptors in flight, as the peer has received them all, or as the broker
 * ends. */
static void received_all(struct connection *c)
{
	if (c->fds_in_flight == 0)
		return;
	account_fds_received(c->account, c->fds_in_flight);
	c->fds_in_flight = 0;
	TAILQ_REMOVE(&c->broker->clients->in_flight, c, in_flight);
}

bool connection_look_whether_received(struct connection *c)
{
	int unread = 0;

	if (ioctl(c->socket, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	received_all(c);
	return true;
}

/* Looks at the connections that were looked at longest ago, whoever's they are. */
static void look_around(struct broker *b)
{
	struct connection *c;

	for (int i = 0; i < LOOKED_AT && (c = TAILQ_FIRST(&b->clients->in_flight)); i++) {
		if (connection_look_whether_received(c)) {
			if (!c->client)
				let_go(c);
			continue;
		}
		TAILQ_REMOVE(&b->clients->in_flight, c, in_flight);
		TAILQ_INSERT_TAIL(&b->clients->in_flight, c, in_flight);
	}
}

bool connection_may_send_fds(struct connection *c, size_t n, size_t most, size_t part)
{
	const struct account *a = c->account;

	if (n == 0)
		return true;
	if (c->fds_in_flight > 0)
		connection_look_whether_received(c);
	if (c->fds_in_flight + n > most)
		return false;
	if (account_may_send_fds(a, n, part))
		return true;
	look_around(c->broker);
	return account_may_send_fds(a, n, part);
}

/* Descriptors that the peer has not received when its connection ends would not count any more,
 * but be there all the same. */
void connection_wait_until_received(struct connection *c)
{
	if (connection_look_whether_received(c))
		let_go(c);
	else
		broker_set_timer(c->broker, c->retry, RETRY_LAST_MS);
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
		if (connection_look_whether_received(c))
			let_go(c);
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
		received_all(c);
		let_go(c);
	}
}

/* ------------------------------------------------------------------------------------------- */

int connection_new(struct client *client, struct closing *closing, struct connection **out)
{
	struct connection *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->broker = client->broker;
	c->account = client->account;
	c->client = client;
	c->socket = client->socket;
	c->retry_ms = RETRY_MS;
	TAILQ_INIT(&c->queue);
	c->turn.serve = connection_on_turn;
	c->retry = event_new(client->broker->base, -1, 0, connection_on_retry, c);
	r = c->retry ? turn_start(&client->broker->clients->turns, account_turns(client->account),
				  &c->turn, c->socket, EPOLLIN)
		     : -ENOMEM;
	if (r < 0) {
		c->socket = -1;
		connection_free(c);
		return r;
	}
	c->closing = closing;
	c->refuses_fds = closing && packet_refuses_fds(c->socket);
	*out = c;
	return 0;
}

void connection_free(struct connection *c)
{
	if (!c)
		return;
	turn_end(&c->turn);
	connection_drop_queue(c);
	if (c->fds_in_flight == 0 || c->broker->has_ended) {
		received_all(c);
		let_go(c);
		return;
	}
	event_del(c->retry);
	shutdown(c->socket, SHUT_RDWR);
	account_ref(c->account);
	/* the socket stays open, so it is charged: a user who does not read must not have more of
	 * them than clients */
	charge_split(&c->client->admission.descriptors, 1, &c->charge_socket);
	charge_take_beyond(&c->charge, c->account, LIMIT_CONNECTIONS, 1, 0, UINT64_MAX / 2);
	c->client = NULL;
	connection_wait_until_received(c);
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
