/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_SUBALLOCATOR_H
#define BROKER_MEMORY_SUBALLOCATOR_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Carves blocks out of regions. A suballocator serves one pool; its regions are the pool's
 * segments. It never touches the memory it manages: a block is a descriptor, taken from a slab
 * which all suballocators of the broker share. One thread at a time. Alloc and free take constant
 * time, whatever the number of blocks and regions.
 */

struct slab;

/* Offsets and sizes are counted in units, 32 bits of them: a region is smaller than 2 TiB. */
#define SUBALLOCATOR_UNIT 512u

/* suballocator_alloc: no free block is large enough. The caller may add a region and try again. */
#define SUBALLOCATOR_FULL 1

#define SUBALLOCATOR_FIRST_LEVELS  28u
#define SUBALLOCATOR_SECOND_LEVELS 32u
#define SUBALLOCATOR_CLASSES       (SUBALLOCATOR_FIRST_LEVELS * SUBALLOCATOR_SECOND_LEVELS)

struct fence_set;

/*
 * A piece of a region, free or in use. Valid from the alloc that returned it to its free. Callers
 * read region, offset and size, and own `owner`, `payer`, `gate` and `tag`; everything else is the
 * suballocator's. The first three are NULL when a block is allocated.
 */
struct block {
	struct region *region;
	struct block *before, *after; /* neighbours in the region, NULL at its ends */
	union {
		struct block *next_free;
		void *owner; /* the caller's, while in use */
	};
	void *payer;             /* as well */
	struct block *prev_free; /* NULL if and only if the block is in use */
	struct fence_set *gate;  /* as well: work that still runs on it. NULL in a free block */
	uint64_t tag;            /* the caller's word for what the memory contains */
	uint32_t offset, size;   /* in units */
};

/*
 * Tags are kept through everything that happens to a block: its parts inherit it, and what is
 * merged has both. New memory has the tag 0, which joins with any other; different ones do not.
 */
#define SUBALLOCATOR_TAG_MIXED UINT64_MAX

static inline uint64_t suballocator_join_tags(uint64_t a, uint64_t b)
{
	if (!a || !b)
		return a | b;
	return a == b ? a : SUBALLOCATOR_TAG_MIXED;
}

static_assert(sizeof(struct block) <= 72, "a million blocks have to be cheap");

/* Embedded by what backs it. Must not move while it is part of a suballocator. */
struct region {
	struct block *first; /* at offset 0, the same one for the life of the region */
	uint32_t size, used; /* in units */
	uint32_t live;       /* blocks in use */
	bool held;
};

struct suballocator {
	struct slab *blocks;
	uint64_t free_units; /* in the lists: held regions do not count */
	uint32_t regions;
	uint32_t first_map; /* bit f: second_map[f] is not zero */
	uint32_t second_map[SUBALLOCATOR_FIRST_LEVELS];
	/* Rings of free blocks, the one freed last at the head. */
	struct block *lists[SUBALLOCATOR_CLASSES];
};

/* `blocks` (objects of sizeof(struct block)) is borrowed. Cannot fail. */
void suballocator_init(struct suballocator *allocator, struct slab *blocks);

/* All regions must have been removed. */
void suballocator_done(struct suballocator *allocator);

/*
 * Adds memory, all of it free. What `region` contained does not matter. A last part
 * smaller than a unit is left unused. 0, -ENOMEM, or -EINVAL for less than a unit or more than
 * UINT32_MAX units.
 */
int suballocator_add_region(struct suballocator *allocator, struct region *region,
			    uint64_t size_bytes);

/* The region must be empty; it may be held. */
void suballocator_remove_region(struct suballocator *allocator, struct region *region);

/*
 * Takes an empty region out of circulation, while its users are asked to unmap it, and puts it
 * back. A held region counts as neither free nor used.
 */
void suballocator_hold_region(struct suballocator *allocator, struct region *region);
void suballocator_unhold_region(struct suballocator *allocator, struct region *region);

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

/*
 * Size of the largest free block: exactly, unless thousands are of nearly its size. (An alloc of
 * that size may yet say that the pool is full, when the block lies behind many others of nearly its
 * size.)
 */
uint64_t suballocator_largest_free(const struct suballocator *allocator);

/* Sum of the free blocks, held regions left out. */
uint64_t suballocator_free_bytes(const struct suballocator *allocator);

/* The gate, and with it the reference; the block has none afterwards. */
static inline struct fence_set *block_take_gate(struct block *block)
{
	struct fence_set *gate = block->gate;

	block->gate = NULL;
	return gate;
}

static inline bool block_is_free(const struct block *block)
{
	return block->prev_free != NULL;
}

/* A free block becomes one in use, as it is. */
void suballocator_take(struct suballocator *allocator, struct block *block);

/*
 * Cuts a block in use after size_bytes, rounded up to units. What lies behind is a block in use of
 * its own, with the same tag and without the caller's pointers: in *rest, NULL when nothing is
 * left. 0, or -ENOMEM with nothing changed.
 */
int suballocator_cut(struct suballocator *allocator, struct block *block, uint64_t size_bytes,
		     struct block **rest);

/* The reverse: a block in use and the one behind it, in use as well, become one, which keeps the
 * caller's pointers of the first. */
void suballocator_unite(struct suballocator *allocator, struct block *block);

/* In bytes. */
static inline uint64_t block_offset(const struct block *block)
{
	return (uint64_t)block->offset * SUBALLOCATOR_UNIT;
}

static inline uint64_t block_size(const struct block *block)
{
	return (uint64_t)block->size * SUBALLOCATOR_UNIT;
}

/* No block is in use: then the region is one free block, region->first. */
static inline bool region_is_empty(const struct region *region)
{
	return region->live == 0;
}

static inline uint64_t region_used_bytes(const struct region *region)
{
	return (uint64_t)region->used * SUBALLOCATOR_UNIT;
}

#endif
