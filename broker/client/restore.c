/* SPDX-License-Identifier: MIT */

/* What a broker that comes after another one makes of the records of clients, and of what was said
 * to them. */

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <event2/event.h>

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/socket/closer.h"

static int charge_again(struct client *c)
{
	c->account = account_get(c->broker->accounts, c->peer.uid);
	if (!c->account ||
	    !charge_take(&c->admission.connection, c->account, LIMIT_CONNECTIONS, 1) ||
	    !charge_take(&c->admission.descriptors, c->account, LIMIT_DESCRIPTORS,
			 CLIENT_DESCRIPTORS))
		return -ENOMEM;
	account_must_add(c->account, peer_size(&c->peer));
	return 0;
}

/* Has a restored client go on as one in its state does. */
static int go_on(struct client *c)
{
	struct broker *b = c->broker;
	struct closing *closing = NULL;
	int r = 0;

	c->end.death.serve = client_on_death;
	c->end.timer = event_new(b->base, -1, 0, client_on_timer, c);
	if (!c->end.timer)
		return -ENOMEM;
	if (c->socket >= 0) {
		/* the socket may refuse descriptors, but only since one came */
		if (c->brings || !packet_refuses_fds(c->socket) ||
		    packet_peek_fds(c->socket) != -EAGAIN) {
			closing = closing_new(b->clients->closer);
			if (!closing)
				return -ENOMEM;
		}
		r = connection_new(c, closing, &c->connection);
	}
	if (r < 0)
		return r;
	if (c->state == CLIENT_ENDING)
		client_end_again(c);
	else if (!MUTATION(deaths_unnoticed))
		r = turn_start(&b->clients->turns, account_turns(c->account), &c->end.death,
			       c->peer.pidfd, EPOLLIN);
	if (r == 0 && !c->connection && c->state == CLIENT_READY)
		client_outlive_connection_soon(c);
	return r;
}

/* Whether a client may be what the record says. */
static bool is_client(const struct broker *b, const struct client *c)
{
	return c->id > 0 && c->id <= b->clients->last_id && !clients_find(b->clients, c->id) &&
	       c->state >= CLIENT_READY && c->state <= CLIENT_ENDING && c->peer.pidfd >= 0 &&
	       c->version >= WIRE_VERSION_OLDEST && c->version <= WIRE_VERSION;
}

int client_attach(struct broker *b, void *object)
{
	struct client *c = object;
	int r;

	if (!is_client(b, c))
		return -EBADMSG;
	c->broker = b;
	TAILQ_INIT(&c->requests.unanswered);
	r = b->clients->rooms->begin(c);
	if (r == 0)
		r = clients_add_at(b->clients, c, c->slot);
	/* its groups are not in the record, as the kernel remembers them */
	if (r == 0 && c->socket >= 0 && peer_identify_again(c->socket, &c->peer) < 0)
		r = -EBADMSG;
	if (r == 0)
		r = charge_again(c);
	if (r == 0)
		r = b->clients->rooms->restore(c);
	return r == 0 ? go_on(c) : r;
}

int queued_attach(struct broker *b, void *object)
{
	struct queued *q = object;
	struct client *c = clients_find(b->clients, q->client);
	struct connection *connection = c ? c->connection : NULL;

	/* the packet gets descriptors of its own, as what they were of may be gone by now */
	if (connection && queued_own_fds(&q->fds) == 0) {
		q->waits = true;
		queued_pay(c, q);
		queued_add_last(connection, q);
		queued_note(q);
		return 0;
	}
	journal_drop(b->journal, &q->record);
	free(q);
	/* a client that is to get a descriptor that is gone cannot go on; what it holds stays its
	 * own until it ends */
	if (connection) {
		connection->waits = true; /* so that nothing of its queue is sent again */
		client_hang_up(c, 0, NULL);
	}
	return 0;
}
