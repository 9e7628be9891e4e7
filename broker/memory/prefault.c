/* SPDX-License-Identifier: MIT */

/*
 * The thread takes one segment after the other, in the order in which they came, in pieces of 2
 * MiB. It holds the lock while it maps a piece, and not while the kernel makes its pages. So
 * whoever stops it waits for one system call that maps something; and as the descriptor is the
 * segment's own, the thread does not touch it after that. A piece whose pages were being made
 * meanwhile is given back by the thread.
 *
 * Pages are charged to the cgroup of whoever makes them, and where a cgroup has no memory left the
 * kernel kills a process of it, which could be the broker. So the thread looks how much there is
 * before it takes more, and stops while there is still enough for everything else.
 *
 * The kernel holds the lock of this process's mappings while it makes a page, or a piece of huge
 * ones. So the loop may wait for that long when it maps something.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <event2/event.h>

#include "base/size.h"
#include "base/system/thread.h"
#include "broker/broker.h"
#include "broker/config/machine.h"
#include "broker/log/log.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/prefault.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "memory/host_pages.h"

#define SOON_MS    20
#define LOOK_BYTES (UINT64_C(16) << 20) /* how much the thread makes before it looks again */

struct filling {
	TAILQ_ENTRY(filling) link; /* in the list of those that wait, or that are over */
	struct segment *segment;   /* the loop's; NULL: nobody waits for it */
	bool waits;                /* the thread has not begun it */
	struct memory_segment memory;
	uint64_t size, done; /* bytes from its start on */
	uint64_t left;       /* what the machine had when the thread stopped for want of memory */
	int error;
};

TAILQ_HEAD(fillings, filling);

struct prefault {
	struct broker *broker;
	pthread_mutex_t lock; /* it guards the lists, and what the thread says of its filling */
	pthread_cond_t changed;
	struct fillings waiting, over;
	struct filling *current; /* the one that the thread fills */
	bool ended;

	/* what follows is the loop's */
	bool has_thread;
	pthread_t thread;
	struct event *timer; /* it is set while there is something to do */
};

/* ------------------------------------------------------------------------------------------- */
/* The thread                                                                                  */

static bool is_stopped_locked(const struct prefault *p, const struct filling *f)
{
	return !f->segment || p->ended;
}

/* Checks whether enough memory is left: 0 or -ENOMEM. Huge pages that were set aside are the
 * segment's own already. */
static int look_for_memory(struct filling *f)
{
	bool own = f->memory.recipe.flags & MEMORY_HUGETLB;
	uint64_t left = own ? UINT64_MAX : machine_memory_left("");

	if (left >= LOOK_BYTES + MACHINE_RESERVE)
		return 0;
	f->left = left;
	return -ENOMEM;
}

/* Fills one piece; the lock is given up while its pages are made. 0 or negative errno. */
static int fill_piece_unlocking(struct prefault *p, struct filling *f, struct memory_host_window *w)
{
	int r = memory_host_window_move(w, &f->memory, f->done);

	if (r < 0)
		return r;
	pthread_mutex_unlock(&p->lock);
	if (f->done % LOOK_BYTES == 0)
		r = look_for_memory(f);
	if (r == 0)
		r = memory_host_window_fill(w);
	pthread_mutex_lock(&p->lock);
	/* when the broker ends the pages stay, as a client may still be using the memory */
	if (!f->segment && !p->ended)
		memory_host_window_discard(w);
	else if (r == 0)
		f->done += w->size;
	return r;
}

static void fill_unlocking(struct prefault *p, struct filling *f)
{
	struct memory_host_window w;

	f->error = memory_host_window_open(&w);
	if (f->error < 0)
		return;
	while (f->error == 0 && f->done < f->size && !is_stopped_locked(p, f))
		f->error = fill_piece_unlocking(p, f, &w);
	memory_host_window_close(&w);
}

