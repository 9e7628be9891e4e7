/* SPDX-License-Identifier: MIT */

/*
 * Asynchronous look-ups. The answer may be read by any thread; it is queued, and turned into a
 * buffer by dispatch. Where the calling thread would have to wait for the giver's work, or for that
 * of those who use the buffer still, a thread does, and queues it again.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "libshare/buffer/uses.h"
#include "libshare/handover/inside.h"

_Static_assert(offsetof(struct lookup, operation) == 0 && sizeof(struct lookup) <= OPERATION_ROOM,
	       "it is in an operation's slot");

static struct lookup *lookup_of(share_operation *o)
{
	return (struct lookup *)(void *)((char *)o - offsetof(struct lookup, operation));
}

static void lookup_free(share_operation *o)
{
	struct lookup *l = lookup_of(o);

	free(l->copy);
	handle_free(l);
}

/* Not from a delivery. */
void lookup_drop(share_operation *o)
{
	DETAIL_STAYS;
	struct lookup *l = lookup_of(o);

	if (l->granted)
		buffer_send_release(o->client, l->grant.buffer, 1, &(share_fence){0, 0});
	l->granted = false;
	fences_deinit(&l->users);
	if (l->buffer)
		buffer_drop(l->buffer);
	l->buffer = NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* From a grant to a buffer                                                                    */

int giver_wait(share_client *c, const struct held_fence *giver, int timeout_ms)
{
	enum timeline_state state = fence_block(c, giver, timeout_ms);

	if (state == TIMELINE_PENDING)
		return 1;
	return state == TIMELINE_DEAD ? SHARE_EOWNERDEAD : 0;
}

int lookup_wait(share_operation *o, int timeout_ms)
{
	struct lookup *l = lookup_of(o);
	share_client *c = o->client;
	int64_t deadline = deadline_from(timeout_ms);
	int r = giver_wait(c, &l->buffer->giver, timeout_ms);

	l->buffer->ordered = SHARE_ORDERED_BY_HOST;
	if (r != 0)
		return r;
	for (; l->users.n > 0; l->users.n--) {
		struct held_fence *last = &l->users.all[l->users.n - 1];

		if (fence_block(c, last, deadline_left(deadline)) == TIMELINE_PENDING)
			return 1;
		fence_drop(last);
	}
	/* an agent may have died meanwhile */
	return segment_check_memory(l->buffer->mapping);
}

static bool is_pending(share_client *c, const struct lookup *l)
{
	bool pending = fence_state(c, &l->buffer->giver) == TIMELINE_PENDING;

	for (size_t i = 0; !pending && i < l->users.n; i++)
		pending = fence_state(c, &l->users.all[i]) == TIMELINE_PENDING;
	return pending;
}

static int order_on_stream(struct lookup *l)
{
	share_buffer *b = l->buffer;
	struct ordering giver = {.fences = &b->giver, .n = 1, .may_not_block = true};
	struct ordering users = {
	    .fences = l->users.all, .n = l->users.n, .dead_is_done = true, .may_not_block = true};
	share_client *c = l->operation.client;
	int r = stream_wait(c, b->mapping, l->stream, &giver);

	if (r == 0 && users.n > 0)
		r = stream_wait(c, b->mapping, l->stream, &users);
	b->ordered = giver.how > users.how ? giver.how : users.how;
	return r;
}

static int order(struct lookup *l)
{
	share_client *c = l->operation.client;
	share_buffer *b = l->buffer;
	int r = stream_check(c, b->segment->kind, l->stream);

	if (r == 0)
		r = buffer_hold_giver(c, &l->grant, b);
	if (r == 0)
		r = buffer_hold_users(c, &l->grant, &l->users);
	if (r == 0 && l->reclaimed)
		r = uses_hold(l->reclaimed, &l->users);
	if (r != 0 || !is_pending(c, l) || (l->reclaimed && MUTATION(reclaim_without_order)))
		return r;
	if (!stream_blocks(c, b->mapping, l->stream))
		r = order_on_stream(l);
	else
		r = SHARE_EAGAIN;
	/* also when somebody else was given the place that was left */
	return r == SHARE_EAGAIN ? operation_block(&l->operation) : r;
}

int lookup_proceed(share_operation *o)
{
	struct lookup *l = lookup_of(o);
	int r = l->error;

	if (l->granted) {
		l->granted = false;
		r = buffer_from_grant_unordered(o->client, &l->grant, &l->buffer);
		if (r == 0)
			r = order(l);
		if (r == 0)
			r = segment_check_memory(l->buffer->mapping);
	}
	return r;
}

static void lookup_call(share_operation *o, int result)
{
	struct lookup *l = lookup_of(o);
	share_buffer *b = l->buffer;

	fences_deinit(&l->users);
	l->buffer = NULL;
	if (result != 0) /* as if the look-up had been made here */
		fail(result, "%s",
		     result == l->call.error ? l->call.detail : share_strerror(result));
	l->callback(result == 0 ? handle_give(b) : NULL, result, l->data);
}

/* ------------------------------------------------------------------------------------------- */
/* Asking                                                                                      */

static int copy_grant(struct lookup *l, const struct wire_grant *m)
{
	size_t size = m->fences.size + m->tensor.size;
	unsigned char *copy = NULL;

	if (size) {
		copy = malloc(size);
		if (!copy)
			return -ENOMEM;
	}
	free(l->copy); /* of an answer before, after which it was asked once more */
	l->copy = copy;
	l->grant = *m;
	if (m->fences.size)
		l->grant.fences.data = memcpy(copy, m->fences.data, m->fences.size);
	if (m->tensor.size)
		l->grant.tensor.data =
		    memcpy(copy + m->fences.size, m->tensor.data, m->tensor.size);
	l->grant.pages = l->grant.recipe = (struct wire_bytes){NULL, 0};
	return 0;
}

static void lookup_answered(share_client *c, struct call *call, const struct wire_message *m,
			    int error)
{
	struct lookup *l = (struct lookup *)(void *)((char *)call - offsetof(struct lookup, call));
	struct wire_message release = {.type = WIRE_RELEASE};

	l->error = error;
	if (m && !l->operation.canceled && copy_grant(l, &m->grant) == 0)
		l->granted = true;
	if (m && !l->granted) {
		release.release.buffer = m->grant.buffer;
		release.release.count = 1;
		rpc_send_later(c, &release);
		l->error = SHARE_ENOMEM;
	}
	/* a canceled one has nobody to tell; freed later, as this is called on its `call` */
	operation_queue_locked(&l->operation);
}

/* Its answer comes all the same, and is waited for here: then nothing is left. */
void lookup_recall_unlocking(share_operation *o)
{
	struct lookup *l = lookup_of(o);
	struct wire_message m = {.type = WIRE_CANCEL, .cancel = {.lookup = l->call.serial}};

	if (rpc_send_unlocking(o->client, &m) == 0)
		rpc_wait_until_unlocking(o->client, &l->call, -1);
}

static const struct operation_kind lookup_kind = {
    .proceed = lookup_proceed,
    .wait = lookup_wait,
    .call = lookup_call,
    .drop = lookup_drop,
    .recall_unlocking = lookup_recall_unlocking,
    .free = lookup_free,
};

int lookup_ask_unlocking(struct lookup *l, struct wire_message *m)
{
	l->call.answered = lookup_answered;
	l->operation.phase = ASKED;
	return rpc_start_unlocking(l->operation.client, m, &l->call);
}

int share_lookup_async(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		       share_lookup_callback callback, void *data, share_operation **out)
{
	HAZARDS;
	struct wire_message m;
	struct lookup *l;
	int r;

	if (!callback)
		return fail(SHARE_EINVAL, "the callback is NULL");
	r = lookup_check(&c, name, mode, timeout_ms, stream);
	if (r != 0)
		return r;
	l = handle_new(HANDLE_OPERATION, OPERATION_ROOM);
	if (!l)
		return fail_system(-ENOMEM, "looking up a name");
	l->callback = callback;
	l->data = data;
	l->stream = stream;
	lookup_message(&m, name, mode, timeout_ms);
	pthread_mutex_lock(&c->lock);
	operation_init_locked(&l->operation, &lookup_kind, c, out != NULL);
	l->operation.deadline = deadline_from(timeout_ms);
	r = lookup_ask_unlocking(l, &m);
	if (r != 0 && l->call.done)
		r = 0; /* lost while sending, and answered so: the callback will tell */
	return operation_started_unlocking(&l->operation, r, out);
}
