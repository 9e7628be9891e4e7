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

/* Releases a block that nobody holds any more: it goes back to the suballocator, or is kept until
 * the work on it is done. @gate is what was added to the gate that the block came with, and is
 * consumed. So is @charge, which may be NULL: it is returned, or kept with the block. */
void reuse_release(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		   struct charge *charge);

/* Looks at up to @limit gated blocks. True when one has become free, or when a request that waits
 * for memory may get a block that it could not get before. */
bool reuse_collect(struct broker *b, struct pool *p, uint32_t limit);

/* Whether there will be room for @a when the work on gated blocks is done, as there is none now and
 * the pool can have no more. If so, @failure has SHARE_EAGAIN and a sentence for a request that
 * waits no longer. */
bool reuse_makes_room(const struct pool *p, const struct allocation *a, struct failure *failure);

/*
 * What a block's tag says: which user may have written what is in the memory; or that nobody has,
 * and it is zero; or that several have.
 */
static inline uint32_t reuse_tag(uid_t uid)
{
	return (uint32_t)uid + 1;
}

/* Notes that this user may write to the block from now on. */
static inline void reuse_mark_writer(struct block *block, uid_t uid)
{
	block->tag = suballocator_join_tags(block->tag, reuse_tag(uid));
}

static inline bool reuse_is_of_others(const struct block *block, uid_t uid)
{
	return block->tag && block->tag != reuse_tag(uid);
}

#endif
