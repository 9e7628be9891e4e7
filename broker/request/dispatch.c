/* SPDX-License-Identifier: MIT */

/*
 * The way from packets to handlers. Every message is checked against the table and the client's
 * state before a handler sees it; handlers check what only they can know.
 */

#include <stdio.h>

#include <share/share.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/client/records.h"
#include "broker/keeper/blame.h"
#include "broker/memory/client_memory.h"
#include "broker/reply/request.h"
#include "broker/request/dispatch.h"

#define TO_BROKER_ENTRY(NAME, name) [WIRE_##NAME] = handle_##name,
#define TO_CLIENT_ENTRY(NAME, name)
#define TO_AGENT_ENTRY(NAME, name)
#define FROM_AGENT_ENTRY(NAME, name)
#define ENTRY(NAME, name, number, direction, ...) direction##_ENTRY(NAME, name)

/* A message of the table without a handler does not link. */
static const request_handler handlers[WIRE_TYPE_COUNT] = {WIRE_MESSAGES(ENTRY)};

/* Whether the client may send this message now. A connection begins with two messages, each in its
 * place, and all others come after them. */
static bool is_allowed(const struct client *c, const struct wire_description *d)
{
	switch (c->state) {
	case CLIENT_CONNECTED:
		return d->flags & WIRE_FIRST;
	case CLIENT_GREETED:
		return d->flags & WIRE_SECOND;
	case CLIENT_READY:
		return !(d->flags & (WIRE_FIRST | WIRE_SECOND));
	default:
		return false;
	}
}

static bool may_lack_serial(const struct wire_description *d)
{
	return d->reply == WIRE_NOTHING || d->flags & WIRE_SERIAL_OPTIONAL;
}

/* Whether this request is refused because brokers have crashed over such ones. A user who has had
 * brokers crash is to be able to give back at least what it has, and operators are to be able to
 * look into it. */
static bool is_refused(const struct client *c, unsigned type)
{
	switch (type) {
	case WIRE_READY:
	case WIRE_BYE:
	case WIRE_RELEASE:
	case WIRE_QUERY:
	case WIRE_MONITOR:
		return false;
	default:
		return blame_is_known() && blame_refuses(c->peer.uid, type, clock_coarse_ms()) &&
		       !client_may_operate(c);
	}
}

/* Refuses a request, which is not even read, as that may be what brokers have crashed over. */
static void refuse(struct client *c, unsigned type, uint32_t serial)
{
	static const char why[] =
	    "brokers have crashed over requests of this type by this user: "
	    "none of them is tried for some minutes";

	if (serial && type < WIRE_TYPE_COUNT && c->state == CLIENT_READY)
		request_reply_error(c, (enum wire_type)type, serial, SHARE_ESYSTEM, why);
	else
		client_hang_up(c, SHARE_ESYSTEM, why);
}

/* Notes a request that has no answer yet, as this broker has understood it. The packet may be
 * longer, which nobody is charged for. */
static void note_unanswered(struct client *client, const struct wire_message *m)
{
	struct broker *b = client->broker;
	size_t size = wire_encode(m, b->scratch, sizeof(b->scratch));

	if (size > 0)
		unanswered_note(client, m->serial, b->scratch, size);
}

bool request_handle(struct client *client, const void *data, size_t size, struct fd_list *fds)
{
	struct wire_message m;
	struct request r = {client->broker, client, &m, 0, false, NULL, fds};
	const struct wire_description *d;
	char why[128];
	uint32_t serial;
	unsigned type;
	int fault;

	client->broker->counters.requests++;
	wire_peek(data, size, &type, &serial);
	if (is_refused(client, type)) {
		refuse(client, type, serial);
		return serial != 0;
	}
	blame_begin(client->peer.uid, type);
	fault = wire_decode(&m, WIRE_TO_BROKER, data, size, fds->n);
	if (fault) {
		client_hang_up(client, SHARE_EPROTO, wire_error_text(fault));
		return false;
	}
	if (client->state == CLIENT_ENDING)
		return false; /* what a client says after its goodbye is for nobody */
	d = wire_describe(m.type);
	if (!is_allowed(client, d)) {
		snprintf(why, sizeof(why), "%s was not expected now (state: %s)", d->name,
			 client_state_name(client->state));
		client_hang_up(client, SHARE_EPROTO, why);
		return false;
	}
	if (m.serial == 0 && !may_lack_serial(d)) {
		snprintf(why, sizeof(why), "%s needs a serial", d->name);
		client_hang_up(client, SHARE_EPROTO, why);
		return false;
	}
	if (client_is_overdue(client)) {
		client_hang_up(client, SHARE_EPROTO, "it does not unmap segments it was asked to");
		return false;
	}
	client->broker->counters.by_message[m.type].n++;
	client->requests.current =
	    (struct timed_request){m.serial, m.type, turns_begun(&client->broker->clients->turns)};
	if (d->flags & WIRE_BEGINS && broker_is_ending(client->broker))
		request_fail(&r, SHARE_EDISCONNECTED,
			     "the broker is about to end, and begins nothing new: release what "
			     "you hold, disconnect, and connect to the next one");
	else
		handlers[m.type](&r);
	/* if the time is still kept for its answer, there was none so far */
	if (m.serial && d->reply != WIRE_NOTHING && client->requests.current.serial == m.serial &&
	    client->connection && !MUTATION(waiting_not_noted))
		note_unanswered(client, &m);
	return m.serial != 0;
}

void request_handle_again(struct client *client, const struct wire_message *m, uint64_t since_ms,
			  struct deferred *again)
{
	struct request r = {client->broker, client, m, since_ms, false, again, NULL};

	blame_begin(client->peer.uid, m->type);
	if (client->state == CLIENT_READY && client->connection)
		handlers[m->type](&r);
}

void request_ask_again(struct client *client, const void *packet, size_t size, uint64_t since_ms)
{
	struct wire_message m;
	uint32_t serial;
	unsigned type;

	wire_peek(packet, size, &type, &serial);
	if (is_refused(client, type)) {
		refuse(client, type, serial);
		return;
	}
	if (wire_decode(&m, WIRE_TO_BROKER, packet, size, 0) != 0 ||
	    !is_allowed(client, wire_describe(m.type)))
		return;
	/* each of these has a record of its own that says who waits for it, with the serial */
	if (m.type == WIRE_BYE || m.type == WIRE_CHANNEL_CLOSE)
		return;
	client->requests.current = (struct timed_request){m.serial, m.type, clock_ns()};
	request_handle_again(client, &m, since_ms, NULL);
	client->requests.current.serial = 0;
}
