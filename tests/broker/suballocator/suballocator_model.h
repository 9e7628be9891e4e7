/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <criterion/criterion.h>

#include "base/slab.h"
#include "broker/suballocator/suballocator.h"

#define UNIT SUBALLOCATOR_UNIT
#define MIB  ((uint64_t)1 << 20)

/* ---- the world: an allocator, its regions, and what is known of each unit ---- */

enum { REGIONS = 5, UNITS_MAX = 4096, BLOCKS_MAX = REGIONS * UNITS_MAX };

struct unit {
	struct block *user;
	uint64_t tag; /* of its last user's */
};

struct place {
	struct region region;
	bool there;
	struct unit units[UNITS_MAX];
};

struct world {
	struct slab slab;
	struct suballocator allocator;
	struct place places[REGIONS];
	struct block *blocks[BLOCKS_MAX];
	unsigned block_count;
	unsigned seed, step; /* to be named when something is wrong */
	uint32_t random;
};

/* cr_assert is slow, and does not know the seed. */
#define require(w, condition)                                                                \
	do {                                                                                 \
		if (!(condition))                                                            \
			cr_assert_fail("seed %u, step %u, line %d: not true: %s", (w)->seed, \
				       (w)->step, __LINE__, #condition);                     \
	} while (0)

/** With no regions. @seed is where random_below() begins. */
struct world *world_new(unsigned seed);

/** The @i-th region of the world, which must not be there. */
void world_add(struct world *w, unsigned i, uint64_t size_bytes);

/** Removes it. It must be empty. */
void world_remove(struct world *w, unsigned i);

/** Frees everything, and requires that nothing is left of it: no descriptor. */
void world_end(struct world *w);

/** Frees the blocks of a region that are still in use. */
void empty_region(struct world *w, const struct region *region);

/** Evenly, from 0 to @bound - 1. */
uint32_t random_below(struct world *w, uint32_t bound);

/** What there is in all regions. Held ones have no free blocks. */
struct tally {
	uint64_t units, largest;
	unsigned free_blocks, blocks;
};

/** Requires everything that can be said without knowing what happened before. */
struct tally require_consistent(struct world *w);
