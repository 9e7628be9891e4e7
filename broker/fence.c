/* SPDX-License-Identifier: MIT */

/*
 * Fences that gate memory. Reached ones are dropped by a load whenever a set is touched, and
 * several on one timeline collapse into the highest, so sets stay small without any bookkeeping by
 * those who reach them. Knows pages and values; not which client or buffer they are for.
 */

#include <errno.h>
#include <stdlib.h>

#include "broker/account.h"
#include "broker/fence.h"
#include "wire/fd.h"
#include "wire/mutation.h"
#include "wire/process.h"

int timelines_new(uint64_t id, uint32_t client, int pidfd, struct account *account,
		  struct timelines **out)
{
	struct timelines *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->stat = -1;
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
	t->account = account ? account_ref(account) : NULL;
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
	fd_close(t->stat);
	timeline_unmap(t->page);
	account_unref(t->account);
	free(t);
}

/* What GPUs have written, before anybody asks about their process. True when any of it is new. */
static bool take_values(const struct timelines *t, uint64_t now[TIMELINE_SLOTS])
{
	bool news = false;

	for (uint32_t i = 1; i < TIMELINE_SLOTS; i++) {
		now[i] = timeline_is_by_gpu(t->page, i) ? timeline_value(t->page, i) : t->last[i];
		news |= now[i] != t->last[i];
	}
	return news;
}

bool timelines_look(struct timelines *t)
{
	uint64_t now[TIMELINE_SLOTS];
	enum process_state state = PROCESS_RUNS;
	bool again = false;

	if (t->dead)
		return false;
	if (take_values(t, now))
		state = process_state(t->pidfd, &t->stat);
	for (uint32_t i = 1; state != PROCESS_EXITS && i < TIMELINE_SLOTS; i++) {
		t->last[i] = state == PROCESS_RUNS ? now[i] : t->seen[i];
		t->seen[i] = now[i];
		/* what was passed on by other means than ours we were not told of */
		again |= timeline_is_by_gpu(t->page, i);
	}
	return again;
}

void timelines_kill(struct timelines *t, bool finished)
{
	for (uint32_t i = 1; (finished || MUTATION(trust_the_dying)) && i < TIMELINE_SLOTS; i++)
		t->last[i] = timeline_value(t->page, i);
	if (!MUTATION(no_poison))
		timeline_poison(t->page, t->last);
	t->dead = true;
	/* it may be remembered for long, but is never sent again */
	timeline_unmap(t->page);
	t->page = NULL;
	t->fd = fd_close(t->fd);
	t->pidfd = fd_close(t->pidfd);
	t->stat = fd_close(t->stat);
}

/* A GPU says that it is reached: is that so? Pending, when its owner may be on its way out. */
static enum timeline_state believe(struct timelines *t, uint32_t slot, uint64_t value)
{
	if ((int64_t)(t->last[slot] - value) >= 0)
		return TIMELINE_REACHED;
	if (process_state(t->pidfd, &t->stat) != PROCESS_RUNS)
		return TIMELINE_PENDING;
	t->last[slot] = value;
	return TIMELINE_REACHED;
}

enum timeline_state fence_query(const struct fence *f)
{
	struct timelines *t = f->timelines;
	enum timeline_state state;

