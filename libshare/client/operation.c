/* SPDX-License-Identifier: MIT */

/*
 * Operations: who owns them while they go on, how they are called back once or not at all, and the
 * threads that wait for others in place of an event loop. Knows nothing of what they are about.
 */

#include <stdlib.h>

#include "base/clock.h"
#include "base/system/thread.h"
#include "libshare/client/inside.h"
#include "libshare/client/operation.h"

#define LOOK_MS 50 /* how often a waiting thread looks whether it was canceled */

void operation_unref_locked(share_operation *o)
{
	if (--o->refs > 0)
		return;
	LIST_REMOVE(o, link);
	o->kind->free(o);
}

/* What was going on is over. Without the lock. */
static void finish_operation(share_operation *o)
{
	share_client *c = o->client;

	pthread_mutex_lock(&c->lock);
	o->phase = OVER;
	bell_ring(&c->arrived);
	operation_unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	client_unref(c);
}

void operation_queue_locked(share_operation *o)
{
	o->phase = QUEUED;
	dispatch_queue(o->client, &o->task);
}

/* ------------------------------------------------------------------------------------------- */
/* Waiting                                                                                     */

static bool is_canceled(share_operation *o)
{
	bool canceled;

	pthread_mutex_lock(&o->client->lock);
	canceled = o->canceled;
	pthread_mutex_unlock(&o->client->lock);
	return canceled;
}

/* 1 when it was canceled. */
static int wait_until_over(share_operation *o)
{
	for (;;) {
		int left = deadline_left(o->deadline);
		bool last = left >= 0 && left <= LOOK_MS;
		int r = o->kind->wait(o, last ? left : LOOK_MS);

		if (r != 1)
			return r;
		if (last)
			return SHARE_ETIMEDOUT;
		if (is_canceled(o))
			return 1;
	}
}

static void *work(void *data)
{
	HAZARDS;
	share_operation *o = data;
	share_client *c = o->client;
	int r = wait_until_over(o);
	bool canceled;

	pthread_mutex_lock(&c->lock);
	o->waited = true;
	o->result = r;
	canceled = o->canceled;
	if (!canceled)
		operation_queue_locked(o);
	pthread_mutex_unlock(&c->lock);
	if (canceled) {
		o->kind->drop(o);
		finish_operation(o);
	}
	return NULL;
}

int operation_block(share_operation *o)
{
	share_client *c = o->client;
	enum phase before;
	int r;

	pthread_mutex_lock(&c->lock);
	before = o->phase;
	o->phase = BLOCKED;
	pthread_mutex_unlock(&c->lock);
	r = thread_start_detached(work, o);
	if (r == 0)
		return 1;
	pthread_mutex_lock(&c->lock);
	o->phase = before;
	pthread_mutex_unlock(&c->lock);
	return fail_system(r, "starting a thread to wait for others");
}

/* ------------------------------------------------------------------------------------------- */
/* Dispatch                                                                                    */

static void run(share_client *c, struct task *t)
{
	share_operation *o =
	    (share_operation *)(void *)((char *)t - offsetof(share_operation, task));
	bool canceled;
	int r;

	/* from here on share_cancel() waits for us, as we use what is the caller's */
	o->phase = RUNNING;
	o->runner = pthread_self();
	pthread_mutex_unlock(&c->lock);
	r = o->waited ? o->result : o->kind->proceed(o);
	pthread_mutex_lock(&c->lock);
	if (r == 1) {
		bell_ring(&c->arrived);
		return;
	}
	canceled = o->canceled;
	pthread_mutex_unlock(&c->lock);
	if (r != 0 || canceled)
		o->kind->drop(o);
	if (!canceled)
		o->kind->call(o, r);
	finish_operation(o);
	pthread_mutex_lock(&c->lock);
}

void operation_init_locked(share_operation *o, const struct operation_kind *kind, share_client *c,
			   bool has_handle)
{
	o->kind = kind;
	o->client = client_ref(c);
	o->refs = has_handle ? 3 : 2;
	o->has_handle = has_handle;
	o->task.run = run; /* and no discard(): the client is freed when no operation is left */
	LIST_INSERT_HEAD(&c->dispatch->operations, o, link);
}

int operation_started_unlocking(share_operation *o, int r, share_operation **out)
{
	share_client *c = o->client;

	if (r != 0)
		o->refs = 1;
	else if (out)
		*out = handle_give(o);
	operation_unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	if (r != 0)
		client_unref(c);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Canceling                                                                                   */

/* Without the lock; the caller gives up one reference. */
static void cancel(share_operation *o)
{
	DETAIL_STAYS;
	share_client *c = o->client;
	bool dequeued = false;

	client_ref(c);
	pthread_mutex_lock(&c->lock);
	o->canceled = true;
	if (o->phase == ASKED && !c->lost && o->kind->recall_unlocking)
		o->kind->recall_unlocking(o);
	if (o->task.queued) {
		dispatch_unqueue(c, &o->task);
		dequeued = true;
	}
	while (o->phase == RUNNING && !pthread_equal(o->runner, pthread_self()))
		bell_wait(&c->arrived, &c->lock, -1);
	pthread_mutex_unlock(&c->lock);
	if (dequeued) {
		o->kind->drop(o);
		finish_operation(o);
	}
	client_unref(c);
}

void share_cancel(share_operation *o)
{
	HAZARDS;
	share_client *c;

	o = operation_take(o);
	if (!o)
		return;
	c = client_ref(o->client);
	cancel(o);
	pthread_mutex_lock(&c->lock);
	operation_unref_locked(o);
	pthread_mutex_unlock(&c->lock);
	client_unref(c);
}

void operations_abandon(share_client *c)
{
	for (;;) {
		share_operation *o;

		pthread_mutex_lock(&c->lock);
		LIST_FOREACH (o, &c->dispatch->operations, link)
			if (!o->has_handle && !o->canceled)
				break;
		if (o)
			o->refs++;
		pthread_mutex_unlock(&c->lock);
		if (!o)
			return;
		cancel(o);
		pthread_mutex_lock(&c->lock);
		operation_unref_locked(o);
		pthread_mutex_unlock(&c->lock);
	}
}
