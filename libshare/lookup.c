/* SPDX-License-Identifier: MIT */

/*
 * Asynchronous look-ups. The answer may be read by any thread; it is queued, and turned into a
 * buffer by dispatch. Where the calling thread would have to wait for the giver's work, a thread
 * does, and queues it again.
 *
 *   ASKED    the request is under way
 *   QUEUED   an event is in the client's queue
 *   BLOCKED  a thread waits for the giver's fence
 *   RUNNING  dispatch makes a buffer of the answer, and runs the callback
 *   OVER     nothing more will happen
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/error.h"
#include "libshare/host_stream.h"
#include "libshare/lookup.h"

#define LOOK_MS 50 /* how often a waiting thread looks whether it was canceled */

enum phase { ASKED, QUEUED, BLOCKED, RUNNING, OVER };

struct share_operation {
	LIST_ENTRY(share_operation) link;
	struct call call;
	struct event event;
	share_client *client;
	enum phase phase; /* this and the next three under the lock */
	unsigned refs;    /* the handle, and whatever the phase says is going on */
	bool canceled;
	bool has_handle;
	pthread_t runner;
	share_lookup_callback callback;
	void *data;
	void *stream;
	int64_t deadline;

	struct wire_grant grant; /* fences are a copy; size 0 when there are none */
	bool granted;            /* and not yet turned into a buffer */
	share_buffer *buffer;
	struct held_fence fence; /* that a thread waits for */
	int error;
};

static void unref_locked(share_operation *o)
{
	if (--o->refs > 0)
		return;
	LIST_REMOVE(o, link);
	free((void *)(uintptr_t)o->grant.fences.data);
	free(o);
}

/* Gives back what it got. Not from a delivery, and without the lock. */
static void drop_result(share_operation *o)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	if (o->granted) {
		m.release.buffer = o->grant.buffer;
		m.release.count = 1;
		rpc_send(o->client, &m);
		o->granted = false;
	}
	if (o->buffer)
		share_release(o->buffer, NULL);
	o->buffer = NULL;
}

/* What was going on is over. Without the lock. */
static void finish(share_operation *o)
{
	share_client *c = o->client;

	pthread_mutex_lock(&c->lock);
	o->phase = OVER;
	pthread_cond_broadcast(&c->arrived);
	unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	client_unref(c);
}

static void queue_locked(share_operation *o)
{
	o->phase = QUEUED;
	client_queue_event(o->client, &o->event);
}

static void *wait_for_giver(void *data)
{
	share_operation *o = data;
	share_client *c = o->client;
	enum timeline_state state;
	bool canceled;

	do {
		int left = deadline_left(o->deadline);
		bool last = left >= 0 && left <= LOOK_MS;

		state = fence_block(c, &o->fence, last ? left : LOOK_MS);
		if (state == TIMELINE_PENDING && last)
			o->error = SHARE_ETIMEDOUT;
		pthread_mutex_lock(&c->lock);
		canceled = o->canceled;
		pthread_mutex_unlock(&c->lock);
	} while (state == TIMELINE_PENDING && !canceled && !o->error);
	fence_drop(c, &o->fence);
	if (state == TIMELINE_DEAD)
		o->error = SHARE_EOWNERDEAD;
	pthread_mutex_lock(&c->lock);
	canceled = o->canceled;
	if (!canceled)
		queue_locked(o);
	pthread_mutex_unlock(&c->lock);
	if (canceled) {
		drop_result(o);
		finish(o);
	}
	return NULL;
}

/* 1 when a thread has taken over, else 0 or an error. */
static int block_in_thread(share_operation *o, const struct held_fence *f)
{
	pthread_attr_t detached;
	pthread_t thread;
	int r;

	o->fence = fence_hold_again(o->client, f);
	pthread_mutex_lock(&o->client->lock);
	o->phase = BLOCKED;
	pthread_mutex_unlock(&o->client->lock);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	r = client_start_thread(&thread, &detached, wait_for_giver, o);
	pthread_attr_destroy(&detached);
	if (r == 0)
		return 1;
	fence_drop(o->client, &o->fence);
	pthread_mutex_lock(&o->client->lock);
	o->phase = RUNNING;
	pthread_mutex_unlock(&o->client->lock);
	return fail_system(-r, "starting a thread to wait for the giver");
}

/* The fences of a hand-over are one at most. */
static int order(share_operation *o)
{
	share_client *c = o->client; /* once a thread has taken over, @o may be gone */
	share_buffer *b = o->buffer;
	struct wire_fence w;
	enum timeline_state state;
	struct held_fence f;
	int r;

	if (o->grant.fences.size < sizeof(w))
		return 0;
	memcpy(&w, o->grant.fences.data, sizeof(w));
	r = fence_hold(c, w.timeline, w.value, &f);
	if (r != 0)
		return r;
	b->giver = fence_hold_again(c, &f);
	state = fence_state(c, &f);
	if (state == TIMELINE_DEAD)
		r = SHARE_EOWNERDEAD;
	else if (state == TIMELINE_PENDING)
		r = o->stream ? stream_wait(c, o->stream, &f, -1) : block_in_thread(o, &f);
	fence_drop(c, &f);
	return r;
}

/* Without the lock. 1 when a thread has taken over, else the result, which `buffer` goes with. */
static int receive(share_operation *o)
{
	int r = o->error;

	if (o->granted) {
		o->granted = false;
		r = buffer_from_grant_unordered(o->client, &o->grant, &o->buffer);
		if (r == 0)
			r = order(o);
	}
	return r;
}

