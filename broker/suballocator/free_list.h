/* SPDX-License-Identifier: MIT */
#pragma once

#include "broker/suballocator/suballocator.h"

/* The lists of free blocks, for suballocator.c alone. */

struct search {
	uint32_t size;
	uint64_t alignment;
	/* what was found: a free block, and where in its region the new one will start */
	struct block *block;
	uint32_t offset;
};

/* Files a block by its size as it is now; within a class the one that was freed last comes
 * first. */
void free_list_insert(struct suballocator *allocator, struct block *block);
/* Takes a block out of its list. It is still free afterwards. */
void free_list_remove(struct suballocator *allocator, struct block *block);

/* Finds a free block; size and alignment are in units. False: none was found in a bounded look. */
bool free_list_find(const struct suballocator *allocator, struct search *search);
