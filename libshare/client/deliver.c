/* SPDX-License-Identifier: MIT */

/*
 * What the broker sends: whether it is new, and whom it is for. Messages are delivered in the order
 * in which the broker sent them, under the lock; descriptors of segments and timeline pages are
 * entered there, so that a later message may rely on them.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/client/inside.h"
#include "libshare/client/room.h"
#include "wire/packet.h"

void reply_done(struct reply *r)
{
	fd_list_close(&r->fds);
	if (r->packet != r->small)
		free(r->packet);
	r->packet = NULL;
}

struct call *call_find(share_client *c, uint32_t serial)
{
	struct call *call;

	LIST_FOREACH (call, &c->connection->calls, link)
		if (call->serial == serial)
			return call;
	return NULL;
}

static void finish_call(share_client *c, struct call *call, const struct wire_message *m, int error)
{
	LIST_REMOVE(call, link);
	call->error = error;
	call->done = true;
	if (call->answered)
		call->answered(c, call, error ? NULL : m, error);
}

/* Copies the packet for the thread that waits, which decodes it again from its own copy. */
static int keep(struct reply *r, const void *packet, size_t size, struct fd_list *fds)
{
	void *copy = size <= sizeof(r->small) ? r->small : malloc(size);
	size_t n_fds = fds->n;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, packet, size);
	r->packet = copy;
	wire_decode(&r->m, WIRE_TO_CLIENT, copy, size, n_fds);
	r->fds = *fds;
	fds->n = 0;
	return 0;
}

/* Of an ERROR. 0 and what is positive would look like success. */
static int number_of(const struct wire_message *m)
{
	return m->error.error < 0 ? m->error.error : SHARE_EPROTO;
}

/* A program writes to what it has allocated or asked for as writable, as far as it has asked: with
 * less it would crash, or write to what is others'. */
static bool is_what_is_wanted(const struct call *call, const struct wire_grant *m)
{
	return (m->mode == SHARE_RDONLY || m->mode == SHARE_RDWR) &&
	       (m->mode & call->wanted_mode) == call->wanted_mode && m->size >= call->wanted_size;
}

static void deliver_reply(share_client *c, struct call *call, const struct wire_message *m,
			  const void *packet, size_t size, struct fd_list *fds)
{
	const struct wire_bytes *detail = &m->error.detail;
	int error = 0;

	if (m->type == WIRE_ERROR) {
		error = number_of(m);
		snprintf(call->detail, sizeof(call->detail), "%.*s", (int)detail->size,
			 (const char *)detail->data);
	} else if (m->type != call->expected) {
		client_mark_lost(c, "the broker answered with the wrong kind of message");
		return;
	} else if (m->type == WIRE_GRANT && !is_what_is_wanted(call, &m->grant)) {
		client_mark_lost(c, "the broker granted less than was asked for");
		return;
	}
	if (error == 0 && call->reply && keep(call->reply, packet, size, fds) < 0) {
		error = SHARE_ENOMEM;
		snprintf(call->detail, sizeof(call->detail), "this process is out of memory");
	}
	finish_call(c, call, m, error);
}

/* As a room's hear() has it; 0 when there is no room that knows such a message. */
static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	int r = 0;

	for (size_t i = 0; r == 0 && client_rooms[i]; i++)
		if (client_rooms[i]->hear)
			r = client_rooms[i]->hear(c, m, fds);
	return r;
}

static void deliver_unasked(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	char why[256];

	switch (m->type) {
	case WIRE_GRANT: /* of a segment, ahead: it was heard before */
		break;
	case WIRE_ERROR:
		c->connection->lost_error = number_of(m);
		snprintf(why, sizeof(why), "the broker ended the connection: %.*s",
			 (int)m->error.detail.size, (const char *)m->error.detail.data);
		client_mark_lost(c, why);
		break;
	case WIRE_ENDING:
		c->connection->ends_by = (int64_t)clock_ms() + m->ending.within;
		dispatch_wake(c);
		break;
	default:
		hear(c, m, fds);
	}
}

/* WELCOME has the first one. */
static bool is_numbered(share_client *c, const void *packet, size_t size, size_t n_fds)
{
	struct connection *n = c->connection;
	struct wire_message m;

	if (!n->numbered)
		n->numbered = wire_decode(&m, WIRE_TO_CLIENT, packet, size, n_fds) == 0 &&
			      m.type == WIRE_WELCOME;
	return n->numbered;
}

/* A broker that goes on for one that died sends again what may not have come. @size is then that
 * of the message. 0; 1: it has come before; -EPROTO. */
static int take_number(share_client *c, const void *packet, size_t *size, size_t n_fds)
{
	uint64_t number;

	if (!is_numbered(c, packet, *size, n_fds))
		return 0;
	if (wire_take_number(packet, size, &number) != 0)
		return -EPROTO;
	if (number <= c->connection->last_number && !MUTATION(answer_not_told_apart))
		return 1;
	c->connection->last_number = number;
	return 0;
}

void connection_deliver(share_client *c, const void *packet, size_t size, struct fd_list *fds)
{
	int r = take_number(c, packet, &size, fds->n), fault;
	struct wire_message m;
	struct call *call;

	if (r < 0)
		client_mark_lost(c, "the broker sent a packet without its number");
	if (r != 0)
		return;
	fault = wire_decode(&m, WIRE_TO_CLIENT, packet, size, fds->n);
	if (fault) {
		client_mark_lost(c, wire_error_text(fault));
		return;
	}
	/* whether or not anybody still wants the grant: the broker sends a descriptor once, and
	 * when it is gone never again */
	if (m.type == WIRE_GRANT && hear(c, &m, fds) < 0) {
		client_mark_lost(c,
				 "the broker sent a grant that makes no sense, or memory is out");
		return;
	}
	if (c->lost)
		return;
	if (m.serial == 0) {
		if (wire_describe(m.type)->flags & WIRE_UNASKED)
			deliver_unasked(c, &m, fds);
		else
			client_mark_lost(c, "the broker sent something unexpected");
		return;
	}
	call = call_find(c, m.serial);
	if (call)
		deliver_reply(c, call, &m, packet, size, fds);
	else
		client_mark_lost(c, "the broker answered what nobody asked");
}
