/* SPDX-License-Identifier: MIT */

/*
 * Fences that gate memory. Reached ones are dropped by a load whenever a set is touched, and
 * several on one timeline collapse into the highest, so sets stay small without any bookkeeping by
 * those who reach them. They are in the order of their timelines, in which the journal has them as
 * well: the next broker adds each of many behind the one before it.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/accounts/account.h"
#include "broker/order/fence.h"

struct entry {
	struct fence fence;
	struct account *payer; /* the owner of its timeline; NULL: nobody */
};

struct fence_set {
	uint32_t n, room;
	struct entry entries[];
};

/* Charges an entry. Whoever gives memory back behind its work is not refused for the memory of the
 * broker. */
static void pay(struct entry *e)
{
	struct charge charge = {.account = NULL};

	if (e->fence.timelines->account)
		charge_take_unasked(&charge, e->fence.timelines->account, LIMIT_FENCES, 1, 0);
	e->payer = charge.account;
}

static void entry_deinit(struct entry *e)
{
	if (e->payer)
		account_subtract(e->payer, LIMIT_FENCES, 1);
	account_unref(e->payer);
	e->payer = NULL;
	fence_deinit(&e->fence);
}

static bool is_pending(const struct entry *e)
{
	return fence_query(&e->fence) == TIMELINE_PENDING;
}

/* The set of all blocks that have lost their own. */
static struct fence_set lost;

/*
 * Sets for when memory is short. A set that is lost keeps its block out of use until there is no
 * client any more, which is long for a moment without memory.
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
		*s = (struct fence_set){.room = room};
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

/* Makes room in a set, which moves; NULL, and nothing has changed, without memory. */
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

void fence_set_drop(struct fence_set *set)
{
	if (!set || set == &lost)
		return;
	for (uint32_t i = 0; i < set->n; i++)
		entry_deinit(&set->entries[i]);
	set_free(set);
}

/* Moves the entries with what was paid for them. */
static void append_pending(struct fence_set *to, struct fence_set *from)
{
	for (uint32_t i = 0; i < from->n; i++) {
		if (!is_pending(&from->entries[i]))
			continue;
		to->entries[to->n++] = from->entries[i];
		from->entries[i] = (struct entry){.payer = NULL};
	}
}

/* Compares fences by timeline. */
static int compare_places(const struct fence *a, const struct fence *b)
{
	if (a->timelines != b->timelines)
		return a->timelines->id < b->timelines->id ? -1 : 1;
	return a->slot == b->slot ? 0 : a->slot < b->slot ? -1 : 1;
}

/* Compares entries by timeline; on one timeline the fence that is reached last comes first. */
static int compare(const void *left, const void *right)
{
	const struct fence *a = &((const struct entry *)left)->fence;
	const struct fence *b = &((const struct entry *)right)->fence;
	int order = compare_places(a, b);

	if (order != 0 || a->value == b->value)
		return order;
	return (int64_t)(a->value - b->value) > 0 ? -1 : 1;
}

static void collapse(struct fence_set *s)
{
	uint32_t kept = 0;

	qsort(s->entries, s->n, sizeof(struct entry), compare);
	for (uint32_t i = 0; i < s->n; i++) {
		struct entry *last = kept ? &s->entries[kept - 1] : NULL;

		if (last && compare_places(&last->fence, &s->entries[i].fence) == 0)
			entry_deinit(&s->entries[i]);
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

struct fence_set *fence_set_copy(const struct fence_set *set)
{
	struct fence_set *s;

	if (!set || set == &lost)
		return set ? &lost : NULL;
	s = set_new(set->n);
	if (!s)
		return &lost;
	for (uint32_t i = 0; i < set->n; i++) {
		struct entry *e = &s->entries[s->n];

		if (!is_pending(&set->entries[i]))
			continue;
		e->fence = set->entries[i].fence;
		timelines_ref(e->fence.timelines);
		pay(e);
		s->n++;
	}
	if (s->n > 0)
		return s;
	set_free(s);
	return NULL;
}

/* Makes room for one more entry. */
static struct fence_set *make_room(struct fence_set *set)
{
	struct fence_set *s;

	if (!set)
		return set_new(1);
	if (set->n < set->room)
		return set;
	s = set_grow(set, set->n + set->n / 2 + 1);
	if (!s)
		fence_set_drop(set);
	return s;
}

/* The place where the fence is or belongs, which mostly is behind the others. */
static uint32_t place_of(const struct fence_set *set, const struct fence *f)
{
	uint32_t from = 0, to = set->n;

	if (to > 0 && compare_places(&set->entries[to - 1].fence, f) < 0)
		return to;
	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (compare_places(&set->entries[middle].fence, f) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

bool fence_set_may_add(const struct fence_set *set, const struct fence *f, bool instead)
{
	struct account *account = f->timelines ? f->timelines->account : NULL;
	uint64_t of_one = 0;

	if (!account || set == &lost || fence_query(f) != TIMELINE_PENDING)
		return true;
	for (uint32_t i = 0; set && i < set->n; i++) {
		const struct fence *have = &set->entries[i].fence;

		if (compare_places(have, f) == 0)
			return true;
		of_one += have->timelines->account == account;
	}
	if (of_one >= FENCE_SET_OF_ONE_MAX)
		return false;
	return instead ? account_has_room(account, LIMIT_FENCES, 1)
		       : account_bears(account, LIMIT_FENCES, 1);
}

struct fence_set *fence_set_add(struct fence_set *set, struct fence *f)
{
	struct entry *e;
	uint32_t at;

	if (fence_query(f) != TIMELINE_PENDING || set == &lost) {
		fence_deinit(f);
		return set;
	}
	at = set ? place_of(set, f) : 0;
	if (set && at < set->n && compare_places(&set->entries[at].fence, f) == 0) {
		if ((int64_t)(f->value - set->entries[at].fence.value) > 0)
			set->entries[at].fence.value = f->value;
		fence_deinit(f);
		return set;
	}
	set = make_room(set);
	if (!set) {
		fence_deinit(f);
		return &lost;
	}
	e = &set->entries[at];
	memmove(e + 1, e, (set->n++ - at) * sizeof(*e));
	e->fence = *f;
	pay(e);
	*f = (struct fence){0};
	return set;
}

struct fence_set *fence_set_prune(struct fence_set *set)
{
	uint32_t kept = 0;

	if (!set || set == &lost)
		return set;
	for (uint32_t i = 0; i < set->n; i++) {
		if (is_pending(&set->entries[i]))
			set->entries[kept++] = set->entries[i];
		else
			entry_deinit(&set->entries[i]);
	}
	set->n = kept;
	if (kept > 0)
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
