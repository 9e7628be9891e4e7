/* SPDX-License-Identifier: MIT */

/* The status of a buffer, told when it is known for good. */

#include <errno.h>
#include <stdlib.h>

#include "libshare/handover/inside.h"

struct buffer_watch {
	share_operation operation;
	struct held_fence giver; /* so that the buffer may be released meanwhile */
	/* and so may be what memory it is of, where that can be gone though the giver is done */
	struct segment *segment; /* NULL: it cannot */
	const struct memory_mapping *mapping;
	share_status_callback callback;
	void *data;
};
_Static_assert(offsetof(struct buffer_watch, operation) == 0 &&
		   sizeof(struct buffer_watch) <= OPERATION_ROOM,
	       "it is in an operation's slot");

static struct buffer_watch *buffer_watch_of(share_operation *o)
{
	return (struct buffer_watch *)(void *)((char *)o -
					       offsetof(struct buffer_watch, operation));
}

static int watch_wait(share_operation *o, int timeout_ms)
{
	return giver_wait(o->client, &buffer_watch_of(o)->giver, timeout_ms);
}

/* It was known from the beginning. */
static int watch_proceed(share_operation *o)
{
	return watch_wait(o, 0);
}

static void watch_drop(share_operation *o)
{
	fence_drop(&buffer_watch_of(o)->giver);
	segment_put(o->client, buffer_watch_of(o)->segment);
}

static void watch_call(share_operation *o, int result)
{
	struct buffer_watch *w = buffer_watch_of(o);

	if (result == 0 && w->segment && memory_is_lost(w->mapping))
		result = SHARE_EOWNERDEAD;
	watch_drop(o);
	w->callback(result, w->data);
}

static void watch_free(share_operation *o)
{
	handle_free(buffer_watch_of(o));
}

static const struct operation_kind status_kind = {
    .proceed = watch_proceed,
    .wait = watch_wait,
    .call = watch_call,
    .drop = watch_drop,
    .free = watch_free,
};

/* 0, or an error: then nothing goes on. */
static int start(share_client *c, struct buffer_watch *w, bool has_handle)
{
	bool known = fence_state(c, &w->giver) != TIMELINE_PENDING;
	int r = 1;

	pthread_mutex_lock(&c->lock);
	operation_init_locked(&w->operation, &status_kind, c, has_handle);
	w->operation.deadline = -1;
	w->operation.phase = BLOCKED;
	if (known)
		operation_queue_locked(&w->operation);
	pthread_mutex_unlock(&c->lock);
	if (!known)
		r = operation_block(&w->operation);
	return r == 1 ? 0 : r;
}

int share_buffer_watch(share_buffer *b, share_status_callback callback, void *data,
		       share_operation **out)
{
	HAZARDS;
	struct buffer_watch *w;
	share_client *c;
	int r = buffer_resolve(&b);

	if (r == 0 && !callback)
		r = fail(SHARE_EINVAL, "the callback is NULL");
	if (r != 0)
		return r;
	c = b->client;
	w = handle_new(HANDLE_OPERATION, OPERATION_ROOM);
	if (!w)
		return fail_system(-ENOMEM, "watching a buffer");
	w->giver = fence_hold_again(&b->giver);
	w->mapping = b->mapping;
	w->segment = b->segment->kind->of_maker ? segment_ref(c, b->segment) : NULL;
	w->callback = callback;
	w->data = data;
	r = start(c, w, out != NULL);
	if (r != 0)
		watch_drop(&w->operation);
	pthread_mutex_lock(&c->lock);
	return operation_started_unlocking(&w->operation, r, out);
}
