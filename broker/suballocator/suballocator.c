/* SPDX-License-Identifier: MIT */
/*
 * Which part of a segment is whose. Small buffers are carved out of segments that the driver gave
 * in one piece, so that a warm allocation asks no driver; this file finds the piece.
 *
 * The method is TLSF (Masmano, Ripoll, Crespo and Real, 2004). Free blocks are filed by size in
 * classes: by power of two, and each power divided into 32 equal steps. Two levels of bitmaps say
 * which classes have blocks, so that the smallest class that fits is two bit scans away. Below 32
 * units a class is a single size (free_list.c). A freed block is merged with its free neighbours at
 * once; therefore two free blocks are never neighbours, and an empty region is one block.
 *
 * It departs from the paper in two ways. Descriptors lie outside the memory, which may be on a GPU
 * and which clients can write: nothing they do there can mislead the broker. And the lists belong
 * to the pool, the neighbours to the region.
 *
 * For this file, memory on which work still runs is in use: reuse.c gives it back when that is
 * done.
 *
 * This file knows units and neighbours. It must not know what a segment is made of, what a fence
 * is, or who owns a block; it makes no system call and never looks into the memory.
 */
#include <errno.h>

#include "base/slab.h"
#include "broker/suballocator/free_list.h"
#include "broker/suballocator/suballocator.h"

/* ---- neighbours ---- */

/* Cuts `block` after `size` units; the new descriptor `rest` gets what lies behind. */
static void split(struct block *block, uint32_t size, struct block *rest)
{
	*rest = (struct block){
	    .region = block->region,
	    .before = block,
	    .after = block->after,
	    .tag = block->tag,
	    .offset = block->offset + size,
	    .size = block->size - size,
	};
	if (block->after)
		block->after->before = rest;
	block->after = rest;
	block->size = size;
}

/* Does the reverse. The lower descriptor stays, so that a region's first block is always the
 * same. */
static void join(struct suballocator *allocator, struct block *block)
{
	struct block *rest = block->after;

	block->tag = suballocator_join_tags(block->tag, rest->tag);
	block->size += rest->size;
	block->after = rest->after;
	if (block->after)
		block->after->before = block;
	slab_free(allocator->blocks, rest);
}

/* ---- regions ---- */

void suballocator_init(struct suballocator *allocator, struct slab *blocks)
{
	*allocator = (struct suballocator){.blocks = blocks};
}

void suballocator_deinit(struct suballocator *allocator)
{
	assert(allocator->regions == 0 && allocator->free_units == 0);
	allocator->blocks = NULL;
}

int suballocator_add_region(struct suballocator *allocator, struct region *region,
			    uint64_t size_bytes)
{
	uint64_t size = size_bytes / SUBALLOCATOR_UNIT;
	struct block *block;

	if (size == 0 || size > UINT32_MAX)
		return -EINVAL;
	block = slab_alloc(allocator->blocks);
	if (!block)
		return -ENOMEM;
	block->region = region;
	block->size = (uint32_t)size;
	*region = (struct region){.first = block, .size = block->size};
	free_list_insert(allocator, block);
	allocator->regions++;
	return 0;
}

void suballocator_hold_region(struct suballocator *allocator, struct region *region)
{
	assert(region_is_empty(region) && !region->held);
	free_list_remove(allocator, region->first);
	region->held = true;
}

void suballocator_withdraw_region(struct suballocator *allocator, struct region *region)
{
	assert(!region->held);
	for (struct block *block = region->first; block; block = block->after)
		if (block_is_free(block))
			free_list_remove(allocator, block);
	region->held = true;
}

void suballocator_unhold_region(struct suballocator *allocator, struct region *region)
{
	assert(region->held);
	region->held = false;
	free_list_insert(allocator, region->first);
}

void suballocator_remove_region(struct suballocator *allocator, struct region *region)
{
	assert(region_is_empty(region) && region->first->size == region->size);
	if (!region->held)
		free_list_remove(allocator, region->first);
	slab_free(allocator->blocks, region->first);
	region->first = NULL;
	allocator->regions--;
}

