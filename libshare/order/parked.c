/* SPDX-License-Identifier: MIT */

/*
 * The budget of parked streams: of the process, as the hardware's is, and so the one table that is
 * not a client's. A stream is parked as long as one of the fences it was made to wait for is
 * neither reached nor poisoned, which a load each tells; nobody has to report that a wait is over.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutation.h"
#include "libshare/order/inside.h"
#include "libshare/order/parked.h"
#include "libshare/program/copies.h"

struct wait {
	share_client *client; /* NULL: it has ended, and its pages stay */
	struct held_fence fence;
	bool enqueued; /* not yet: others must not rely on it */
};

struct parked {
	int ordinal;
	uint64_t stream;
	struct wait *waits;
	size_t n, room;
};

#define STREAMS_MAX 32 /* more connections than that CUDA does not have */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct parked table[STREAMS_MAX]; /* those that are not used keep their memory */
static size_t n_parked;
/* In whose pages people can see these; NULL: in none, as from n_shown on. */
static share_client *shown_by[TIMELINE_PARKED_MAX];
static size_t n_shown;

/* A forked child has none of its parent's streams, and none of the pages that they wait on. */
static void forget_parked(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	n_parked = 0;
	memset(shown_by, 0, sizeof(shown_by));
	n_shown = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	/* without memory for that there is no program either */
	pthread_atfork(NULL, NULL, forget_parked);
}

static bool is_pending(const struct held_fence *f)
{
	return timeline_query(f->page, f->slot, f->value) == TIMELINE_PENDING;
}

static void drop(struct parked *p, struct wait *w)
{
	if (w->client)
		fence_drop(&w->fence);
	*w = p->waits[--p->n];
}

/* Drops what is over; true when nothing is left. */
static bool prune_stream(struct parked *p)
{
	for (size_t i = 0; i < p->n;) {
		if (is_pending(&p->waits[i].fence)) {
			i++;
			continue;
		}
		drop(p, &p->waits[i]);
	}
	return p->n == 0;
}

static void prune(void)
{
	for (size_t i = 0; i < n_parked;) {
		struct parked over = table[i];

		if (!prune_stream(&table[i])) {
			i++;
			continue;
		}
		over.n = 0;
		table[i] = table[--n_parked];
		table[n_parked] = over;
	}
}

/* One that is waited for says enough: when it is over and others are not, the stream is not shown
 * as parked until it is looked at again. */
static const struct wait *one_of(size_t i)
{
	if (i >= n_parked)
		return NULL;
	for (size_t k = 0; k < table[i].n; k++) {
		const struct wait *w = &table[i].waits[k];

		if (w->client && w->enqueued && w->fence.peer)
			return w;
	}
	return NULL;
}

static void show_as(struct timeline_slot *at, uint64_t timeline, uint64_t value)
{
	atomic_store_explicit(&at->parked_until, value, memory_order_relaxed);
	atomic_store_explicit(&at->parked_for, timeline, memory_order_release);
}

/* For people, in the pages of those who let the streams wait. */
static void show(void)
{
	size_t n = n_parked < TIMELINE_PARKED_MAX ? n_parked : TIMELINE_PARKED_MAX;

	for (size_t i = 0; i < n || i < n_shown; i++) {
		const struct wait *w = one_of(i);
		share_client *c = w ? w->client : NULL;

		if (shown_by[i] && shown_by[i] != c)
			show_as(&shown_by[i]->page->slots[i], 0, 0);
		if (c)
			show_as(&c->page->slots[i], WIRE_TIMELINE(w->fence.peer->id, w->fence.slot),
				w->fence.value);
		shown_by[i] = c;
	}
	n_shown = n;
}

static struct parked *find(int ordinal, uint64_t stream)
{
	for (size_t i = 0; i < n_parked; i++)
		if (table[i].ordinal == ordinal && table[i].stream == stream)
			return &table[i];
	return NULL;
}

static unsigned count(int ordinal)
{
	unsigned n = 0;

	for (size_t i = 0; i < n_parked; i++)
		n += ordinal < 0 || table[i].ordinal == ordinal;
	return n;
}

