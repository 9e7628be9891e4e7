/* SPDX-License-Identifier: MIT */
/*
 * What tests of the suballocator share: a world of a few regions, and a brute-force walk that says
 * what the free lists, the bitmaps and the counters have to be.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/broker/suballocator/suballocator_model.h"

/* ---- the world ---- */

uint32_t random_below(struct world *w, uint32_t bound)
{
	w->random = w->random * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)w->random * bound >> 32);
}

struct world *world_new(unsigned seed)
{
	struct world *w = calloc(1, sizeof(*w));

	w->seed = w->random = seed;
	slab_init(&w->slab, sizeof(struct block));
	suballocator_init(&w->allocator, &w->slab);
	return w;
}

void world_add(struct world *w, unsigned i, uint64_t size_bytes)
{
	require(w, suballocator_add_region(&w->allocator, &w->places[i].region, size_bytes) == 0);
	w->places[i].there = true;
	memset(w->places[i].units, 0, sizeof(w->places[i].units));
}

void world_remove(struct world *w, unsigned i)
{
	suballocator_remove_region(&w->allocator, &w->places[i].region);
	w->places[i].there = false;
}

void empty_region(struct world *w, const struct region *region)
{
	while (!region_is_empty(region)) {
		struct block *b = region->first;

		suballocator_free(&w->allocator, block_is_free(b) ? b->after : b);
	}
}

void world_end(struct world *w)
{
	for (unsigned i = 0; i < REGIONS; i++)
		if (w->places[i].there) {
			empty_region(w, &w->places[i].region);
			world_remove(w, i);
		}
	suballocator_deinit(&w->allocator);
	require(w, slab_live(&w->slab) == 0);
	slab_deinit(&w->slab);
	free(w);
}

/* ---- the walk ---- */

static void walk_region(struct world *w, const struct region *region, struct tally *tally)
{
	uint32_t offset = 0, used = 0, live = 0;
	const struct block *before = NULL;

	for (const struct block *b = region->first; b; before = b, b = b->after) {
		require(w, b->region == region && b->before == before);
		require(w, b->offset == offset && b->size > 0);
		offset += b->size;
		tally->blocks++;
		require(w, !b->gate);
		if (!block_is_free(b)) {
			used += b->size;
			live++;
			continue;
		}
		require(w, !before || !block_is_free(before));
		if (region->held)
			continue;
		tally->free_blocks++;
		tally->units += b->size;
		if (b->size > tally->largest)
			tally->largest = b->size;
	}
	require(w, offset == region->size && used == region->used && live == region->live);
	require(w, region_is_empty(region) ==
		       (region->first->size == region->size && block_is_free(region->first)));
}

struct tally require_consistent(struct world *w)
{
	const struct suballocator *s = &w->allocator;
	struct tally tally = {0};
	unsigned listed = 0;
	uint64_t below = 0;

	for (unsigned i = 0; i < REGIONS; i++)
		if (w->places[i].there)
			walk_region(w, &w->places[i].region, &tally);
	for (unsigned class = 0; class < SUBALLOCATOR_CLASSES; class ++) {
		const struct block *head = s->lists[class], *b = head;
		uint64_t largest = 0;

		require(w, (s->second_map[class / 32] >> class % 32 & 1) == (head != NULL));
		require(w, (s->first_map >> class / 32 & 1) == (s->second_map[class / 32] != 0));
		if (!head)
			continue;
		do {
			require(w, block_is_free(b) && !b->region->held);
			require(w, b->next_free->prev_free == b && b->prev_free->next_free == b);
			require(w, b->size > below);
			if (b->size > largest)
				largest = b->size;
			listed++;
			b = b->next_free;
		} while (b != head);
		below = largest;
	}
	require(w, listed == tally.free_blocks);
	require(w, s->free_units == tally.units);
	require(w, suballocator_largest_free(s) == tally.largest * UNIT);
	require(w, slab_live(&w->slab) == tally.blocks);
	return tally;
}
