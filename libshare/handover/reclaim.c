/* SPDX-License-Identifier: MIT */

/*
 * Being the last one who has a buffer. First the messages that are in flight with it have to be
 * back (messages.c). By then whoever wanted to keep the buffer has a lease of its own, so it is the
 * broker's turn, which says when all others have given it up. It answers as if the buffer was
 * granted once more, with what they have left running: like a look-up, and so it is treated like
 * one from there.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/buffer/messages.h"
#include "libshare/buffer/uses.h"
#include "libshare/handover/inside.h"
#include "libshare/program/range.h"

/* From a handle to the buffer, if what is asked of it makes sense. */
static int check(share_buffer **handle, int timeout_ms, void *stream)
{
	int r = buffer_resolve(handle);
	share_buffer *b = *handle;

	if (r != 0)
		return r;
	if (timeout_ms < -1)
		return fail(SHARE_EINVAL, "a time limit is -1, 0, or milliseconds");
	if (atomic_load_explicit(&b->lent, memory_order_acquire))
		return fail(SHARE_EINVAL,
			    "the buffer is on loan: its producer has it as well, "
			    "until the message is acknowledged");
	return stream_check(b->client, b->segment->kind, stream);
}

static void reclaim_message(struct wire_message *m, const share_buffer *b, int timeout_ms)
{
	*m = (struct wire_message){.type = WIRE_RECLAIM};
	m->reclaim.buffer = b->id;
	m->reclaim.timeout = timeout_ms;
}

/* ------------------------------------------------------------------------------------------- */
/* At once, or by waiting                                                                      */

/* One more handle of it, and what it comes after. */
static int ask_for_another(share_buffer *b, int64_t deadline, share_buffer **again,
			   struct fences *users)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	struct wire_message m;
	int r;

	reclaim_message(&m, b, deadline_left(deadline));
	r = rpc(b->client, &m, &reply);
	if (r == 0)
		r = buffer_from_grant_unordered(b->client, &reply.m.grant, again);
	return r != 0 ? r : buffer_hold_users(b->client, &reply.m.grant, users);
}

static int become_last(share_buffer *b, int64_t deadline, share_buffer **again,
		       struct fences *users)
{
	for (;;) {
		int r = messages_wait(b, deadline);

		if (r == 0)
			r = ask_for_another(b, deadline, again, users);
		if (r != 0 || messages_in_flight(b) == 0)
			return r;
		/* it was sent meanwhile, and may be retained by now */
		fences_deinit(users);
		buffer_drop(*again);
		*again = NULL;
	}
}

