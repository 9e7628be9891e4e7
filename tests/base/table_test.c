/* SPDX-License-Identifier: MIT */

/*
 * The hash table of the broker: everything is found whatever the table's size is, no insertion
 * does more than one bucket's worth of moving, and an insertion cannot fail. The linker wraps
 * calloc() (see CMakeLists.txt), so that memory can run out.
 */

#include <stdbool.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "base/table.h"

TestSuite(table, .timeout = 60);

#define MANY 100000

struct entry {
	uint64_t key;
	struct table_link link;
	bool in;
};

static unsigned allocations, allocations_left = ~0u;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (allocations_left == 0)
		return NULL;
	allocations_left--;
	allocations++;
	return __real_calloc(n, size);
}

static const struct entry *entry_of(const struct table_link *link)
{
	return (const struct entry *)(const void *)((const char *)link -
						    offsetof(struct entry, link));
}

static uint64_t mixed(const struct table_link *link)
{
	return table_mix(entry_of(link)->key);
}

/* Everything into one bucket. */
static uint64_t constant(const struct table_link *link)
{
	(void)link;
	return 42;
}

/* Keys as they are: dense, so that every bucket has the same number of entries. */
static uint64_t plain(const struct table_link *link)
{
	return entry_of(link)->key;
}

/* Only the high half differs, which a table of this size never looks at. */
static uint64_t high(const struct table_link *link)
{
	return entry_of(link)->key << 40;
}

static bool has_key(const struct table_link *link, const void *key)
{
	return entry_of(link)->key == *(const uint64_t *)key;
}

static struct table_link *find(const struct table *t, uint64_t key)
{
	const struct entry probe = {.key = key};

	return table_find(t, t->hash(&probe.link), has_key, &key);
}

/* Of all the @n entries those are found that are in. */
static void assert_complete(const struct table *t, struct entry *entries, size_t n)
{
	size_t in = 0;

	for (size_t i = 0; i < n; i++) {
		const struct table_link *link = find(t, entries[i].key);

		if (link != (entries[i].in ? &entries[i].link : NULL))
			cr_assert_fail("entry %zu of %zu", i, n);
		in += entries[i].in;
	}
	cr_assert_eq(t->count, in);
}

static void insert(struct table *t, struct entry *e)
{
	table_insert(t, &e->link);
	e->in = true;
}

static void take_out(struct table *t, struct entry *e)
{
	table_remove(t, &e->link);
	e->in = false;
}

static struct entry *make_entries(size_t n)
{
	struct entry *entries = malloc(n * sizeof(*entries));

	cr_assert(entries);
	for (size_t i = 0; i < n; i++)
		entries[i] = (struct entry){.key = i};
	return entries;
}

static void empty(struct table *t, struct entry *entries, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (entries[i].in)
			take_out(t, &entries[i]);
	table_deinit(t);
	free(entries);
}

/* ------------------------------------------------------------------------------------------- */

Test(table, an_empty_table_finds_nothing_and_allocates_nothing)
{
	struct table t;

	table_init(&t, mixed);
	cr_assert_null(find(&t, 0));
	cr_assert_eq(t.count, 0);
	table_deinit(&t);
	cr_assert_eq(allocations, 0);
}

Test(table, a_hundred_thousand_entries_are_found_and_only_those)
{
	struct entry *entries = make_entries(2 * MANY);
	struct table t;

	table_init(&t, mixed);
	for (size_t i = 0; i < 2 * MANY; i += 2)
		insert(&t, &entries[i]);
	assert_complete(&t, entries, 2 * MANY);
	empty(&t, entries, 2 * MANY);
}

Test(table, the_table_grows_by_one_bucket_and_never_by_more)
{
	struct entry *entries = make_entries(MANY);
	struct table t;

	table_init(&t, mixed);
	for (size_t i = 0; i < MANY; i++) {
		size_t before = t.n_buckets;
		unsigned allocated = allocations;

		insert(&t, &entries[i]);
		if (t.n_buckets - before > 1 || allocations - allocated > 1)
			cr_assert_fail("entry %zu: %zu buckets after %zu", i, t.n_buckets, before);
	}
	cr_assert_geq(t.n_buckets, MANY, "chains stay short");
	empty(&t, entries, MANY);
}