/* ---- alloc and free ---- */

/* Turns a part of a free block into a block in use: all of that, or nothing. */
static int carve(struct suballocator *allocator, const struct search *found, struct block **out)
{
	struct block *whole = found->block, *block = whole, *tail = NULL;
	uint32_t size = found->size, front_size = found->offset - whole->offset;
	bool has_tail = whole->size - front_size > size;

	if (front_size) {
		block = slab_alloc(allocator->blocks);
		if (!block)
			return -ENOMEM;
	}
	if (has_tail) {
		tail = slab_alloc(allocator->blocks);
		if (!tail) {
			if (block != whole)
				slab_free(allocator->blocks, block);
			return -ENOMEM;
		}
	}

	free_list_remove(allocator, whole);
	if (front_size) {
		split(whole, front_size, block);
		free_list_insert(allocator, whole);
	}
	if (has_tail) {
		split(block, size, tail);
		free_list_insert(allocator, tail);
	}
	block->prev_free = NULL;
	block->owner = block->payer = NULL;
	block->region->used += size;
	block->region->live++;
	*out = block;
	return 0;
}

int suballocator_alloc(struct suballocator *allocator, uint64_t size_bytes,
		       uint64_t alignment_bytes, struct block **out)
{
	uint64_t size = size_bytes / SUBALLOCATOR_UNIT + (size_bytes % SUBALLOCATOR_UNIT != 0);
	struct search search;

	if (alignment_bytes < SUBALLOCATOR_UNIT || (alignment_bytes & (alignment_bytes - 1)))
		return -EINVAL;
	if (size == 0)
		size = 1;
	if (size > UINT32_MAX)
		return SUBALLOCATOR_FULL;
	search = (struct search){
	    .size = (uint32_t)size,
	    .alignment = alignment_bytes / SUBALLOCATOR_UNIT,
	};
	if (!free_list_find(allocator, &search))
		return SUBALLOCATOR_FULL;
	return carve(allocator, &search, out);
}

void suballocator_take(struct suballocator *allocator, struct block *block)
{
	assert(block_is_free(block) && !block->region->held);
	free_list_remove(allocator, block);
	block->prev_free = NULL;
	block->owner = block->payer = NULL;
	block->region->used += block->size;
	block->region->live++;
}

void suballocator_unite(struct suballocator *allocator, struct block *block)
{
	assert(!block_is_free(block) && !block_is_free(block->after) && !block->after->gate);
	join(allocator, block);
	block->region->live--;
}

int suballocator_cut(struct suballocator *allocator, struct block *block, uint64_t size_bytes,
		     struct block **rest)
{
	uint64_t size = size_bytes / SUBALLOCATOR_UNIT + (size_bytes % SUBALLOCATOR_UNIT != 0);
	struct block *behind;

	assert(!block_is_free(block) && size > 0 && size <= block->size);
	*rest = NULL;
	if (size == block->size)
		return 0;
	behind = slab_alloc(allocator->blocks);
	if (!behind)
		return -ENOMEM;
	split(block, (uint32_t)size, behind);
	block->region->live++;
	*rest = behind;
	return 0;
}

void suballocator_free(struct suballocator *allocator, struct block *block)
{
	struct region *region = block->region;

	assert(!block_is_free(block) && !block->gate);
	region->used -= block->size;
	region->live--;

	if (block->after && block_is_free(block->after)) {
		if (!region->held)
			free_list_remove(allocator, block->after);
		join(allocator, block);
	}
	if (block->before && block_is_free(block->before)) {
		block = block->before;
		if (!region->held)
			free_list_remove(allocator, block);
		join(allocator, block);
	}
	if (region->held)
		block->next_free = block->prev_free = block; /* free, though in no list */
	else
		free_list_insert(allocator, block);
}