static void run(share_client *c, struct event *e)
{
	share_operation *o =
	    (share_operation *)(void *)((char *)e - offsetof(share_operation, event));
	share_buffer *b;
	bool canceled;
	int r;

	/* from here on share_cancel() waits for us, as we use its stream */
	o->phase = RUNNING;
	o->runner = pthread_self();
	pthread_mutex_unlock(&c->lock);
	r = receive(o);
	pthread_mutex_lock(&c->lock);
	if (r == 1) {
		pthread_cond_broadcast(&c->arrived);
		return;
	}
	canceled = o->canceled;
	pthread_mutex_unlock(&c->lock);
	if (r != 0 || canceled)
		drop_result(o);
	b = o->buffer;
	o->buffer = NULL;
	if (r != 0) /* as if the look-up had been made here */
		fail(r, "%s", r == o->call.error ? o->call.detail : share_strerror(r));
	if (!canceled)
		o->callback(b, r, o->data);
	finish(o);
	pthread_mutex_lock(&c->lock);
}

/* The client is freed only when no operation is left. */
static void discard(share_client *c, struct event *e)
{
	(void)c, (void)e;
}

static int copy_grant(share_operation *o, const struct wire_grant *m)
{
	void *fences = NULL;

	if (m->fences.size) {
		fences = malloc(m->fences.size);
		if (!fences)
			return -ENOMEM;
		memcpy(fences, m->fences.data, m->fences.size);
	}
	o->grant = *m;
	o->grant.fences.data = fences;
	o->grant.pages = (struct wire_bytes){NULL, 0};
	return 0;
}

static void answered(share_client *c, struct call *call, const struct wire_message *m, int error)
{
	share_operation *o =
	    (share_operation *)(void *)((char *)call - offsetof(share_operation, call));
	struct wire_message release = {.type = WIRE_RELEASE};

	o->error = error;
	if (m && !o->canceled && copy_grant(o, &m->grant) == 0)
		o->granted = true;
	if (m && !o->granted) {
		release.release.buffer = m->grant.buffer;
		release.release.count = 1;
		rpc_send_later_locked(c, &release);
		o->error = SHARE_ENOMEM;
	}
	/* a canceled one has nobody to tell; freed later, as this is called on its `call` */
	queue_locked(o);
}

int share_lookup_async(share_client *c, const char *name, int mode, int timeout_ms, void *stream,
		       share_lookup_callback callback, void *data, share_operation **out)
{
	share_operation *o;
	struct wire_message m;
	int r;

	if (!callback)
		return fail(SHARE_EINVAL, "the callback is NULL");
	r = lookup_check(c, name, mode, timeout_ms, stream);
	if (r != 0)
		return r;
	o = calloc(1, sizeof(*o));
	if (!o)
		return fail_system(-ENOMEM, "looking up a name");
	o->client = client_ref(c);
	o->phase = ASKED;
	o->refs = out ? 3 : 2; /* one of them this function's */
	o->has_handle = out;
	o->callback = callback;
	o->data = data;
	o->stream = stream;
	o->deadline = deadline_from(timeout_ms);
	o->event.run = run;
	o->event.discard = discard;
	o->call.expected = WIRE_GRANT;
	o->call.answered = answered;
	lookup_message(&m, name, mode, timeout_ms);
	pthread_mutex_lock(&c->lock);
	LIST_INSERT_HEAD(&c->operations, o, link);
	r = rpc_start_locked(c, &m, &o->call);
	if (r != 0 && o->call.done)
		r = 0; /* lost while sending, and answered so: the callback will tell */
	if (r != 0)
		o->refs = 1;
	else if (out)
		*out = o;
	unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	if (r != 0)
		client_unref(c);
	return r;
}

/* Without the lock; the caller gives up one reference. */
static void cancel(share_operation *o)
{
	struct wire_message m = {.type = WIRE_CANCEL};
	share_client *c = o->client;
	bool dequeued = false;

	client_ref(c);
	pthread_mutex_lock(&c->lock);
	o->canceled = true;
	if (o->phase == ASKED && !c->lost) {
		/* its answer comes all the same, and is waited for here: then nothing is left */
		m.cancel.lookup = o->call.serial;
		if (rpc_send_locked(c, &m) == 0)
			rpc_wait_locked(c, &o->call);
	}
	if (o->event.queued) {
		client_unqueue_event(c, &o->event);
		dequeued = true;
	}
	while (o->phase == RUNNING && !pthread_equal(o->runner, pthread_self()))
		pthread_cond_wait(&c->arrived, &c->lock);
	pthread_mutex_unlock(&c->lock);
	if (dequeued) {
		drop_result(o);
		finish(o);
	}
	client_unref(c);
}

void share_cancel(share_operation *o)
{
	share_client *c;

	if (!o || client_is_forked(o->client))
		return;
	c = client_ref(o->client);
	cancel(o);
	pthread_mutex_lock(&c->lock);
	unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	client_unref(c);
}

void operations_abandon(share_client *c)
{
	for (;;) {
		share_operation *o;

		pthread_mutex_lock(&c->lock);
		LIST_FOREACH (o, &c->operations, link)
			if (!o->has_handle && !o->canceled)
				break;
		if (o)
			o->refs++;
		pthread_mutex_unlock(&c->lock);
		if (!o)
			return;
		cancel(o);
		pthread_mutex_lock(&c->lock);
		unref_locked(o);
		pthread_mutex_unlock(&c->lock);
	}
}
