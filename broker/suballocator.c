/* SPDX-License-Identifier: MIT */
/*
 * Which part of a segment is whose. Small buffers are carved out of segments that the driver gave
 * in one piece, so that a warm allocation asks no driver; this file finds the piece.
 *
 * The method is TLSF (Masmano, Ripoll, Crespo and Real, 2004). Free blocks are filed by size in
 * classes: by power of two, and each power divided into 32 equal steps. Two levels of bitmaps say
 * which classes have blocks, so that the smallest class that fits is two bit scans away. Below 32
 * units a class is a single size. A freed block is merged with its free neighbours at once;
 * therefore two free blocks are never neighbours, and an empty region is one block.
 *
 * It departs from the paper in three ways. Descriptors lie outside the memory, which may be on a
 * GPU and which clients can write: nothing they do there can mislead the broker. The lists are of
 * the pool, the neighbours of the region. And a free block may be gated by fences of work that
 * still runs on it; the lists keep clean blocks in front, so that within a class memory that nobody
 * has to wait for goes first.
 *
 * This file knows units and neighbours. It must not know what a segment is made of, what a fence
 * is, or who owns a block; it makes no system call and never looks into the memory.
 */
#include <errno.h>

#include "broker/slab.h"
#include "broker/suballocator.h"

#define SECOND_LEVEL_BITS 5u

static_assert(SUBALLOCATOR_SECOND_LEVELS == 1u << SECOND_LEVEL_BITS, "the steps of a power of two");
static_assert(SUBALLOCATOR_FIRST_LEVELS == 32u - SECOND_LEVEL_BITS + 1, "up to 32 bits of units");

/*
 * How many free blocks an allocation looks at, at most, before and after the search that cannot
 * miss: the first to put blocks back into the holes that blocks of the same odd size left, the
 * second before saying that a pool is full.
 */
#define SHORT_LOOK 4u
#define LONG_LOOK  64u
#define WHOLE_LIST 4096u /* for a figure in a report, and still not a stall */

struct search {
	uint32_t size;
	uint64_t alignment;
	/* What was found: a free block, and where in its region the new one will start. */
	struct block *block;
	uint32_t offset;
};

/* ---- classes ---- */

static uint32_t highest_bit(uint32_t value)
{
	return 31u - (uint32_t)__builtin_clz(value);
}

static uint32_t lowest_bit(uint32_t value)
{
	return (uint32_t)__builtin_ctz(value);
}

/* The class in which a block of this size is filed. Larger blocks never have a lower class. */
static uint32_t class_of(uint32_t size)
{
	uint32_t step;

	if (size < SUBALLOCATOR_SECOND_LEVELS)
		return size;
	step = highest_bit(size) - SECOND_LEVEL_BITS;
	return ((step + 1) << SECOND_LEVEL_BITS) + (size >> step) - SUBALLOCATOR_SECOND_LEVELS;
}

/* The lowest class of which every block is at least this large; may be SUBALLOCATOR_CLASSES. */
static uint32_t class_that_fits(uint64_t size)
{
	if (size >= SUBALLOCATOR_SECOND_LEVELS && size <= UINT32_MAX)
		size += (1u << (highest_bit((uint32_t)size) - SECOND_LEVEL_BITS)) - 1;
	return size <= UINT32_MAX ? class_of((uint32_t)size) : SUBALLOCATOR_CLASSES;
}

/* The lowest class from `class` on that has a block, or SUBALLOCATOR_CLASSES. */
static uint32_t next_class(const struct suballocator *allocator, uint32_t class)
{
	uint32_t first = class >> SECOND_LEVEL_BITS, map;

	if (class >= SUBALLOCATOR_CLASSES)
		return SUBALLOCATOR_CLASSES;
	map = allocator->second_map[first] & (~0u << (class & (SUBALLOCATOR_SECOND_LEVELS - 1)));
	if (!map) {
		uint32_t firsts = allocator->first_map & (~0u << (first + 1));

		if (!firsts)
			return SUBALLOCATOR_CLASSES;
		first = lowest_bit(firsts);
		map = allocator->second_map[first];
	}
	return (first << SECOND_LEVEL_BITS) + lowest_bit(map);
}

/* ---- free lists ---- */

