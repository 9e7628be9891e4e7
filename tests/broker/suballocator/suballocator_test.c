/* SPDX-License-Identifier: MIT */
/*
 * What callers of the suballocator rely on, one sentence at a time. Whether it is right in general
 * is the question of suballocator_model_test.c.
 */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "tests/broker/suballocator/suballocator_model.h"

TestSuite(suballocator, .timeout = 30);

static struct block *take(struct world *w, uint64_t units, uint64_t alignment_units)
{
	struct block *b = NULL;
	int r = suballocator_alloc(&w->allocator, units * UNIT, alignment_units * UNIT, &b);

	return r == 0 ? b : NULL;
}

static void give(struct world *w, struct block *b)
{
	suballocator_free(&w->allocator, b);
	require_consistent(w);
}

Test(suballocator, a_region_of_exactly_the_requested_size_serves_it)
{
	struct world *w = world_new(0);

	for (uint32_t size = 1; size < 3 * UNITS_MAX; size++) {
		struct region region;
		struct block *b;

		suballocator_add_region(&w->allocator, &region, (uint64_t)size * UNIT + UNIT - 1);
		w->step = size;
		b = take(w, size, 1);
		require(w, b && b->size == size && take(w, 1, 1) == NULL);
		require(w, suballocator_largest_free(&w->allocator) == 0);
		suballocator_free(&w->allocator, b);
		require(w, suballocator_largest_free(&w->allocator) == (uint64_t)size * UNIT);
		suballocator_remove_region(&w->allocator, &region);
	}
	world_end(w);
}

Test(suballocator, a_whole_region_is_aligned_to_anything)
{
	struct world *w = world_new(0);
	struct block *b;

	world_add(w, 0, 2 * MIB);
	b = take(w, 4096, 4096);
	cr_assert(b && b->offset == 0);
	give(w, b);
	cr_assert_eq(suballocator_alloc(&w->allocator, 2 * MIB, (uint64_t)1 << 63, &b), 0);
	give(w, b);
	world_end(w);
}

Test(suballocator, a_region_just_added_is_found_behind_any_number_of_crooked_holes)
{
	enum { HOLES = 500 };
	struct world *w = world_new(0);
	struct block *holes[HOLES], *b;
	struct region crooked, fresh;

	/* Holes of 33 units, none of which contains an aligned piece of 17. */
	suballocator_add_region(&w->allocator, &crooked, (uint64_t)(HOLES + 1) * 64 * UNIT);
	cr_assert_not_null(b = take(w, 32 - 16, 1));
	for (unsigned i = 0; i < HOLES; i++) {
		holes[i] = take(w, 32, 1);
		cr_assert_not_null(take(w, 32, 1));
	}
	cr_assert_not_null(take(w, suballocator_largest_free(&w->allocator) / UNIT, 1));
	for (unsigned i = 0; i < HOLES; i++)
		suballocator_free(&w->allocator, holes[i]);
	cr_assert_null(take(w, 20, 64));
	suballocator_add_region(&w->allocator, &fresh, 40 * UNIT);
	b = take(w, 20, 64);
	cr_assert(b && b->region == &fresh);
	empty_region(w, &crooked);
	empty_region(w, &fresh);
	suballocator_remove_region(&w->allocator, &crooked);
	suballocator_remove_region(&w->allocator, &fresh);
	world_end(w);
}

Test(suballocator, a_block_that_fits_is_found_behind_any_number_of_near_ones)
{
	enum { HOLES = 500 };
	struct world *w = world_new(0);
	struct block *holes[HOLES];
	struct region region;

	/* 64 and 65 units are of one class; what is left behind the holes is of another. */
	suballocator_add_region(&w->allocator, &region, (uint64_t)(HOLES + 2) * 65 * UNIT);
	for (unsigned i = 0; i < HOLES; i++) {
		holes[i] = take(w, 64, 1);
		cr_assert_not_null(take(w, 1, 1));
	}
	for (unsigned i = 0; i < HOLES; i++)
		suballocator_free(&w->allocator, holes[i]);
	cr_assert_not_null(take(w, 65, 1));
	empty_region(w, &region);
	suballocator_remove_region(&w->allocator, &region);
	world_end(w);
}