/* None at all where there is one connection: whoever waits on it stops everybody; or where another
 * copy of the library counts those that are parked. */
static bool has_room(int ordinal)
{
	return n_parked < STREAMS_MAX && copies_is_first() &&
	       (count(ordinal) < memory_stream_connections() / 2 || MUTATION(no_budget));
}

static struct wait *find_wait(struct parked *p, const struct held_fence *f, bool enqueued)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->waits[i].fence.page == f->page && p->waits[i].fence.slot == f->slot &&
		    p->waits[i].enqueued == enqueued &&
		    (enqueued || p->waits[i].fence.value == f->value))
			return &p->waits[i];
	return NULL;
}

static bool covers(const struct wait *w, const struct held_fence *f)
{
	return (int64_t)(w->fence.value - f->value) >= 0;
}

/* One wait for a timeline is enough: the highest. */
static void note_enqueued(struct parked *p, const struct held_fence *f, bool done)
{
	struct wait *w = find_wait(p, f, false), *before = find_wait(p, f, true);

	if (!w) /* it is reached already */
		return;
	if (done && !before) {
		w->enqueued = true;
		return;
	}
	if (done && !covers(before, f))
		before->fence.value = f->value;
	drop(p, w);
}

static bool add(struct parked *p, share_client *c, const struct held_fence *fences, size_t n)
{
	if (p->n + n > p->room) {
		size_t room = p->n + n + p->room;
		struct wait *grown = realloc(p->waits, room * sizeof(*grown));

		if (!grown)
			return false;
		p->waits = grown;
		p->room = room;
	}
	for (size_t i = 0; i < n; i++)
		p->waits[p->n++] = (struct wait){c, fence_hold_again(&fences[i]), false};
	return true;
}

bool parked_enter(share_client *c, int ordinal, uint64_t stream, const struct held_fence *fences,
		  size_t n)
{
	struct parked *p;
	bool entered = false;

	pthread_mutex_lock(&lock);
	prune();
	p = find(ordinal, stream);
	if (p) {
		entered = add(p, c, fences, n);
	} else if (has_room(ordinal)) {
		p = &table[n_parked];
		p->ordinal = ordinal;
		p->stream = stream;
		p->n = 0;
		entered = add(p, c, fences, n);
		n_parked += entered;
	}
	pthread_mutex_unlock(&lock);
	return entered;
}

void parked_enqueued(int ordinal, uint64_t stream, const struct held_fence *fences, size_t n,
		     bool done)
{
	struct parked *p;

	pthread_mutex_lock(&lock);
	p = find(ordinal, stream);
	for (size_t i = 0; p && i < n; i++)
		note_enqueued(p, &fences[i], done);
	prune();
	show();
	pthread_mutex_unlock(&lock);
}

bool parked_waits_for(int ordinal, uint64_t stream, const struct held_fence *f)
{
	struct wait *w;
	struct parked *p;

	pthread_mutex_lock(&lock);
	p = find(ordinal, stream);
	w = p ? find_wait(p, f, true) : NULL;
	pthread_mutex_unlock(&lock);
	return w && covers(w, f);
}

bool parked_has_room(int ordinal, uint64_t stream)
{
	bool room;

	pthread_mutex_lock(&lock);
	prune();
	room = find(ordinal, stream) || has_room(ordinal);
	pthread_mutex_unlock(&lock);
	return room;
}

unsigned parked_count(int ordinal)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	prune();
	n = count(ordinal);
	pthread_mutex_unlock(&lock);
	return n;
}

bool parked_forget(share_client *c)
{
	bool pending = false;

	pthread_mutex_lock(&lock);
	prune();
	for (size_t i = 0; i < n_parked; i++)
		for (size_t k = 0; k < table[i].n; k++)
			if (table[i].waits[k].client == c) {
				table[i].waits[k].client = NULL;
				pending = true;
			}
	show();
	pthread_mutex_unlock(&lock);
	return pending;
}
