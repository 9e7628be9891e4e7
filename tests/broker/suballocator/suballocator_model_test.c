/* SPDX-License-Identifier: MIT */
/*
 * The suballocator against a model that knows, for every unit of memory, whose it is and what it
 * contains: a random history, with everything checked after each step. And what an operation that
 * fails for want of a descriptor leaves behind, which is everything as it was.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "tests/broker/suballocator/suballocator_model.h"

TestSuite(suballocator, .timeout = 110);

/* ---- running out of descriptors ---- */

/* What an operation that failed must leave as it was: lists, bitmaps, neighbours. */
static uint64_t fingerprint(const struct world *w)
{
	const unsigned char *bytes = (const unsigned char *)&w->allocator;
	uint64_t sum = 14695981039346656037u;

	for (size_t i = 0; i < sizeof(w->allocator); i++)
		sum = (sum ^ bytes[i]) * 1099511628211u;
	for (unsigned i = 0; i < REGIONS; i++) {
		if (!w->places[i].there)
			continue;
		bytes = (const unsigned char *)&w->places[i].region;
		for (size_t k = 0; k < sizeof(struct region); k++)
			sum = (sum ^ bytes[k]) * 1099511628211u;
		for (const struct block *b = w->places[i].region.first; b; b = b->after) {
			bytes = (const unsigned char *)b;
			for (size_t k = 0; k < sizeof(*b); k++)
				sum = (sum ^ bytes[k]) * 1099511628211u;
		}
	}
	return sum + slab_live(&w->slab);
}

static void *no_memory(size_t alignment, size_t size)
{
	(void)alignment;
	(void)size;
	return NULL;
}

/* Takes all descriptors but `left` that the slab has ready. They go back by feed(). */
static void *starve(struct world *w, unsigned left)
{
	struct block *b, *taken = NULL;

	w->slab.allocate = no_memory;
	while ((b = slab_alloc(&w->slab))) {
		b->after = taken;
		taken = b;
	}
	for (; left > 0 && taken; left--) {
		b = taken;
		taken = b->after;
		slab_free(&w->slab, b);
	}
	return taken;
}

static void feed(struct world *w, void *taken, void *(*allocate)(size_t, size_t))
{
	struct block *b = taken, *next;

	for (; b; b = next) {
		next = b->after;
		slab_free(&w->slab, b);
	}
	w->slab.allocate = allocate;
}

Test(suballocator, any_descriptor_may_be_missing_and_nothing_changes)
{
	enum { OPERATIONS = 40 };

	/* The n-th descriptor that this history needs cannot be had; then it goes on. */
	for (unsigned n = 0;; n++) {
		struct world *w = world_new(n);
		void *(*allocate)(size_t, size_t) = w->slab.allocate;
		void *taken;
		bool failed = false;

		slab_free(&w->slab, slab_alloc(&w->slab));
		taken = starve(w, n);
		for (w->step = 0; w->step < OPERATIONS; w->step++) {
			struct block *b = NULL;
			uint64_t before = fingerprint(w);
			int r;

			if (w->step % 10 == 0) {
				struct region *region = &w->places[w->step / 10].region;

				r = suballocator_add_region(&w->allocator, region, 4096 * UNIT);
				w->places[w->step / 10].there = r == 0;
			} else {
				r = suballocator_alloc(&w->allocator, w->step * 7 * UNIT,
						       UNIT << w->step % 4, &b);
			}
			if (r == 0)
				continue;
			require(w, r == -ENOMEM && !failed && b == NULL);
			require(w, fingerprint(w) == before);
			failed = true;
			feed(w, taken, allocate);
			taken = NULL;
			require_consistent(w);
			w->step--; /* once more, with memory */
		}
		feed(w, taken, allocate);
		require_consistent(w);
		world_end(w);
		if (!failed)
			break;
		cr_assert_lt(n, 3 * OPERATIONS);
	}
}

/* ---- the shadow: what is known of each unit ---- */

/* The tag of a block says as much as those of its units do. */
static void require_tagged(struct world *w, const struct block *b, const struct unit *units)
{
	for (uint32_t u = b->offset; u < b->offset + b->size; u++)
		require(w, !units[u].tag || units[u].tag == b->tag ||
			       b->tag == SUBALLOCATOR_TAG_MIXED);
}

static struct unit *units_of(const struct block *b)
{
	struct place *place = (void *)((char *)b->region - offsetof(struct place, region));

	return place->units;
}

