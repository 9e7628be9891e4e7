/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "broker/suballocator/block.h"

/*
 * Carves blocks out of regions. A suballocator serves one pool; its regions are the pool's
 * segments. It never touches the memory it manages: a block is a descriptor, taken from a slab
 * which all suballocators of the broker share. One thread at a time. Alloc and free take constant
 * time, whatever the number of blocks and regions.
 */

struct slab;

/* suballocator_alloc: no free block is large enough. The caller may add a region and try again. */
#define SUBALLOCATOR_FULL 1

#define SUBALLOCATOR_FIRST_LEVELS  28u
#define SUBALLOCATOR_SECOND_LEVELS 32u
#define SUBALLOCATOR_CLASSES       (SUBALLOCATOR_FIRST_LEVELS * SUBALLOCATOR_SECOND_LEVELS)

struct suballocator {
	struct slab *blocks;
	uint64_t free_units; /* units in the lists, so held regions do not count */
	uint32_t regions;
	uint32_t first_map; /* bit f: second_map[f] is not zero */
	uint32_t second_map[SUBALLOCATOR_FIRST_LEVELS];
	/* Rings of free blocks, the one freed last at the head. */
	struct block *lists[SUBALLOCATOR_CLASSES];
};

/* `blocks` (objects of sizeof(struct block)) is borrowed. Cannot fail. */
void suballocator_init(struct suballocator *allocator, struct slab *blocks);

/* All regions must have been removed. */
void suballocator_deinit(struct suballocator *allocator);

/* Adds memory, all of it free. What `region` contained does not matter. A last part smaller than a
 * unit is left unused. 0, -ENOMEM, or -EINVAL for less than a unit or more than UINT32_MAX. */
int suballocator_add_region(struct suballocator *allocator, struct region *region,
			    uint64_t size_bytes);

/* The region must be empty; it may be held. */
void suballocator_remove_region(struct suballocator *allocator, struct region *region);

/* Takes an empty region out of circulation, while its users are asked to unmap it, and puts it
 * back. A held region counts as neither free nor used. */
void suballocator_hold_region(struct suballocator *allocator, struct region *region);
void suballocator_unhold_region(struct suballocator *allocator, struct region *region);

/* Does the same to a region of which some is in use: nothing of it is handed out any more. */
void suballocator_withdraw_region(struct suballocator *allocator, struct region *region);

/*
 * Finds room for size_bytes, rounded up to units, at least one. The alignment is a power of two, at
 * least SUBALLOCATOR_UNIT, relative to the start of the region. 0 and the block in *out;
 * SUBALLOCATOR_FULL; -ENOMEM when a descriptor could not be had; -EINVAL for another alignment.
 * Nothing has changed and *out is as it was unless 0 is returned.
 *
 * "Full" is said after a bounded look, which may overlook one fit among many near ones. It is never
 * said when a region just added is large enough, whatever the alignment: after growing, an alloc
 * that failed succeeds.
 */
int suballocator_alloc(struct suballocator *allocator, uint64_t size_bytes,
		       uint64_t alignment_bytes, struct block **out);

/*
 * Gives a block back, which has no gate: while work still runs on memory it is not given back. Does
 * not fail and does not allocate. The descriptor is gone afterwards.
 */
void suballocator_free(struct suballocator *allocator, struct block *block);

/* Returns the size of the largest free block: exactly, unless thousands are of nearly its size. (An
 * alloc of that size may yet say that the pool is full, when the block lies behind many others of
 * nearly its size.) */
uint64_t suballocator_largest_free(const struct suballocator *allocator);

/* Makes a free block one in use, as it is. */
void suballocator_take(struct suballocator *allocator, struct block *block);

/*
 * Cuts a block in use after size_bytes, rounded up to units. What lies behind is a block in use of
 * its own, with the same tag and without the caller's pointers: in *rest, NULL when nothing is
 * left. 0, or -ENOMEM with nothing changed.
 */
int suballocator_cut(struct suballocator *allocator, struct block *block, uint64_t size_bytes,
		     struct block **rest);

/* Does the reverse: makes one of a block in use and the one behind it, which is in use as well and
 * has no gate. The one keeps the first one's pointers. */
void suballocator_unite(struct suballocator *allocator, struct block *block);