/* Sizes around every doubling, where a bucket off by one would lose entries. */
Test(table, everything_is_found_at_every_size)
{
	enum { SOME = 1100 };
	static const table_hash hashes[] = {mixed, plain, high, constant};

	for (size_t h = 0; h < sizeof(hashes) / sizeof(hashes[0]); h++) {
		struct entry *entries = make_entries(SOME);
		struct table t;

		table_init(&t, hashes[h]);
		for (size_t i = 0; i < SOME; i++) {
			insert(&t, &entries[i]);
			assert_complete(&t, entries, i + 1);
		}
		empty(&t, entries, SOME);
	}
}

Test(table, removed_entries_are_gone_and_the_others_stay)
{
	struct entry *entries = make_entries(MANY);
	struct table t;

	table_init(&t, mixed);
	for (size_t i = 0; i < MANY; i++)
		insert(&t, &entries[i]);
	for (size_t i = 0; i < MANY; i += 3)
		take_out(&t, &entries[i]);
	assert_complete(&t, entries, MANY);
	for (size_t i = 0; i < MANY; i += 3)
		insert(&t, &entries[i]);
	assert_complete(&t, entries, MANY);
	for (size_t i = MANY; i > 0; i--)
		take_out(&t, &entries[i - 1]);
	assert_complete(&t, entries, MANY);
	empty(&t, entries, MANY);
}

Test(table, entries_of_one_hash_are_told_apart_by_their_keys)
{
	enum { SOME = 2000 };
	struct entry *entries = make_entries(SOME);
	struct table t;

	table_init(&t, constant);
	for (size_t i = 0; i < SOME; i++)
		insert(&t, &entries[i]);
	assert_complete(&t, entries, SOME);
	/* from the middle, the head and the tail of the chain */
	for (size_t i = 0; i < SOME; i++)
		if (i % 2 || i < 10 || i >= SOME - 10)
			take_out(&t, &entries[i]);
	assert_complete(&t, entries, SOME);
	empty(&t, entries, SOME);
}

Test(table, an_entry_may_come_and_go_at_random)
{
	enum { SOME = 5000 };
	struct entry *entries = make_entries(SOME);
	uint64_t seed = 1;
	struct table t;

	table_init(&t, mixed);
	for (int i = 0; i < 20 * SOME; i++) {
		struct entry *e = &entries[(seed >> 33) % SOME];

		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (e->in)
			take_out(&t, e);
		else
			insert(&t, e);
		if (i % SOME == 0)
			assert_complete(&t, entries, SOME);
	}
	assert_complete(&t, entries, SOME);
	empty(&t, entries, SOME);
}

Test(table, without_memory_an_insertion_succeeds_and_only_the_search_gets_slower)
{
	enum { SOME = 3000 };
	struct entry *entries = make_entries(2 * SOME);
	size_t buckets;
	struct table t;

	table_init(&t, mixed);
	for (size_t i = 0; i < 100; i++)
		insert(&t, &entries[i]);
	allocations_left = 0;
	for (size_t i = 100; i < SOME; i++)
		insert(&t, &entries[i]);
	assert_complete(&t, entries, 2 * SOME);
	buckets = t.n_buckets;
	cr_assert_lt(buckets, SOME);
	/* and it grows again when there is some */
	allocations_left = ~0u;
	for (size_t i = SOME; i < 2 * SOME; i++)
		insert(&t, &entries[i]);
	assert_complete(&t, entries, 2 * SOME);
	cr_assert_eq(t.n_buckets, buckets + SOME);
	empty(&t, entries, 2 * SOME);
}

Test(table, the_mixer_gives_neighbours_different_buckets)
{
	enum { BUCKETS = 1 << 16 };
	unsigned char *used = calloc(BUCKETS, 1);
	unsigned worst = 0;

	cr_assert(used);
	for (uint64_t i = 0; i < BUCKETS; i++) {
		unsigned char *n = &used[table_mix(i << 32 | i) & (BUCKETS - 1)];

		if (++*n > worst)
			worst = *n;
	}
	/* a random function gives 8 or 9 */
	cr_assert_lt(worst, 16);
	free(used);
}