static void require_not_overlooked(struct world *w, const struct tally *tally, uint64_t size,
				   uint64_t alignment)
{
	/* Beyond 64 blocks of nearly the same size the allocator may give up. */
	if (tally->free_blocks > 64) {
		require(w,
			alignment > UNIT || tally->largest <= size / UNIT + 2 + size / UNIT / 32);
		return;
	}
	for (unsigned i = 0; i < REGIONS; i++) {
		const struct region *region = &w->places[i].region;

		if (!w->places[i].there || region->held)
			continue;
		for (const struct block *b = region->first; b; b = b->after) {
			uint64_t end = block_offset(b) + block_size(b);
			uint64_t start = (block_offset(b) + alignment - 1) / alignment * alignment;

			require(w, !block_is_free(b) || start + size > end);
		}
	}
}

/* ---- the random walk ---- */

static void random_alloc(struct world *w)
{
	uint64_t size = random_below(w, UNIT << random_below(w, 11)) + 1, alignment = UNIT;
	void *(*allocate)(size_t, size_t) = w->slab.allocate;
	bool scarce = random_below(w, 32) == 0;
	struct block *b = NULL;
	uint64_t before = 0;
	void *taken = NULL;
	struct tally tally;
	int r;

	if (random_below(w, 3) == 0)
		alignment <<= random_below(w, 12);
	if (scarce) {
		taken = starve(w, random_below(w, 2));
		before = fingerprint(w);
	}
	r = suballocator_alloc(&w->allocator, size, alignment, &b);
	if (scarce) {
		require(w, r == 0 || (b == NULL && before == fingerprint(w)));
		feed(w, taken, allocate);
	}
	tally = require_consistent(w);
	if (r == SUBALLOCATOR_FULL)
		require_not_overlooked(w, &tally, size, alignment);
	else
		require(w, r == 0 || (r == -ENOMEM && scarce));
	if (r != 0)
		return;

	require(w, !block_is_free(b) && !b->owner && !b->payer && !b->gate);
	require(w, b->size == (size + UNIT - 1) / UNIT && block_offset(b) % alignment == 0);
	require_tagged(w, b, units_of(b));
	if (random_below(w, 2))
		b->tag = 1 + random_below(w, 2);
	for (uint32_t u = b->offset; u < b->offset + b->size; u++) {
		require(w, units_of(b)[u].user == NULL);
		units_of(b)[u].user = b;
		units_of(b)[u].tag = b->tag;
	}
	b->owner = &w->blocks[w->block_count]; /* must not make it look free */
	w->blocks[w->block_count++] = b;
}

static void random_free(struct world *w)
{
	unsigned i = random_below(w, w->block_count);
	struct block *b = w->blocks[i];
	size_t live = slab_live(&w->slab);

	w->blocks[i] = w->blocks[--w->block_count];
	for (uint32_t u = b->offset; u < b->offset + b->size; u++) {
		struct unit *unit = &units_of(b)[u];

		require(w, unit->user == b);
		unit->user = NULL;
	}
	suballocator_free(&w->allocator, b);
	require(w, slab_live(&w->slab) <= live);
}

static void random_region_change(struct world *w)
{
	unsigned i = random_below(w, REGIONS);
	struct region *region = &w->places[i].region;

	if (!w->places[i].there)
		world_add(w, i, UNIT * (uint64_t)(1 + random_below(w, UNITS_MAX)));
	else if (region->held && random_below(w, 2))
		suballocator_unhold_region(&w->allocator, region);
	else if (region_is_empty(region) && !region->held && random_below(w, 2))
		suballocator_hold_region(&w->allocator, region);
	else if (region_is_empty(region))
		world_remove(w, i);
}

static void random_walk(unsigned seed)
{
	struct world *w = world_new(seed);

	/* Now it fills, now it empties. */
	for (w->step = 0; w->step < 6000; w->step++) {
		uint32_t dice = random_below(w, 100);
		uint32_t allocs = w->step / 1000 % 2 ? 35 : 60;

		if (dice < allocs && w->block_count < BLOCKS_MAX) {
			random_alloc(w);
		} else if (dice < 96 && w->block_count > 0) {
			random_free(w);
		} else {
			random_region_change(w);
		}
		require_consistent(w);
	}
	while (w->block_count > 0)
		random_free(w);
	require_consistent(w);
	for (unsigned i = 0; i < REGIONS; i++)
		require(w, !w->places[i].there || region_is_empty(&w->places[i].region));
	world_end(w);
}

Test(suballocator, does_what_the_model_says_whatever_comes)
{
	for (unsigned seed = 1; seed <= 24; seed++)
		random_walk(seed);
}
