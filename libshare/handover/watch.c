/* SPDX-License-Identifier: MIT */

/*
 * Watches. Changes are queued when they arrive, whoever reads them, and reported by dispatch. A
 * program that never dispatches keeps a bounded number of them.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libshare/client/dispatch.h"
#include "libshare/client/room.h"
#include "libshare/client/rpc.h"
#include "libshare/handover/handover.h"

#define QUEUED_MAX 4096

struct change {
	struct task task;
	uint64_t watch;
	share_name_event told;
	char name[];
};

struct run {
	LIST_ENTRY(run) link;
	pthread_t thread;
};

struct share_watch {
	struct handle handle;
	LIST_ENTRY(share_watch) link;
	struct call call;
	share_client *client;
	uint64_t id;
	unsigned refs; /* the handle, and a callback that runs; under the lock */
	unsigned queued;
	struct change *spare; /* to say that changes were lost for want of memory */
	bool overflowed;
	LIST_HEAD(, run) runs; /* of its callback, in any thread */
	share_watch_callback callback;
	void *data;
};
HANDLES_OF(share_watch, watch, HANDLE_WATCH);

static share_watch *find(share_client *c, uint64_t id)
{
	share_watch *w;

	LIST_FOREACH (w, &c->watches, link)
		if (w->id == id)
			return w;
	return NULL;
}

/* With the client's lock held. */
static void unref_locked(share_watch *w)
{
	if (--w->refs > 0)
		return;
	free(w->spare);
	handle_free(w);
}

static void run(share_client *c, struct task *t)
{
	struct change *change = (struct change *)(void *)t;
	struct run this = {.thread = pthread_self()};
	share_name_event told = change->told;
	share_watch *w;

	w = find(c, change->watch);
	if (w) {
		w->queued--;
		if (told.change == SHARE_OVERFLOW) {
			w->overflowed = false;
			told.name = "";
			/* for the next time, which may come before the callback has returned */
			free(w->spare);
			w->spare = change;
			change = NULL;
		}
		w->refs++;
		LIST_INSERT_HEAD(&w->runs, &this, link);
		pthread_mutex_unlock(&c->lock);
		w->callback(&told, w->data);
		pthread_mutex_lock(&c->lock);
		LIST_REMOVE(&this, link);
		bell_ring(&c->arrived);
		unref_locked(w);
	}
	free(change);
}

static void discard(share_client *c, struct task *t)
{
	(void)c;
	free((struct change *)(void *)t);
}

static void name_changed(share_client *c, const struct wire_name_event *m)
{
	share_watch *w = find(c, m->watch);
	uint32_t size = m->name.size, kind = m->change;
	struct change *change;

	if (!w || w->overflowed)
		return;
	if (w->queued >= QUEUED_MAX)
		kind = SHARE_OVERFLOW;
	if (kind == SHARE_OVERFLOW)
		size = 0;
	change = calloc(1, sizeof(*change) + size + 1);
	if (!change) {
		change = w->spare;
		w->spare = NULL;
		kind = SHARE_OVERFLOW;
		size = 0;
	}
	if (!change)
		return;
	memcpy(change->name, m->name.data ? m->name.data : "", size);
	change->task.run = run;
	change->task.discard = discard;
	change->watch = w->id;
	change->told = (share_name_event){.change = kind,
					  .name = change->name,
					  .version = kind == SHARE_OVERFLOW ? 0 : m->version,
					  .buffer = kind == SHARE_OVERFLOW ? 0 : m->buffer};
	w->overflowed = kind == SHARE_OVERFLOW;
	w->queued++;
	dispatch_queue(c, &change->task);
}

static int hear(share_client *c, const struct wire_message *m, struct fd_list *fds)
{
	(void)fds;
	if (m->type != WIRE_NAME_EVENT)
		return 0;
	name_changed(c, &m->name_event);
	return 1;
}

const struct client_room handover_room = {.hear = hear};

/* Entered as the answer is delivered, so that no change can come before. */
static void watch_answered(share_client *c, struct call *call, const struct wire_message *m,
			   int error)
{
	share_watch *w = (share_watch *)(void *)((char *)call - offsetof(share_watch, call));

	if (error)
		return;
	w->id = m->watching.watch;
	LIST_INSERT_HEAD(&c->watches, w, link);
}

int share_watch_names(share_client *c, const char *prefix, share_watch_callback callback,
		      void *data, share_watch **out)
{
	HAZARDS;
	struct wire_message m = {.type = WIRE_WATCH};
	share_watch *w;
	int r = client_resolve(&c);

	if (r == 0 && (!callback || !out))
		r = fail(SHARE_EINVAL, "callback or out is NULL");
	if (r != 0)
		return r;
	if (!prefix)
		prefix = "";
	if (strnlen(prefix, SHARE_NAME_MAX + 1) > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL, "a prefix has at most %d bytes", SHARE_NAME_MAX);
	w = handle_new(HANDLE_WATCH, sizeof(*w));
	if (w)
		w->spare = calloc(1, sizeof(*w->spare) + 1);
	if (!w || !w->spare) {
		handle_free(w);
		return fail_system(-ENOMEM, "watching names");
	}
	w->refs = 1;
	LIST_INIT(&w->runs);
	w->client = client_ref(c);
	w->callback = callback;
	w->data = data;
	w->call.answered = watch_answered;
	m.watch.prefix = wire_text(prefix);
	pthread_mutex_lock(&c->lock);
	r = rpc_start_unlocking(c, &m, &w->call);
	if (r == 0)
		r = rpc_wait_until_unlocking(c, &w->call, -1);
	if (r != 0 && w->call.done && !w->call.error) /* answered before it was all sent */
		LIST_REMOVE(w, link);
	pthread_mutex_unlock(&c->lock);
	if (r != 0) {
		client_unref(c);
		free(w->spare);
		handle_free(w);
		return r;
	}
	*out = handle_give(w);
	return 0;
}

static bool runs_elsewhere(const share_watch *w)
{
	const struct run *r;

	LIST_FOREACH (r, &w->runs, link)
		if (!pthread_equal(r->thread, pthread_self()))
			return true;
	return false;
}

void share_unwatch(share_watch *w)
{
	HAZARDS;
	DETAIL_STAYS;
	struct wire_message m = {.type = WIRE_UNWATCH};
	share_client *c;

	w = watch_take(w);
	if (!w)
		return;
	c = w->client;
	m.unwatch.watch = w->id;
	pthread_mutex_lock(&c->lock);
	LIST_REMOVE(w, link);
	while (runs_elsewhere(w))
		bell_wait(&c->arrived, &c->lock, -1);
	unref_locked(w);
	pthread_mutex_unlock(&c->lock);
	rpc(c, &m, NULL);
	client_unref(c);
}