Test(suballocator, an_alignment_is_met_by_trimming_both_ends)
{
	struct world *w = world_new(0);
	struct block *first, *b;

	world_add(w, 0, 1000 * UNIT);
	first = take(w, 3, 1);
	b = take(w, 100, 64);
	cr_assert_eq(b->offset, 64);
	cr_assert(block_is_free(b->before) && b->before->offset == 3 && b->before->size == 61);
	cr_assert(block_is_free(b->after) && b->after->offset == 164 && b->after->size == 836);
	require_consistent(w);
	give(w, first);
	give(w, b);
	cr_assert_eq(w->places[0].region.first->size, 1000);
	world_end(w);
}

Test(suballocator, holes_of_an_odd_size_are_used_before_fresh_memory_is_cut)
{
	struct world *w = world_new(0);
	struct block *blocks[16];

	world_add(w, 0, 4000 * UNIT);
	for (unsigned i = 0; i < 16; i++)
		blocks[i] = take(w, 201, 1); /* its class begins at 200 */
	for (unsigned i = 0; i < 16; i += 2)
		give(w, blocks[i]);
	for (unsigned i = 0; i < 16; i += 2) {
		blocks[i] = take(w, 201, 1);
		cr_assert_lt(blocks[i]->offset, 16 * 201);
	}
	world_end(w);
}

Test(suballocator, a_block_in_use_can_be_cut_and_put_together_again)
{
	struct world *w = world_new(0);
	struct block *front, *rest, *none;

	world_add(w, 0, 100 * UNIT);
	front = take(w, 100, 1);
	front->owner = front->payer = w; /* they stay with it */
	front->tag = 7;
	cr_assert_eq(suballocator_cut(&w->allocator, front, 40 * UNIT - 1, &rest), 0);
	cr_assert(front->size == 40 && rest->offset == 40 && rest->size == 60);
	cr_assert(!block_is_free(rest) && !rest->owner && !rest->payer && rest->tag == 7);
	cr_assert_eq(front->region->live, 2);
	cr_assert_eq(suballocator_cut(&w->allocator, rest, 60 * UNIT, &none), 0);
	cr_assert_null(none, "nothing is left");
	suballocator_unite(&w->allocator, front);
	cr_assert(front->size == 100 && front->owner == w && front->region->live == 1);
	give(w, front);
	world_end(w);
}

Test(suballocator, a_part_given_back_joins_what_is_free_and_not_what_is_in_use)
{
	struct world *w = world_new(0);
	struct block *front, *rest;

	world_add(w, 0, 100 * UNIT);
	front = take(w, 50, 1);
	cr_assert_eq(suballocator_cut(&w->allocator, front, 20 * UNIT, &rest), 0);
	give(w, rest);
	cr_assert(block_is_free(front->after) && front->after->size == 80);
	suballocator_take(&w->allocator, front->after);
	cr_assert_null(take(w, 1, 1));
	suballocator_unite(&w->allocator, front);
	cr_assert(front->size == 100 && front->region->used == 100);
	give(w, front);
	world_end(w);
}

Test(suballocator, nothing_is_allocated_from_a_held_region)
{
	struct world *w = world_new(0);
	struct region *region = &w->places[0].region;

	world_add(w, 0, 100 * UNIT);
	give(w, take(w, 10, 1));
	suballocator_hold_region(&w->allocator, region);
	require_consistent(w);
	cr_assert(region_is_empty(region) && block_is_free(region->first));
	cr_assert_eq(w->allocator.free_units, 0);
	cr_assert_eq(suballocator_largest_free(&w->allocator), 0);
	cr_assert_null(take(w, 1, 1));
	suballocator_unhold_region(&w->allocator, region);
	require_consistent(w);
	cr_assert_not_null(take(w, 100, 1));
	world_end(w);
}

Test(suballocator, a_region_may_be_removed_while_it_is_held)
{
	struct world *w = world_new(0);

	world_add(w, 0, 100 * UNIT);
	give(w, take(w, 10, 1));
	suballocator_hold_region(&w->allocator, &w->places[0].region);
	world_remove(w, 0);
	world_end(w);
}

