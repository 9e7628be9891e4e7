/* SPDX-License-Identifier: MIT */

/*
 * Fences that gate memory. Reached ones are dropped by a load whenever a set is touched, and
 * several on one timeline collapse into the highest, so sets stay small without any bookkeeping by
 * those who reach them. Knows pages and values; not which client or buffer they are for.
 */

#include <errno.h>
#include <stdlib.h>

#include "broker/fence.h"
#include "wire/fd.h"

int timelines_new(uint64_t id, uint32_t client, int pidfd, struct timelines **out)
{
	struct timelines *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->fd = timeline_create();
	t->pidfd = fd_dup(pidfd);
	r = t->fd < 0 ? t->fd : t->pidfd < 0 ? t->pidfd : timeline_map(t->fd, true, &t->page);
	if (r < 0) {
		fd_close(t->fd);
		fd_close(t->pidfd);
		free(t);
		return r;
	}
	t->id = id;
	t->client = client;
	t->refs = 1;
	*out = t;
	return 0;
}

struct timelines *timelines_ref(struct timelines *t)
{
	if (t)
		t->refs++;
	return t;
}

void timelines_unref(struct timelines *t)
{
	if (!t || --t->refs > 0)
		return;
	fd_close(t->fd);
	fd_close(t->pidfd);
	timeline_unmap(t->page);
	free(t);
}

void timelines_kill(struct timelines *t)
{
	timeline_poison(t->page, t->last);
	t->dead = true;
	/* it may be remembered for long, but is never sent again */
	timeline_unmap(t->page);
	t->page = NULL;
	t->fd = fd_close(t->fd);
	t->pidfd = fd_close(t->pidfd);
}

enum timeline_state fence_query(const struct fence *f)
{
	const struct timelines *t = f->timelines;

	if (!t)
		return TIMELINE_REACHED;
	if (t->dead)
		return (int64_t)(t->last[f->slot] - f->value) >= 0 ? TIMELINE_REACHED
								   : TIMELINE_DEAD;
	return timeline_query(f->timelines->page, f->slot, f->value);
}

void fence_done(struct fence *f)
{
	timelines_unref(f->timelines);
	*f = (struct fence){0};
}

uint64_t fence_timeline(const struct fence *f)
{
	return f->timelines ? f->timelines->id << 16 | f->slot : 0;
}

struct fence_set {
	unsigned refs;
	uint32_t n, room;
	struct fence fences[];
};

/* Never shared out by pointer to its fences, never counted, never freed. */
static struct fence_set lost = {.refs = 1};

static struct fence_set *set_new(uint32_t room)
{
	struct fence_set *s = malloc(sizeof(*s) + room * sizeof(struct fence));

	if (s)
		*s = (struct fence_set){.refs = 1, .room = room};
	return s;
}

bool fence_set_is_lost(const struct fence_set *set)
{
	return set == &lost;
}

struct fence_set *fence_set_share(struct fence_set *set)
{
	if (set && set != &lost)
		set->refs++;
	return set;
}

void fence_set_drop(struct fence_set *set)
{
	if (!set || set == &lost || --set->refs > 0)
		return;
	for (uint32_t i = 0; i < set->n; i++)
		fence_done(&set->fences[i]);
	free(set);
}

static void append_pending(struct fence_set *to, const struct fence_set *from)
{
	for (uint32_t i = 0; i < from->n; i++) {
		if (fence_query(&from->fences[i]) != TIMELINE_PENDING)
			continue;
		to->fences[to->n] = from->fences[i];
		timelines_ref(to->fences[to->n++].timelines);
	}
}

/* By timeline, and on one timeline the last to be reached first. */
static int compare(const void *left, const void *right)
{
	const struct fence *a = left, *b = right;

	if (a->timelines != b->timelines)
		return a->timelines->id < b->timelines->id ? -1 : 1;
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return a->value == b->value ? 0 : (int64_t)(a->value - b->value) > 0 ? -1 : 1;
}

static void collapse(struct fence_set *s)
{
	uint32_t kept = 0;

	qsort(s->fences, s->n, sizeof(struct fence), compare);
	for (uint32_t i = 0; i < s->n; i++) {
		struct fence *last = kept ? &s->fences[kept - 1] : NULL;

		if (last && last->timelines == s->fences[i].timelines &&
		    last->slot == s->fences[i].slot)
			fence_done(&s->fences[i]);
		else
			s->fences[kept++] = s->fences[i];
	}
	s->n = kept;
}

struct fence_set *fence_set_merge(struct fence_set *a, struct fence_set *b)
{
	struct fence_set *s;

	if (!a || !b || a == b) {
		if (a == b)
			fence_set_drop(b);
		return a ? a : b;
	}
	if (a == &lost || b == &lost) {
		fence_set_drop(a);
		fence_set_drop(b);
		return &lost;
	}
	s = set_new(a->n + b->n);
	if (s) {
		append_pending(s, a);
		append_pending(s, b);
		collapse(s);
	}
	fence_set_drop(a);
	fence_set_drop(b);
	if (!s)
		return &lost;
	if (s->n == 0) {
		fence_set_drop(s);
		return NULL;
	}
	return s;
}

/* Room for one more in a set that nobody else has: itself, grown, or a copy. Consumes @set. */
static struct fence_set *make_room(struct fence_set *set)
{
	uint32_t room = set ? set->n + set->n / 2 + 1 : 1;
	struct fence_set *s;

	if (set && set->refs == 1) {
		if (set->n < set->room)
			return set;
		s = realloc(set, sizeof(*s) + room * sizeof(struct fence));
		if (s) {
			s->room = room;
			return s;
		}
	} else {
		s = set_new(room);
		if (s && set)
			append_pending(s, set);
	}
	fence_set_drop(set);
	return s;
}

struct fence_set *fence_set_add(struct fence_set *set, struct fence *f)
{
	if (fence_query(f) != TIMELINE_PENDING || set == &lost) {
		fence_done(f);
		return set;
	}
	set = make_room(fence_set_prune(set));
	if (!set) {
		fence_done(f);
		return &lost;
	}
	for (uint32_t i = 0; i < set->n; i++) {
		struct fence *have = &set->fences[i];

		if (have->timelines == f->timelines && have->slot == f->slot) {
			if ((int64_t)(f->value - have->value) > 0)
				have->value = f->value;
			fence_done(f);
			return set;
		}
	}
	set->fences[set->n++] = *f;
	*f = (struct fence){0};
	return set;
}

struct fence_set *fence_set_prune(struct fence_set *set)
{
	uint32_t pending = 0;

	if (!set || set == &lost)
		return set;
	for (uint32_t i = 0; i < set->n; i++)
		pending += fence_query(&set->fences[i]) == TIMELINE_PENDING;
	if (pending == set->n)
		return set;
	if (pending > 0 && set->refs > 1)
		return set; /* a copy would save little */
	for (uint32_t i = 0; pending > 0 && i < set->n;) {
		if (fence_query(&set->fences[i]) == TIMELINE_PENDING) {
			i++;
			continue;
		}
		fence_done(&set->fences[i]);
		set->fences[i] = set->fences[--set->n];
	}
	if (pending > 0 && set->n > 0)
		return set;
	fence_set_drop(set);
	return NULL;
}

size_t fence_set_size(const struct fence_set *set)
{
	return set ? set->n : 0;
}

const struct fence *fence_set_at(const struct fence_set *set, size_t i)
{
	return &set->fences[i];
}
