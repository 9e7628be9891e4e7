/* SPDX-License-Identifier: MIT */

/*
 * Fences that gate memory. Reached ones are dropped by a load whenever a set is touched, and
 * several on one timeline collapse into the highest, so sets stay small without any bookkeeping by
 * those who reach them.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/client/account.h"
#include "broker/memory/fence.h"

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

/* Whoever gives memory back behind its work is not refused for the memory of the broker. */
static void pay(struct entry *e, struct account *account)
{
	struct charge charge = {.account = NULL};

	if (account)
		charge_take_unasked(&charge, account, LIMIT_FENCES, 1, 0);
	e->payer = charge.account;
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

/*
 * For when memory is short: a set that is lost keeps its block out of use until there is no client
 * any more, which is long for a moment without memory.
 */
#define RESERVE      64 /* sets */
#define RESERVE_ROOM 16 /* fences in each */

#define RESERVED_SIZE (sizeof(struct fence_set) + RESERVE_ROOM * sizeof(struct entry))

static _Alignas(struct fence_set) unsigned char reserve[RESERVE][RESERVED_SIZE];
static uint64_t reserve_taken; /* bits */

static bool is_of_reserve(const struct fence_set *set)
{
	return (uintptr_t)set - (uintptr_t)reserve < sizeof(reserve);
}

static struct fence_set *take_of_reserve(uint32_t *room)
{
	unsigned i;

	if (*room > RESERVE_ROOM || ~reserve_taken == 0)
		return NULL;
	i = (unsigned)__builtin_ctzll(~reserve_taken);
	reserve_taken |= UINT64_C(1) << i;
	*room = RESERVE_ROOM;
	return (struct fence_set *)(void *)reserve[i];
}

static struct fence_set *set_new(uint32_t room)
{
	struct fence_set *s = malloc(sizeof(*s) + room * sizeof(struct entry));

	if (!s)
		s = take_of_reserve(&room);
	if (s)
		*s = (struct fence_set){.refs = 1, .room = room};
	return s;
}

static void set_free(struct fence_set *set)
{
	if (is_of_reserve(set))
		reserve_taken &=
		    ~(UINT64_C(1) << ((uintptr_t)set - (uintptr_t)reserve) / RESERVED_SIZE);
	else
		free(set);
}

/* Moves it; NULL, and nothing has changed, without memory. */
static struct fence_set *set_grow(struct fence_set *set, uint32_t room)
{
	struct fence_set *s = NULL;

	if (!is_of_reserve(set))
		s = realloc(set, sizeof(*s) + room * sizeof(struct entry));
	if (s) {
		s->room = room;
		return s;
	}
	s = set_new(room);
	if (s) {
		memcpy(s->entries, set->entries, set->n * sizeof(struct entry));
		s->n = set->n;
		set_free(set);
	}
	return s;
}

struct fence_set *fence_set_lost(void)
{
	return &lost;
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
	set_free(set);
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
		s = set_grow(set, room);
		if (s)
			return s;
	} else {
		s = set_new(room);
		if (s && set)
			append_pending(s, set, payer);
	}
	fence_set_drop(set);
	return s;
}

bool fence_set_may_add(const struct fence_set *set, const struct fence *f, bool instead)
{
	struct account *account = f->timelines ? f->timelines->account : NULL;
	uint64_t more = 1, of_one = 0;

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
	if (of_one >= FENCE_SET_OF_ONE_MAX)
		return false;
	return instead ? account_has_room(account, LIMIT_FENCES, more)
		       : account_bears(account, LIMIT_FENCES, more);
}

struct fence_set *fence_set_add(struct fence_set *set, struct fence *f)
{
	if (fence_query(f) != TIMELINE_PENDING || set == &lost) {
		fence_done(f);
		return set;
	}
	set = make_room(set, f->timelines->account);
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