static void list_insert(struct suballocator *allocator, struct block *block)
{
	uint32_t class = class_of(block->size);
	struct block *head = allocator->lists[class];

	if (head) {
		block->next_free = head;
		block->prev_free = head->prev_free;
		head->prev_free->next_free = block;
		head->prev_free = block;
	} else {
		block->next_free = block->prev_free = block;
		allocator->first_map |= 1u << (class >> SECOND_LEVEL_BITS);
		allocator->second_map[class >> SECOND_LEVEL_BITS] |=
		    1u << (class & (SUBALLOCATOR_SECOND_LEVELS - 1));
	}
	/* In a ring, before the head is after the tail: only who is head makes the difference. */
	if (!head || !block->gate)
		allocator->lists[class] = block;
	allocator->free_units += block->size;
}

static void list_remove(struct suballocator *allocator, struct block *block)
{
	uint32_t class = class_of(block->size), first = class >> SECOND_LEVEL_BITS;

	if (block->next_free == block) {
		allocator->lists[class] = NULL;
		allocator->second_map[first] &= ~(1u << (class & (SUBALLOCATOR_SECOND_LEVELS - 1)));
		if (!allocator->second_map[first])
			allocator->first_map &= ~(1u << first);
	} else {
		block->prev_free->next_free = block->next_free;
		block->next_free->prev_free = block->prev_free;
		if (allocator->lists[class] == block)
			allocator->lists[class] = block->next_free;
	}
	/* Still free, though in no list: a ring of its own. */
	block->next_free = block->prev_free = block;
	allocator->free_units -= block->size;
}

/* ---- gates ---- */

static struct fence_set *unite(const struct suballocator *allocator, struct fence_set *a,
			       struct fence_set *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a == b) { /* two halves of what was one block */
		allocator->ops->drop(b);
		return a;
	}
	return allocator->ops->merge(a, b);
}

static struct fence_set *prune(const struct suballocator *allocator, struct fence_set *gate)
{
	return gate ? allocator->ops->prune(gate) : NULL;
}

/* ---- neighbours ---- */

/* Cuts `block` after `size` units; the new descriptor `rest` gets what lies behind. */
static void split(const struct suballocator *allocator, struct block *block, uint32_t size,
		  struct block *rest)
{
	*rest = (struct block){
	    .region = block->region,
	    .before = block,
	    .after = block->after,
	    .gate = allocator->ops->share(block->gate),
	    .tag = block->tag,
	    .offset = block->offset + size,
	    .size = block->size - size,
	};
	if (block->after)
		block->after->before = rest;
	block->after = rest;
	block->size = size;
}

/* The reverse. The lower descriptor stays, so that a region's first block is always the same. */
static void join(struct suballocator *allocator, struct block *block)
{
	struct block *rest = block->after;

	/*
	 * Clean memory becomes gated when what it is merged with is. Look again first whether those
	 * fences are still ahead. If they are, merge all the same: a gate is gone in milliseconds,
	 * fragmentation stays.
	 */
	if (!block->gate || !rest->gate) {
		block->gate = prune(allocator, block->gate);
		rest->gate = prune(allocator, rest->gate);
	}
	block->gate = unite(allocator, block->gate, rest->gate);
	block->tag = suballocator_join_tags(block->tag, rest->tag);
	block->size += rest->size;
	block->after = rest->after;
	if (block->after)
		block->after->before = block;
	slab_free(allocator->blocks, rest);
}

/* ---- regions ---- */

void suballocator_init(struct suballocator *allocator, const struct suballocator_ops *ops,
		       struct slab *blocks)
{
	*allocator = (struct suballocator){.ops = ops, .blocks = blocks};
}

void suballocator_done(struct suballocator *allocator)
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
	list_insert(allocator, block);
	allocator->regions++;
	return 0;
}

void suballocator_hold_region(struct suballocator *allocator, struct region *region)
{
	assert(region_is_empty(region) && !region->held);
	list_remove(allocator, region->first);
	region->held = true;
}

void suballocator_unhold_region(struct suballocator *allocator, struct region *region)
{
	assert(region->held);
	region->held = false;
	list_insert(allocator, region->first);
}

bool suballocator_region_is_gated(struct suballocator *allocator, struct region *region)
{
	struct block *block = region->first;

	assert(region_is_empty(region));
	if (!block->gate)
		return false;
	block->gate = prune(allocator, block->gate);
	if (block->gate)
		return true;
	if (!region->held) {
		/* To the front, where allocations look for what is clean. */
		list_remove(allocator, block);
		list_insert(allocator, block);
	}
	return false;
}

void suballocator_remove_region(struct suballocator *allocator, struct region *region)
{
	assert(region_is_empty(region) && region->first->size == region->size);
	if (!region->held)
		list_remove(allocator, region->first);
	if (region->first->gate)
		allocator->ops->drop(block_take_gate(region->first));
	slab_free(allocator->blocks, region->first);
	region->first = NULL;
	allocator->regions--;
}

