/* SPDX-License-Identifier: MIT */
/*
 * The free blocks of a suballocator, filed by size: which class a size belongs to, which classes
 * have blocks, and which block is to be carved up for a request. This file knows nothing of
 * neighbours.
 */
#include "broker/suballocator/free_list.h"

#define SECOND_LEVEL_BITS 5u

static_assert(SUBALLOCATOR_SECOND_LEVELS == 1u << SECOND_LEVEL_BITS, "the steps of a power of two");
static_assert(SUBALLOCATOR_FIRST_LEVELS == 32u - SECOND_LEVEL_BITS + 1, "up to 32 bits of units");

/*
 * How many free blocks an allocation looks at, at most, before and after the search that cannot
 * miss: the first number is for putting blocks back into the holes that blocks of the same odd size
 * left, the second for the look before it says that a pool is full.
 */
#define SHORT_LOOK 4u
#define LONG_LOOK  64u
#define WHOLE_LIST 4096u /* for a figure in a report, and still not a stall */

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

void free_list_insert(struct suballocator *allocator, struct block *block)
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
	allocator->lists[class] = block;
	allocator->free_units += block->size;
}

void free_list_remove(struct suballocator *allocator, struct block *block)
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
	/* it is still free, though in no list: it is a ring of its own */
	block->next_free = block->prev_free = block;
	allocator->free_units -= block->size;
}

/* ---- search ---- */

static bool fits(struct search *search, struct block *block)
{
	uint64_t offset = (block->offset + search->alignment - 1) & ~(search->alignment - 1);

	if (offset + search->size > (uint64_t)block->offset + block->size)
		return false;
	search->block = block;
	search->offset = (uint32_t)offset;
	return true;
}

/* Looks at `limit` free blocks at most, and at `each` of a class: first in `class`, then in larger
 * ones. */
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

bool free_list_find(const struct suballocator *allocator, struct search *search)
{
	uint32_t exact = class_of(search->size);
	/* in any block of this class there is room, wherever the alignment falls */
	uint32_t safe = class_that_fits(search->size + search->alignment - 1);

	/*
	 * Looks first into the class of the size itself. A block in it may be too small, and TLSF
	 * would pass the class by. But a pool of equal buffers, of a size that is not where a class
	 * begins, has all its holes there, and would cut up fresh memory as long as there is any.
	 * So a few blocks are looked at. From there it goes on to the next larger class, where
	 * every block is large enough, and may even be aligned.
	 */
	if (look(allocator, search, exact, SHORT_LOOK, SHORT_LOOK))
		return true;
	if (look(allocator, search, safe, 1, 1))
		return true;
	/* what is left is too small, or just large enough, or large enough if it is aligned */
	if (look(allocator, search, exact, LONG_LOOK, LONG_LOOK))
		return true;
	/*
	 * With an alignment those may have been blocks of the lower classes that begin at a wrong
	 * place. A whole region is aligned to everything, and a new one is at the head of its
	 * class.
	 */
	return search->alignment > 1 && look(allocator, search, exact, SUBALLOCATOR_CLASSES, 1);
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