static void *fill_all(void *data)
{
	struct prefault *p = data;
	struct filling *f;

	pthread_mutex_lock(&p->lock);
	while (!p->ended) {
		f = TAILQ_FIRST(&p->waiting);
		if (!f) {
			pthread_cond_wait(&p->changed, &p->lock);
			continue;
		}
		TAILQ_REMOVE(&p->waiting, f, link);
		f->waits = false;
		p->current = f;
		fill_unlocking(p, f);
		p->current = NULL;
		TAILQ_INSERT_TAIL(&p->over, f, link);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */
/* The loop                                                                                    */

static void say_how_it_ended(const struct filling *f)
{
	const struct pool *pool = f->segment->pool;
	char done[SIZE_TEXT_MAX], size[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX];

	if (f->error == 0) {
		log_debug("the memory of segment %llx of pool '%s' is there",
			  (unsigned long long)segment_id(f->segment), pool->name);
		return;
	}
	size_round(f->done, done);
	size_round(f->size, size);
	if (f->error == -ENOMEM && f->left > 0)
		log_warning_of(
		    pool->owner,
		    "pool '%s': only %s of %s of a segment are made ahead (\"prefault\"): "
		    "this machine, or the cgroup of the broker, which pays for it, has %s "
		    "left; the rest comes as it is used",
		    pool->name, done, size, size_round(f->left, left));
	else
		log_warning_of(
		    pool->owner,
		    "pool '%s': only %s of %s of a segment are made ahead (\"prefault\"): "
		    "%s; the rest comes as it is used",
		    pool->name, done, size, strerror(-f->error));
}

static void take_over(struct prefault *p, struct filling *f)
{
	struct segment *s = f->segment;

	if (s) {
		say_how_it_ended(f);
		s->filling = NULL;
		s->prefaulted = f->done;
	}
	if (s && f->done == s->memory.recipe.size && !s->has_holes) {
		s->memory.recipe.flags |= MEMORY_IS_THERE;
		segment_note(p->broker, s);
	}
	free(f);
}

/* Takes over the fillings that are over. True when there are others. */
static bool look_at_work(struct prefault *p)
{
	struct filling *f;
	bool others;

	pthread_mutex_lock(&p->lock);
	while ((f = TAILQ_FIRST(&p->over))) {
		TAILQ_REMOVE(&p->over, f, link);
		take_over(p, f);
	}
	others = p->current || !TAILQ_EMPTY(&p->waiting);
	pthread_mutex_unlock(&p->lock);
	return others;
}

/* Runs as long as there is something to do. The thread begins here, when the broker serves and has
 * given up its rights: a thread keeps those with which it began. */
static void on_prefault_timer(evutil_socket_t fd, short what, void *data)
{
	struct prefault *p = data;

	(void)fd, (void)what;
	if (!p->has_thread)
		p->has_thread = thread_start(&p->thread, fill_all, p) == 0;
	if (look_at_work(p))
		broker_set_timer(p->broker, p->timer, SOON_MS);
}

int prefault_new(struct broker *b, struct prefault **out)
{
	struct prefault *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->broker = b;
	p->timer = event_new(b->base, -1, 0, on_prefault_timer, p);
	if (!p->timer) {
		free(p);
		return -ENOMEM;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	TAILQ_INIT(&p->waiting);
	TAILQ_INIT(&p->over);
	*out = p;
	return 0;
}

static void free_list(struct fillings *list)
{
	struct filling *f;

	while ((f = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, f, link);
		free(f);
	}
}

void prefault_free(struct prefault *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->ended = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->has_thread)
		pthread_join(p->thread, NULL);
	free_list(&p->waiting);
	free_list(&p->over);
	event_free(p->timer);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void prefault_start(struct broker *b, struct segment *s, uint64_t size)
{
	struct prefault *p = b->memory->prefault;
	struct filling *f = s->filling ? NULL : calloc(1, sizeof(*f));

	if (s->filling)
		return;
	if (!f) {
		log_warning_of(s->pool->owner,
			       "pool '%s': there is no memory to make its pages ahead",
			       s->pool->name);
		return;
	}
	f->segment = s;
	f->waits = true;
	f->memory = s->memory;
	f->size = size < s->memory.recipe.size ? size : s->memory.recipe.size;
	s->filling = f;
	pthread_mutex_lock(&p->lock);
	TAILQ_INSERT_TAIL(&p->waiting, f, link);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	broker_set_timer(b, p->timer, p->has_thread ? SOON_MS : 0);
}

void prefault_stop(struct broker *b, struct segment *s)
{
	struct prefault *p = b->memory->prefault;
	struct filling *f = s->filling;

	if (!f)
		return;
	s->filling = NULL;
	pthread_mutex_lock(&p->lock);
	p->ended = p->ended || b->has_ended;
	f->segment = NULL;
	if (f->waits) {
		TAILQ_REMOVE(&p->waiting, f, link);
		free(f);
	}
	pthread_mutex_unlock(&p->lock);
}

void prefault_spoil(struct broker *b, struct segment *s)
{
	if (s->has_holes || s->memory.recipe.flags & MEMORY_HUGETLB)
		return;
	s->has_holes = true;
	if (!(s->memory.recipe.flags & MEMORY_IS_THERE))
		return;
	s->prefaulted = s->memory.recipe.size;
	s->memory.recipe.flags &= ~(uint32_t)MEMORY_IS_THERE;
	segment_note(b, s);
}

uint64_t prefault_done(struct broker *b, const struct segment *s)
{
	struct prefault *p = b->memory->prefault;
	uint64_t done;

	look_at_work(p);
	if (s->memory.recipe.flags & MEMORY_IS_THERE)
		return s->memory.recipe.size;
	if (!s->filling)
		return s->prefaulted;
	pthread_mutex_lock(&p->lock);
	done = s->filling->done;
	pthread_mutex_unlock(&p->lock);
	return done;
}
