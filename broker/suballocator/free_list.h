/* SPDX-License-Identifier: MIT */
#ifndef BROKER_SUBALLOCATOR_FREE_LIST_H
#define BROKER_SUBALLOCATOR_FREE_LIST_H

#include "broker/suballocator/suballocator.h"

/* What only the suballocator asks of its lists of free blocks. */

struct search {
	uint32_t size;
	uint64_t alignment;
	/* What was found: a free block, and where in its region the new one will start. */
	struct block *block;
	uint32_t offset;
};

/* A block is filed by its size as it is now; clean ones go first within a class. */
void free_list_insert(struct suballocator *allocator, struct block *block);
/* Still free afterwards, though in no list. */
void free_list_remove(struct suballocator *allocator, struct block *block);

/* Both sizes in units. False: nothing was found in a bounded look. */
bool free_list_find(const struct suballocator *allocator, struct search *search);

#endif
