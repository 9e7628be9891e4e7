/* SPDX-License-Identifier: MIT */

/*
 * The last one who has a buffer is told so. A lease that was granted once and is all there is, with
 * no name, no token and nothing of a channel's beside it, cannot become two but through its holder:
 * so the answer stays true until that hands the buffer out again. It comes as one more grant, which
 * says what the others have left running, as to anybody who gets the buffer for writing.
 */

#include <stdio.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/grant.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/reclaim.h"
#include "broker/client/client.h"
#include "broker/client/request.h"
#include "broker/client/wait.h"
#include "broker/config/text.h"

static void wait_leave(struct wait *w)
{
	LIST_REMOVE(w, of_buffer);
}

static int fail_late(const struct wait *w, struct failure *failure)
{
	(void)w;
	return failure_set(failure, SHARE_ETIMEDOUT,
			   "others still had the buffer when the time was over");
}

static const struct wait_kind for_sole_lease = {WIRE_RECLAIM, wait_leave, fail_late};

static bool is_sole(const struct lease *lease)
{
	return lease->count == 1 && lease->buffer->refs == 1;
}

static int answer(struct broker *b, const struct lease *lease, uint32_t serial,
		  struct failure *failure)
{
	struct grant g = {.buffer = lease->buffer, .mode = lease->mode};

	return grant_send(b, lease->client, serial, &g, failure);
}

void reclaim_look(struct broker *b, struct buffer *buffer)
{
	struct lease *lease = LIST_FIRST(&buffer->leases);
	struct wait *w = LIST_FIRST(&buffer->waits);
	struct failure failure;
	uint32_t serial;
	int r;

	/* what waits is the holder's: a wait ends with the lease */
	if (!w || !lease || !is_sole(lease))
		return;
	serial = w->serial;
	wait_free(w);
	r = answer(b, lease, serial, &failure);
	if (r != 0)
		request_reply_error(lease->client, WIRE_RECLAIM, serial, r, failure.text);
}

void reclaim_give_up(struct buffer *buffer, const struct client *client)
{
	struct wait *w, *next;

	for (w = LIST_FIRST(&buffer->waits); w; w = next) {
		next = LIST_NEXT(w, of_buffer);
		if (w->client == client)
			wait_end(w, SHARE_ESTALE, "the buffer was given back meanwhile");
	}
}

static void say_who_has_it(struct request *r, const struct lease *lease)
{
	const struct buffer *buffer = lease->buffer;
	uint32_t handles = lease->count - 1, others = buffer->n_leases - 1,
		 rest = buffer->refs - buffer->n_leases;

	request_fail(r, SHARE_EBUSY,
		     "the buffer has other holders: %u handle%s of this client, %u other "
		     "client%s, %u name%s, token%s and messages",
		     handles, text_plural(handles), others, text_plural(others), rest,
		     text_plural(rest), text_plural(rest));
}

void handle_reclaim(struct request *r)
{
	const struct wire_reclaim *m = &r->m->reclaim;
	struct lease *lease;
	struct wait *w;
	struct failure failure;
	int e;

	if (m->timeout < -1) {
		request_fail(r, SHARE_EINVAL, "unknown time limit %d", m->timeout);
		return;
	}
	lease = request_lease(r, m->buffer);
	if (!lease)
		return;
	if (is_sole(lease)) {
		e = answer(r->broker, lease, r->m->serial, &failure);
	} else if (m->timeout == 0) {
		say_who_has_it(r, lease);
		return;
	} else {
		e = wait_new(r->client, &for_sole_lease, r->m->serial, m->timeout, &w, &failure);
		if (e == 0) {
			w->buffer = lease->buffer;
			LIST_INSERT_HEAD(&lease->buffer->waits, w, of_buffer);
		}
	}
	if (e != 0)
		request_fail_with(r, &failure);
}
