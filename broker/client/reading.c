/* SPDX-License-Identifier: MIT */

/* What clients say, a packet at a time, and the descriptors that come with it. */

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/socket/closer.h"
#include "memory/adopt.h"
#include "wire/wire.h"

#define PACKETS_A_TURN   16 /* so many that need no answer are read before it is others' turn */
#define PACKETS_AT_DEATH 1024
#define BROUGHT_MAX      64 /* so many of a user may wait to be closed before it may bring more */

enum read_result {
	READ_NOTHING, /* nothing more is there, or the connection has ended */
	READ_MORE,    /* there may be more */
	READ_ANSWERED,
	READ_LATER, /* a packet is there, and is not taken now */
};

/* The descriptors that came with a request. How long it takes to close one depends on its file, and
 * so on the client that has sent it. Therefore none is taken before there is what it takes to have
 * a thread close it. */
struct brought {
	struct fd_list fds;
	struct closing *closing[PACKET_OWN_FDS];
};

static void close_brought(struct brought *all)
{
	for (size_t i = 0; i < PACKET_OWN_FDS; i++) {
		int fd = fd_list_take(&all->fds, i);

		if (fd >= 0)
			closing_start_other(all->closing[i], fd);
		else
			closing_free(all->closing[i]);
	}
	all->fds.n = 0;
}

/* Whether a user has to wait before it brings more descriptors: others need the broker's as well,
 * and the listener waits when too many are being closed. */
static bool has_brought_too_many(const struct connection *c)
{
	const struct clients *clients = c->broker->clients;
	size_t most = clients->max_closing / 4;

	return closer_is_behind(clients->closer, c->client->peer.uid,
				most < BROUGHT_MAX ? most : BROUGHT_MAX);
}

/* Takes the descriptors of the next packet. 0; -EBUSY: others that this user has brought have to be
 * closed first; -EPROTO: it has some that no request has. If this fails, the packet stays in the
 * socket. */
static int take_brought(struct connection *c, struct brought *all)
{
	int r = c->closing ? packet_peek_fds(c->socket) : 0;

	if (r <= 0)
		return r;
	if (!c->client->brings)
		return -EPROTO;
	if (has_brought_too_many(c))
		return -EBUSY;
	for (size_t i = 0; i < PACKET_OWN_FDS; i++) {
		all->closing[i] = closing_new_for(c->broker->clients->closer, c->client->peer.uid);
		if (!all->closing[i])
			return -EPROTO;
	}
	r = packet_peek_own_fds(c->socket, &all->fds);
	for (size_t i = 0; r == 0 && i < all->fds.n; i++)
		if (!memory_may_be_brought(all->fds.fds[i]))
			r = -EPROTO;
	return r == -EMSGSIZE ? -EPROTO : r;
}

/* A client that connected before the broker listened may have sent descriptors ahead. What it has
 * sent since has none, so when nothing is left in the socket, nobody has to look for descriptors
 * any more. This comes before the answer is sent, because a client that waits for it has nothing in
 * the socket until then, and may have something afterwards. */
static void stop_peeking(struct connection *c)
{
	if (!c->refuses_fds || packet_peek_fds(c->socket) != -EAGAIN)
		return;
	closing_free(c->closing);
	c->closing = NULL;
	c->refuses_fds = false;
}

static enum read_result read_one(struct connection *c)
{
	struct client *client = c->client;
	struct broker *b = client->broker;
	struct inbox *inbox = journal_inbox(b->journal);
	struct brought brought;
	struct fd_list none;
	bool answered;
	int r;

	brought.fds.n = 0;
	memset(brought.closing, 0, sizeof(brought.closing));

	r = take_brought(c, &brought);
	if (r == -EBUSY)
		return READ_LATER;
	if (r == -EPROTO) {
		close_brought(&brought);
		client_hang_up(client, SHARE_EPROTO, wire_error_text(WIRE_E_FDS));
		return READ_NOTHING;
	}
	if (r == 0) {
		journal_expect(b->journal, client->id);
		/* descriptors that were taken are in the packet as well, and go with it */
		r = packet_receive_into(c->socket, &inbox->header, inbox->packet,
					sizeof(inbox->packet), brought.fds.n > 0 ? NULL : &none);
	}
	if (r < 0)
		close_brought(&brought);
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
	stop_peeking(c);
	answered = b->clients->rooms->handle(client, inbox->packet, inbox->header.msg_len,
					     brought.fds.n > 0 ? &brought.fds : &none);
	close_brought(&brought);
	broker_commit(b);
	if (client->connection != c)
		return READ_NOTHING;
	return answered ? READ_ANSWERED : READ_MORE;
}

void connection_on_turn(struct turn *turn, uint32_t events)
{
	struct connection *c = (void *)((char *)turn - offsetof(struct connection, turn));

	if (c->waits) {
		if (events & EPOLLOUT)
			connection_flush(c);
		else
			/* the peer has hung up, so nothing will go out any more, and while the
			 * socket is full nothing else says so again */
			client_lose(c->client, -EPIPE);
		return;
	}
	/* After an answer there is rarely more to read, and to look would cost a system call on the
	 * way of every request. If there is more, the loop comes back at once. Every packet may end
	 * the connection, and with it @c. */
	for (int i = 0; i < PACKETS_A_TURN; i++) {
		enum read_result result = read_one(c);

		if (result == READ_LATER)
			connection_pause(c);
		if (result != READ_MORE || c->waits)
			break;
	}
}

void connection_drain(struct connection *c)
{
	enum read_result result = READ_MORE;

	/* a socket holds a few hundred messages; if more come, another process has the socket,
	 * too */
	for (int i = 0; i < PACKETS_AT_DEATH && result != READ_NOTHING && result != READ_LATER; i++)
		result = read_one(c);
}

int client_let_bring(struct client *client)
{
	struct connection *c = client->connection;

	if (!c->closing)
		c->closing = closing_new(c->broker->clients->closer);
	if (!c->closing)
		return -ENOMEM;
	packet_accept_fds(c->socket);
	c->refuses_fds = false;
	client->brings = true;
	client_note(client);
	return 0;
}
