/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_REUSE_H
#define BROKER_MEMORY_REUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/accounts/account.h"
#include "broker/memory/gated.h"
#include "broker/order/fence.h"
#include "broker/suballocator/suballocator.h"

struct allocation;
struct broker;
struct failure;
struct pool;

/* A block of which nobody is left: back to the suballocator, or kept until that work is done. @gate
 * is what was added to the gate it came with; it is consumed, and @charge, which may be NULL:
 * returned, or kept with the block. */
void reuse_release(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		   struct charge *charge);

/* Looks at up to @limit gated blocks; true when one has become free, or who waits for memory may
 * get one that it could not before. */
bool reuse_collect(struct broker *b, struct pool *p, uint32_t limit);

/* There is no room for it and can be no more: whether there is once the work on gated blocks is
 * done, and then, for who waits no longer, SHARE_EAGAIN with a sentence. */
bool reuse_makes_room(const struct pool *p, const struct allocation *a, struct failure *failure);

/*
 * What a block's tag says: which user may have written what is in the memory, nobody (it is zero),
 * or several.
 */
static inline uint32_t reuse_tag(uid_t uid)
{
	return (uint32_t)uid + 1;
}

/* This user may write to it from now on. */
static inline void reuse_mark_writer(struct block *block, uid_t uid)
{
	block->tag = suballocator_join_tags(block->tag, reuse_tag(uid));
}

static inline bool reuse_is_of_others(const struct block *block, uid_t uid)
{
	return block->tag && block->tag != reuse_tag(uid);
}

#endif
