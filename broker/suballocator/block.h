/* SPDX-License-Identifier: MIT */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fence_set;

/* Offsets and sizes are counted in units, 32 bits of them: a region is smaller than 2 TiB. */
#define SUBALLOCATOR_UNIT 512u

/*
 * A piece of a region, free or in use. In use it is valid from the alloc that returned it to its
 * free. Callers read region, offset and size, and own `owner`, `payer`, `gate`, `tag` and `record`;
 * everything else is the suballocator's. Owner, payer and gate are NULL when a block is allocated.
 */
struct block {
	struct region *region;
	struct block *before, *after; /* neighbours in the region, NULL at its ends */
	union {
		struct block *next_free;
		void *owner; /* the caller's, while in use */
	};
	void *payer;             /* the caller's, while in use */
	struct block *prev_free; /* NULL if and only if the block is in use */
	struct fence_set *gate; /* the caller's: work that still runs on it; NULL in a free block */
	uint32_t tag;           /* the caller's word for what the memory contains */
	uint32_t record;        /* the caller's: its record in the journal; 0 in a free block */
	uint32_t offset, size;  /* in units */
};

/*
 * Tags are kept through everything that happens to a block: its parts inherit it, and what is
 * merged has both. New memory has the tag 0, which joins with any other. Different ones join to
 * SUBALLOCATOR_TAG_MIXED.
 */
#define SUBALLOCATOR_TAG_MIXED UINT32_MAX

static inline uint32_t suballocator_join_tags(uint32_t a, uint32_t b)
{
	if (!a || !b)
		return a | b;
	return a == b ? a : SUBALLOCATOR_TAG_MIXED;
}

static_assert(sizeof(struct block) <= 72, "a million blocks have to be cheap");

/* What backs a region embeds this struct. It must not move while it is part of a suballocator. */
struct region {
	struct block *first; /* at offset 0, the same one for the life of the region */
	uint32_t size, used; /* in units */
	uint32_t live;       /* blocks in use */
	bool held;
};

/* Takes the gate, and with it the reference: the block has none afterwards. */
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

/* In bytes. */
static inline uint64_t block_offset(const struct block *block)
{
	return (uint64_t)block->offset * SUBALLOCATOR_UNIT;
}

static inline uint64_t block_size(const struct block *block)
{
	return (uint64_t)block->size * SUBALLOCATOR_UNIT;
}

/* Whether no block is in use: then the region is one free block, region->first. */
static inline bool region_is_empty(const struct region *region)
{
	return region->live == 0;
}

static inline uint64_t region_used_bytes(const struct region *region)
{
	return (uint64_t)region->used * SUBALLOCATOR_UNIT;
}