/* ---- alloc and free ---- */

static bool fits(struct search *search, struct block *block)
{
	uint64_t offset = (block->offset + search->alignment - 1) & ~(search->alignment - 1);

	if (offset + search->size > (uint64_t)block->offset + block->size)
		return false;
	search->block = block;
	search->offset = (uint32_t)offset;
	return true;
}

/* Looks at up to `limit` free blocks, `each` of a class, in `class` first, then in larger ones. */
static bool look(const struct suballocator *allocator, struct search *search, uint32_t class,
		 uint32_t limit, uint32_t each)
{
	for (class = next_class(allocator, class); class < SUBALLOCATOR_CLASSES;
	     class = next_class(allocator, class + 1)) {
		struct block *block = allocator->lists[class];
		uint32_t left = each;

		do {
			if (limit-- == 0)
				return false;
			if (fits(search, block))
				return true;
			block = block->next_free;
		} while (--left > 0 && block != allocator->lists[class]);
	}
	return false;
}

static bool find(const struct suballocator *allocator, struct search *search)
{
	uint32_t exact = class_of(search->size);
	/* In any block of this class there is room wherever the alignment falls. */
	uint32_t safe = class_that_fits(search->size + search->alignment - 1);

	/*
	 * The class of the size itself: a block in it may be too small, and TLSF would pass it by.
	 * But a pool of equal buffers, of a size that is not where a class begins, has all its
	 * holes there, and would cut up fresh memory as long as there is any. So look at a few.
	 * From there it goes on to the next larger class, where every block is large enough, and
	 * may even be aligned.
	 */
	if (look(allocator, search, exact, SHORT_LOOK, SHORT_LOOK))
		return true;
	if (look(allocator, search, safe, 1, 1))
		return true;
	/* What is left is too small, or just large enough, or large enough if it is aligned. */
	if (look(allocator, search, exact, LONG_LOOK, LONG_LOOK))
		return true;
	/*
	 * With an alignment those may have been crooked ones of the lower classes. A whole region
	 * is aligned to everything, and a new one is at the head of its class.
	 */
	return search->alignment > 1 && look(allocator, search, exact, SUBALLOCATOR_CLASSES, 1);
}

/* Turns a part of a free block into a block in use. All or nothing. */
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

	list_remove(allocator, whole);
	/* What stays free is filed anew: do not call it gated by what has passed. */
	if (front_size || has_tail)
		whole->gate = prune(allocator, whole->gate);
	if (front_size) {
		split(allocator, whole, front_size, block);
		list_insert(allocator, whole);
	}
	if (has_tail) {
		split(allocator, block, size, tail);
		list_insert(allocator, tail);
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
	if (!find(allocator, &search))
		return SUBALLOCATOR_FULL;
	return carve(allocator, &search, out);
}

struct block *suballocator_take_neighbour(struct suballocator *allocator, struct block *block)
{
	struct block *free = block->after;

	if (!free || !block_is_free(free))
		free = block->before;
	if (!free || !block_is_free(free))
		return NULL;
	list_remove(allocator, free);
	free->prev_free = NULL;
	free->owner = free->payer = NULL;
	free->region->used += free->size;
	free->region->live++;
	return free;
}

void suballocator_free(struct suballocator *allocator, struct block *block, struct fence_set *gate)
{
	struct region *region = block->region;

	assert(!block_is_free(block));
	region->used -= block->size;
	region->live--;
	block->gate = unite(allocator, block->gate, gate);

	if (block->after && block_is_free(block->after)) {
		list_remove(allocator, block->after);
		join(allocator, block);
	}
	if (block->before && block_is_free(block->before)) {
		block = block->before;
		list_remove(allocator, block);
		join(allocator, block);
	}
	list_insert(allocator, block);
}

uint64_t suballocator_free_bytes(const struct suballocator *allocator)
{
	return allocator->free_units * SUBALLOCATOR_UNIT;
}

uint64_t suballocator_largest_free(const struct suballocator *allocator)
{
	uint32_t first, class, largest = 0;
	const struct block *block;

	if (!allocator->first_map)
		return 0;
	first = highest_bit(allocator->first_map);
	class = (first << SECOND_LEVEL_BITS) + highest_bit(allocator->second_map[first]);
	block = allocator->lists[class];
	for (uint32_t looked_at = 0; looked_at < WHOLE_LIST; looked_at++) {
		if (block->size > largest)
			largest = block->size;
		block = block->next_free;
		if (block == allocator->lists[class])
			break;
	}
	return (uint64_t)largest * SUBALLOCATOR_UNIT;
}