int share_reclaim(share_buffer *b, int timeout_ms, void *stream)
{
	RANGE("share_reclaim", 0);
	HAZARDS;
	int64_t deadline = deadline_from(timeout_ms);
	share_buffer *again = NULL;
	struct fences users = {.n = 0};
	int r = check(&b, timeout_ms, stream);

	if (r != 0)
		return r;
	/* so that it is there until the end, whatever other threads do with the handle */
	buffer_ref(b);
	r = become_last(b, deadline, &again, &users);
	/* with no time left the broker is asked not to wait */
	if (r == SHARE_ETIMEDOUT || r == SHARE_EBUSY)
		r = timeout_ms == 0 ? SHARE_EBUSY : SHARE_ETIMEDOUT;
	if (r == 0)
		r = uses_hold(b, &users);
	if (r == 0 && !MUTATION(reclaim_without_order))
		r = stream_wait_for_users(b->client, b->mapping, stream, &users,
					  deadline_left(deadline), NULL);
	if (r == 0)
		r = segment_check_memory(b->mapping);
	fences_deinit(&users);
	if (again)
		buffer_drop(again);
	buffer_let_go(b);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Later                                                                                       */

struct reclaim {
	struct lookup l;
	struct message_wait wait;
	bool asked;
	share_status_callback callback;
};
_Static_assert(offsetof(struct reclaim, l.operation) == 0 &&
		   sizeof(struct reclaim) <= OPERATION_ROOM,
	       "it is in an operation's slot");

static struct reclaim *reclaim_of(share_operation *o)
{
	return (struct reclaim *)(void *)((char *)o - offsetof(struct reclaim, l.operation));
}

static void messages_are_back(struct message_wait *w)
{
	struct reclaim *r = (struct reclaim *)(void *)((char *)w - offsetof(struct reclaim, wait));

	operation_queue_locked(&r->l.operation);
}

/* 0 when it goes on by itself: messages come back, or the broker answers. With the client's lock
 * held, which it lets go of while it sends; so the caller has a reference of its own, as the
 * operation may be over by then. */
static int go_on_unlocking(struct reclaim *r)
{
	struct lookup *l = &r->l;
	share_client *c = l->operation.client;
	struct wire_message m, cancel = {.type = WIRE_CANCEL};
	int e;

	l->operation.phase = ASKED;
	r->asked = false;
	if (messages_wait_locked(&r->wait))
		return 0;
	r->asked = true;
	reclaim_message(&m, l->reclaimed, -1);
	e = lookup_ask_unlocking(l, &m);
	if (l->call.done)
		return 0; /* by the loss of the broker, if it could not be sent */
	if (e == 0 && l->operation.canceled) { /* while it was sent: that came too early */
		cancel.cancel.lookup = l->call.serial;
		rpc_send_unlocking(c, &cancel);
	}
	return e;
}

static int try_again(struct reclaim *r)
{
	share_client *c = r->l.operation.client;
	int e = SHARE_ECANCELED;

	pthread_mutex_lock(&c->lock);
	r->l.operation.refs++;
	if (!r->l.operation.canceled)
		e = go_on_unlocking(r);
	operation_unref_locked(&r->l.operation);
	pthread_mutex_unlock(&c->lock);
	return e == 0 ? 1 : e;
}

static int reclaim_proceed(share_operation *o)
{
	struct reclaim *r = reclaim_of(o);

	if (!r->asked)
		return try_again(r);
	if (r->l.granted && messages_in_flight(r->l.reclaimed) > 0) {
		lookup_drop(o);
		return try_again(r);
	}
	return lookup_proceed(o);
}

/* On failure it was dropped before. */
static void reclaim_drop(share_operation *o)
{
	share_buffer *b = reclaim_of(o)->l.reclaimed;

	lookup_drop(o);
	reclaim_of(o)->l.reclaimed = NULL;
	if (b)
		buffer_let_go(b);
}

static void reclaim_call(share_operation *o, int result)
{
	struct reclaim *r = reclaim_of(o);

	reclaim_drop(o);
	if (result != 0)
		fail(result, "%s",
		     result == r->l.call.error && r->l.call.detail[0] ? r->l.call.detail
								      : share_strerror(result));
	r->callback(result, r->l.data);
}

static void reclaim_recall_unlocking(share_operation *o)
{
	struct reclaim *r = reclaim_of(o);

	if (r->wait.waits) {
		messages_stop_locked(&r->wait);
		operation_queue_locked(o);
	} else if (r->asked && !r->l.call.done) {
		lookup_recall_unlocking(o);
	}
}

static void reclaim_free(share_operation *o)
{
	free(reclaim_of(o)->l.copy);
	handle_free(reclaim_of(o));
}

static const struct operation_kind reclaim_kind = {
    .proceed = reclaim_proceed,
    .wait = lookup_wait,
    .call = reclaim_call,
    .drop = reclaim_drop,
    .recall_unlocking = reclaim_recall_unlocking,
    .free = reclaim_free,
};

int share_reclaim_async(share_buffer *b, void *stream, share_status_callback callback, void *data,
			share_operation **out)
{
	HAZARDS;
	struct reclaim *r;
	share_client *c;
	int e = check(&b, -1, stream);

	if (e == 0 && !callback)
		e = fail(SHARE_EINVAL, "the callback is NULL");
	if (e != 0)
		return e;
	c = b->client;
	r = handle_new(HANDLE_OPERATION, OPERATION_ROOM);
	if (!r)
		return fail_system(-ENOMEM, "reclaiming a buffer");
	r->callback = callback;
	r->l.data = data;
	r->l.stream = stream;
	r->l.reclaimed = b;
	r->wait = (struct message_wait){.buffer = b, .over = messages_are_back};
	buffer_ref(b);
	pthread_mutex_lock(&c->lock);
	operation_init_locked(&r->l.operation, &reclaim_kind, c, out != NULL);
	r->l.operation.deadline = -1;
	e = go_on_unlocking(r);
	e = operation_started_unlocking(&r->l.operation, e, out);
	if (e != 0) /* the caller has the buffer still */
		buffer_let_go(b);
	return e;
}
