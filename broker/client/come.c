/* SPDX-License-Identifier: MIT */

/* How clients come: who the peer is, and whether it is let in. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/system/descriptor.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/connection.h"
#include "broker/client/conversation.h"
#include "broker/client/end.h"
#include "broker/client/inside.h"
#include "broker/client/records.h"
#include "broker/log/log.h"
#include "broker/socket/closer.h"

#define OPERATORS_BEYOND 4 /* connections of an administrator who is at the limit */

static const char out_of_memory[] = "the broker is out of memory";

/* Starts to serve the client. Its socket and @closing are taken over once it has a connection. */
static int start(struct client *c, struct closing *closing)
{
	int r = connection_new(c, closing, &c->connection);

	if (r < 0)
		return r;
	c->end.death.serve = client_on_death;
	c->end.timer = event_new(c->broker->base, -1, 0, client_on_timer, c);
	if (!c->end.timer || client_limit_handshake(c) < 0)
		return -ENOMEM;
	return turn_start(&c->broker->clients->turns, account_turns(c->account), &c->end.death,
			  c->peer.pidfd, EPOLLIN);
}

/* Refuses a peer before it has become a client. */
static void refuse(int socket, uid_t uid, int error, const char *why)
{
	log_warning_of(uid, "who connects is refused: %s", why);
	connection_farewell(socket, error, why);
}

/* Charges the client for its connection, at most @beyond connections beyond the limit: an
 * administrator who is at the limit may be an operator who wants to know why, and HELLO tells
 * whether that is so. */
static bool charge_connection(struct client *c, unsigned beyond)
{
	c->admission.lacks = LIMIT_MEMORY;
	if (beyond == 0 &&
	    !account_may_add(c->account, LIMIT_MEMORY, PRICE_TIMELINES + peer_size(&c->peer)))
		return false;
	c->admission.lacks = LIMIT_CONNECTIONS;
	if (!charge_take_beyond(&c->admission.connection, c->account, LIMIT_CONNECTIONS, 1, 0,
				beyond))
		return false;
	c->admission.lacks = LIMIT_DESCRIPTORS;
	if (charge_take_beyond(&c->admission.descriptors, c->account, LIMIT_DESCRIPTORS,
			       CLIENT_DESCRIPTORS, 0, beyond * CLIENT_DESCRIPTORS)) {
		account_must_add(c->account, peer_size(&c->peer));
		return true;
	}
	charge_return(&c->admission.connection);
	return false;
}

static bool admit(struct client *c)
{
	enum limit_kind lacks;

	c->admission.for_operator = broker_is_ending(c->broker);
	if (c->admission.for_operator && !client_may_operate(c))
		return false;
	if (charge_connection(c, 0))
		return true;
	connections_look_whether_received(c->broker, c->account);
	if (charge_connection(c, 0))
		return true;
	lacks = c->admission.lacks;
	c->admission.for_operator = client_may_operate(c) && charge_connection(c, OPERATORS_BEYOND);
	c->admission.lacks = lacks;
	return c->admission.for_operator;
}

/* Tells the peer why it is not let in; the log is told, too, that a limit is reached. When the
 * broker is about to end, the error is the same as when no broker serves, so that a program that
 * goes on trying then goes on trying now. */
static void refuse_admission(const struct client *c, int socket)
{
	struct failure failure;

	if (broker_is_ending(c->broker))
		failure_set(&failure, SHARE_ENOBROKER,
			    "the broker is about to end, and lets in only administrators' tools; "
			    "connect to the next one");
	else
		account_refuse(c->account, c->admission.lacks, "", &failure);
	connection_farewell(socket, failure.error, failure.text);
}

bool client_greets_as(struct client *c, bool operator)
{
	if (!c->admission.for_operator || operator)
		return true;
	connection_send_rest(c->connection);
	refuse_admission(c, c->socket);
	client_hang_up(c, 0, NULL);
	return false;
}

static void let_go_of_socket(int socket, struct closing *closing)
{
	if (closing)
		closing_start(closing, socket);
	else
		fd_close(socket);
}

/* Finds out who the peer is. False if that cannot be told, which the peer is told then. */
static bool identify(struct client *c, int socket)
{
	char why[128];
	int r;

	c->peer.pidfd = -1;
	r = peer_identify(socket, &c->peer);
	if (r >= 0)
		return true;
	snprintf(why, sizeof(why), "the broker cannot tell who you are: %s",
		 r == -EOVERFLOW ? "its user namespace has no number for this user (start it "
				   "outside, or map the user)"
				 : strerror(-r));
	/* A peer that is dead already, or of a user namespace of its own, gets no line in the log:
	 * anybody could fill the log with such lines. */
	if (r == -ESRCH || r == -EOVERFLOW)
		connection_farewell(socket, SHARE_EACCES, why);
	else
		refuse(socket, LOG_UID_UNKNOWN,
		       r == -EMFILE || r == -ENFILE ? SHARE_EQUOTA : SHARE_ESYSTEM, why);
	return false;
}

/* Makes a client of the peer, or refuses it. Returns a reference to the peer's account, or NULL if
 * that was not found. */
static struct account *come(struct broker *b, int socket, struct closing *closing)
{
	struct client *c = calloc(1, sizeof(*c));
	struct account *account = NULL;
	char why[128];
	int r;

	if (!c || b->clients->rooms->begin(c) < 0) {
		free(c);
		refuse(socket, LOG_UID_UNKNOWN, SHARE_ESYSTEM, out_of_memory);
		let_go_of_socket(socket, closing);
		return NULL;
	}
	c->broker = b;
	c->socket = socket;
	TAILQ_INIT(&c->requests.unanswered);
	if (!identify(c, socket))
		goto refuse;
	c->account = account_get(b->accounts, c->peer.uid);
	if (!c->account) {
		refuse(socket, c->peer.uid, SHARE_ESYSTEM, out_of_memory);
		goto refuse;
	}
	account = account_ref(c->account);
	if (!admit(c)) {
		refuse_admission(c, socket);
		goto refuse;
	}
	r = clients_add(b->clients, c);
	if (r < 0) {
		refuse(socket, c->peer.uid, SHARE_ESYSTEM,
		       r == -ENOMEM ? out_of_memory : "the broker has no room for more clients");
		goto refuse;
	}
	b->counters.clients++;
	r = start(c, closing);
	if (r < 0) {
		snprintf(why, sizeof(why), "the broker cannot serve you: %s", strerror(-r));
		refuse(socket, c->peer.uid,
		       r == -EMFILE || r == -ENFILE ? SHARE_EQUOTA : SHARE_ESYSTEM,
		       r == -ENOMEM ? out_of_memory : why);
		if (!c->connection)
			let_go_of_socket(socket, closing);
		client_free(c);
	}
	return account;

refuse:
	b->clients->rooms->end(c);
	client_return_admission(c);
	account_unref(c->account);
	peer_deinit(&c->peer);
	let_go_of_socket(socket, closing);
	free(c);
	return account;
}

void client_accept(struct broker *b, int socket, struct closing *closing)
{
	uint64_t begun = clock_ns();
	struct account *account = come(b, socket, closing);

	if (!account)
		return;
	turns_share(&b->clients->turns, account_turns(account), begun);
	account_unref(account);
}
