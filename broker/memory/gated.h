/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_GATED_H
#define BROKER_MEMORY_GATED_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/accounts/account.h"
#include "broker/order/fence.h"
#include "broker/suballocator/suballocator.h"

struct allocation;

/*
 * The blocks of a pool that nobody holds any more but work still runs on. The suballocator takes
 * them for blocks in use, and whoever allocated them (block->payer) pays for them. The one released
 * first is the first to be looked at.
 */
struct gated_blocks {
	struct block *first, *last;
	uint64_t bytes;
	uint32_t n;
};

/* @gate is consumed; a payer's charge stays with the block. */
void gated_append(struct gated_blocks *q, struct block *block, struct fence_set *gate);
/* With its gate and its payer. @before: the one before it, NULL when it is the first. */
void gated_take_out(struct gated_blocks *q, struct block *before, struct block *block);

/* Those of another user than @account whose work is waited for, who has an account; NULL: there is
 * none. @own: whether there is work of @account's as well. Of a set that nobody can be given, a
 * part is looked at. */
struct timelines *gated_holder(const struct fence_set *gate, const struct account *account,
			       bool *own);
/* The first of those blocks that @account could have otherwise. */
struct timelines *gated_first_holder(const struct gated_blocks *q, const struct account *account);

/* The largest one that could be handed out, of many of the first. */
uint64_t gated_largest(const struct gated_blocks *q);
/* Whether there may be some that cannot yet: with more fences than a grant can name, or than
 * @account can have each piece of it wait for. */
bool gated_must_wait(const struct gated_blocks *q, struct account *account);

/*
 * Memory of these is handed out, cut to size, with its gate; nobody pays for it then. If nobody but
 * its account did, block->payer says so, without a reference. False: none was found in a bounded
 * look. Behind another user's work nothing is: that may never end, and the stream that waited for
 * it would stand still for as long.
 */
/* One of the blocks that its account pays for. */
bool gated_take_own(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a);
/* Several that lie side by side, with what is free between them. @anybody: also what others pay
 * for. */
bool gated_take_run(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a,
		    bool anybody);

#endif
