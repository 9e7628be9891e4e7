/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/accounts/account.h"
#include "broker/memory/gated.h"

struct broker;
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