Test(suballocator, nothing_is_allocated_from_a_withdrawn_region_that_is_in_use)
{
	struct world *w = world_new(0);
	struct block *a, *b, *c, *other;
	struct region *gone, rest;

	world_add(w, 0, 4 * UNIT);
	gone = &w->places[0].region;
	a = take(w, 1, 1);
	b = take(w, 1, 1);
	c = take(w, 1, 1);
	cr_assert(a && b && c);
	suballocator_withdraw_region(&w->allocator, gone);
	cr_assert_eq(w->allocator.free_units, 0);
	cr_assert_null(take(w, 1, 1));
	/* what becomes free joins what is free, from whichever side, and is in no list */
	suballocator_free(&w->allocator, a);
	suballocator_free(&w->allocator, c);
	cr_assert_null(take(w, 1, 1));
	cr_assert_eq(suballocator_add_region(&w->allocator, &rest, 2 * UNIT), 0);
	other = take(w, 2, 1);
	cr_assert(other && other->region == &rest);
	suballocator_free(&w->allocator, b);
	cr_assert(region_is_empty(gone) && gone->first->size == 4);
	cr_assert_eq(w->allocator.free_units, 0);
	suballocator_free(&w->allocator, other);
	suballocator_remove_region(&w->allocator, &rest);
	suballocator_unhold_region(&w->allocator, gone);
	require_consistent(w);
	cr_assert_eq(w->allocator.free_units, 4);
	world_end(w);
}

Test(suballocator, a_region_has_up_to_two_tebibytes)
{
	struct world *w = world_new(0);
	const uint64_t most = (uint64_t)UINT32_MAX * UNIT;
	struct region region;
	struct block *b, *all;

	cr_assert_eq(suballocator_add_region(&w->allocator, &region, UNIT - 1), -EINVAL);
	cr_assert_eq(suballocator_add_region(&w->allocator, &region, most + UNIT), -EINVAL);
	cr_assert_eq(suballocator_add_region(&w->allocator, &region, UINT64_MAX), -EINVAL);
	cr_assert_eq(suballocator_add_region(&w->allocator, &region, most), 0);
	cr_assert_eq(suballocator_largest_free(&w->allocator), most);
	cr_assert_eq(suballocator_alloc(&w->allocator, most, UNIT, &all), 0);
	suballocator_free(&w->allocator, all);
	cr_assert_eq(suballocator_alloc(&w->allocator, 1, UNIT, &all), 0);
	cr_assert_eq(suballocator_alloc(&w->allocator, MIB, (uint64_t)1 << 40, &b), 0);
	cr_assert_eq(block_offset(b), (uint64_t)1 << 40);
	suballocator_free(&w->allocator, b);
	suballocator_free(&w->allocator, all);
	suballocator_remove_region(&w->allocator, &region);
	world_end(w);
}

Test(suballocator, requests_are_refused_or_rounded_and_outputs_left_alone)
{
	struct world *w = world_new(0);
	struct block *const untouched = (void *)&w->seed, *b = untouched;

	cr_assert_eq(suballocator_alloc(&w->allocator, 1, UNIT, &b), SUBALLOCATOR_FULL);
	world_add(w, 0, 100 * UNIT);
	cr_assert_eq(suballocator_alloc(&w->allocator, UINT64_MAX, UNIT, &b), SUBALLOCATOR_FULL);
	cr_assert_eq(suballocator_alloc(&w->allocator, 2048 * MIB * MIB, UNIT, &b),
		     SUBALLOCATOR_FULL);
	cr_assert_eq(suballocator_alloc(&w->allocator, 100 * UNIT + 1, UNIT, &b),
		     SUBALLOCATOR_FULL);
	cr_assert_eq(suballocator_alloc(&w->allocator, 1, 0, &b), -EINVAL);
	cr_assert_eq(suballocator_alloc(&w->allocator, 1, UNIT / 2, &b), -EINVAL);
	cr_assert_eq(suballocator_alloc(&w->allocator, 1, 3 * UNIT, &b), -EINVAL);
	cr_assert_eq(b, untouched);
	cr_assert_eq(suballocator_alloc(&w->allocator, 0, UNIT, &b), 0);
	cr_assert_eq(block_size(b), UNIT);
	cr_assert_eq(suballocator_alloc(&w->allocator, UNIT + 1, UNIT, &b), 0);
	cr_assert_eq(block_size(b), 2 * UNIT);
	cr_assert_eq(region_used_bytes(&w->places[0].region), 3 * UNIT);
	world_end(w);
}