	if (!t)
		return TIMELINE_REACHED;
	if (t->dead)
		return (int64_t)(t->last[f->slot] - f->value) >= 0 ? TIMELINE_REACHED
								   : TIMELINE_DEAD;
	state = timeline_query(t->page, f->slot, f->value);
	if (state == TIMELINE_REACHED && timeline_is_by_gpu(t->page, f->slot))
		return believe(t, f->slot, f->value);
	return state;
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

/* Who made it necessary pays for it: its owner, or who added to a set that others still have. */
struct entry {
	struct fence fence;
	struct account *payer; /* NULL: nobody */
};

struct fence_set {
	unsigned refs;
	uint32_t n, room;
	struct entry entries[];
};

static void pay(struct entry *e, struct account *account)
{
	e->payer = account && account_add(account, LIMIT_FENCES, 1) ? account_ref(account) : NULL;
}

static void entry_done(struct entry *e)
{
	if (e->payer)
		account_subtract(e->payer, LIMIT_FENCES, 1);
	account_unref(e->payer);
	e->payer = NULL;
	fence_done(&e->fence);
}

static bool is_pending(const struct entry *e)
{
	return fence_query(&e->fence) == TIMELINE_PENDING;
}

/* Never shared out by pointer to its fences, never counted, never freed. */
static struct fence_set lost = {.refs = 1};

static struct fence_set *set_new(uint32_t room)
{
	struct fence_set *s = malloc(sizeof(*s) + room * sizeof(struct entry));

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
		entry_done(&set->entries[i]);
	free(set);
}

/* @payer: of copies. Of a set that nobody else has they are none: what was paid for moves. */
static void append_pending(struct fence_set *to, struct fence_set *from, struct account *payer)
{
	for (uint32_t i = 0; i < from->n; i++) {
		struct entry *e = &to->entries[to->n];

		if (!is_pending(&from->entries[i]))
			continue;
		to->n++;
		e->fence = from->entries[i].fence;
		timelines_ref(e->fence.timelines);
		if (from->refs > 1) {
			pay(e, payer);
			continue;
		}
		e->payer = from->entries[i].payer;
		from->entries[i].payer = NULL;
	}
}

/* By timeline, and on one timeline the last to be reached first. */
static int compare(const void *left, const void *right)
{
	const struct fence *a = &((const struct entry *)left)->fence;
	const struct fence *b = &((const struct entry *)right)->fence;

	if (a->timelines != b->timelines)
		return a->timelines->id < b->timelines->id ? -1 : 1;
	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	return a->value == b->value ? 0 : (int64_t)(a->value - b->value) > 0 ? -1 : 1;
}

static void collapse(struct fence_set *s)
{
	uint32_t kept = 0;

	qsort(s->entries, s->n, sizeof(struct entry), compare);
	for (uint32_t i = 0; i < s->n; i++) {
		struct entry *last = kept ? &s->entries[kept - 1] : NULL;

		if (last && last->fence.timelines == s->entries[i].fence.timelines &&
		    last->fence.slot == s->entries[i].fence.slot)
			entry_done(&s->entries[i]);
		else
			s->entries[kept++] = s->entries[i];
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
		append_pending(s, a, NULL);
		append_pending(s, b, NULL);
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
static struct fence_set *make_room(struct fence_set *set, struct account *payer)
{
	uint32_t room = set ? set->n + set->n / 2 + 1 : 1;
	struct fence_set *s;

	if (set && set->refs == 1) {
		if (set->n < set->room)
			return set;
		s = realloc(set, sizeof(*s) + room * sizeof(struct entry));
		if (s) {
			s->room = room;
			return s;
		}
	} else {
		s = set_new(room);
		if (s && set)
			append_pending(s, set, payer);
	}
	fence_set_drop(set);
	return s;
}

bool fence_set_may_add(const struct fence_set *set, const struct fence *f)
{
	struct account *account = f->timelines ? f->timelines->account : NULL;
	uint64_t more = 1, of_one = 0, limit;

	if (!account || set == &lost || fence_query(f) != TIMELINE_PENDING)
		return true;
	for (uint32_t i = 0; set && i < set->n; i++) {
		const struct fence *have = &set->entries[i].fence;

		if (set->refs == 1 && have->timelines == f->timelines && have->slot == f->slot)
			return true;
		of_one += have->timelines->account == account;
	}
	if (set && set->refs > 1)
		more += set->n;
	limit = account_limit(account, LIMIT_FENCES);
	return of_one < FENCE_SET_OF_ONE_MAX && more <= limit &&
	       account_used(account, LIMIT_FENCES) <= limit - more;
}

struct fence_set *fence_set_add(struct fence_set *set, struct fence *f)
{
	if (fence_query(f) != TIMELINE_PENDING || set == &lost) {
		fence_done(f);
		return set;
	}
	set = make_room(fence_set_prune(set), f->timelines->account);
	if (!set) {
		fence_done(f);
		return &lost;
	}
	for (uint32_t i = 0; i < set->n; i++) {
		struct fence *have = &set->entries[i].fence;

		if (have->timelines == f->timelines && have->slot == f->slot) {
			if ((int64_t)(f->value - have->value) > 0)
				have->value = f->value;
			fence_done(f);
			return set;
		}
	}
	set->entries[set->n].fence = *f;
	pay(&set->entries[set->n++], f->timelines->account);
	*f = (struct fence){0};
	return set;
}

struct fence_set *fence_set_prune(struct fence_set *set)
{
	uint32_t pending = 0;

	if (!set || set == &lost)
		return set;
	for (uint32_t i = 0; i < set->n; i++)
		pending += is_pending(&set->entries[i]);
	if (pending == set->n)
		return set;
	if (pending > 0 && set->refs > 1)
		return set; /* a copy would save little */
	for (uint32_t i = 0; pending > 0 && i < set->n;) {
		if (is_pending(&set->entries[i])) {
			i++;
			continue;
		}
		entry_done(&set->entries[i]);
		set->entries[i] = set->entries[--set->n];
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

size_t fence_set_n_pending(const struct fence_set *set)
{
	size_t n = 0;

	for (uint32_t i = 0; set && i < set->n; i++)
		n += is_pending(&set->entries[i]);
	return n;
}

const struct fence *fence_set_at(const struct fence_set *set, size_t i)
{
	return &set->entries[i].fence;
}