Test(suballocator, new_memory_has_no_tag_and_parts_have_that_of_the_whole)
{
	struct world *w = world_new(0);
	struct block *b, *part;

	world_add(w, 0, 100 * UNIT);
	b = take(w, 50, 1);
	cr_assert_eq(b->tag, 0);
	b->tag = 7;
	give(w, b);
	/* the tag 0 of the other half says nothing against it */
	cr_assert_eq(w->places[0].region.first->tag, 7);
	b = take(w, 10, 1);
	part = take(w, 10, 16); /* with a piece before it, and one behind */
	cr_assert(b->tag == 7 && part->tag == 7);
	for (const struct block *each = w->places[0].region.first; each; each = each->after)
		cr_assert_eq(each->tag, 7);
	world_end(w);
}

Test(suballocator, what_had_different_tags_is_mixed_when_it_is_merged)
{
	struct world *w = world_new(0);
	struct block *b[3];

	world_add(w, 0, 30 * UNIT);
	for (uint64_t i = 0; i < 3; i++) {
		b[i] = take(w, 10, 1);
		b[i]->tag = 1 + i / 2; /* 1, 1, 2 */
	}
	give(w, b[1]);
	give(w, b[0]);
	cr_assert_eq(w->places[0].region.first->tag, 1);
	give(w, b[2]);
	cr_assert_eq(w->places[0].region.first->tag, SUBALLOCATOR_TAG_MIXED);
	b[0] = take(w, 10, 1);
	cr_assert_eq(b[0]->tag, SUBALLOCATOR_TAG_MIXED);
	/* what is mixed stays so beside anything, until somebody says otherwise */
	b[0]->tag = 0;
	give(w, b[0]);
	cr_assert_eq(w->places[0].region.first->tag, SUBALLOCATOR_TAG_MIXED);
	world_end(w);
}

Test(suballocator, tags_are_kept_while_a_region_is_held)
{
	struct world *w = world_new(0);
	struct region *region = &w->places[0].region;
	struct block *b;

	world_add(w, 0, 10 * UNIT);
	b = take(w, 10, 1);
	b->tag = 3;
	give(w, b);
	suballocator_hold_region(&w->allocator, region);
	suballocator_unhold_region(&w->allocator, region);
	cr_assert_eq(region->first->tag, 3);
	world_end(w);
}

static size_t allocated_bytes;

static void *counted(size_t alignment, size_t size)
{
	void *memory = NULL;

	allocated_bytes += size;
	return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

Test(suballocator, a_block_costs_72_bytes_and_a_share_of_its_chunk)
{
	enum { COUNT = 100000 };
	struct block **blocks = calloc(COUNT, sizeof(*blocks));
	struct world *w = world_new(0);
	struct region region;

	w->slab.allocate = counted;
	suballocator_add_region(&w->allocator, &region, (uint64_t)COUNT * 2 * UNIT);
	for (unsigned i = 0; i < COUNT; i++)
		cr_assert_not_null(blocks[i] = take(w, 1 + i % 3, 1));
	cr_assert_leq(allocated_bytes, 73 * (size_t)COUNT, "%zu bytes", allocated_bytes);
	for (unsigned i = 0; i < COUNT; i += 2)
		suballocator_free(&w->allocator, blocks[i]);
	cr_assert_leq(allocated_bytes, 73 * (size_t)COUNT, "free blocks cost no more");
	for (unsigned i = 1; i < COUNT; i += 2)
		suballocator_free(&w->allocator, blocks[i]);
	cr_assert(region_is_empty(&region) && region.first->size == region.size);
	cr_assert_eq(slab_live(&w->slab), 1);
	suballocator_remove_region(&w->allocator, &region);
	world_end(w);
	free(blocks);
}

Test(suballocator, pools_share_a_slab_and_nothing_else)
{
	struct world *w = world_new(0);
	struct suballocator other;
	struct region region;
	struct block *b;

	suballocator_init(&other, &w->slab);
	suballocator_add_region(&other, &region, 100 * UNIT);
	world_add(w, 0, 10 * UNIT);
	cr_assert_null(take(w, 11, 1));
	cr_assert_eq(suballocator_alloc(&other, 11 * UNIT, UNIT, &b), 0);
	suballocator_free(&other, b);
	cr_assert_eq(w->allocator.free_units, 10);
	suballocator_remove_region(&other, &region);
	suballocator_deinit(&other);
	world_end(w);
}
