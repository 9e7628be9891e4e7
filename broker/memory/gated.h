/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/order/fence.h"
#include "broker/suballocator/suballocator.h"

struct allocation;

/*
 * The blocks of a pool that nobody holds any more but that work still runs on. The suballocator
 * takes them for blocks in use, and whoever allocated them (block->payer) pays for them. The block
 * that was released first is looked at first.
 */
struct gated_blocks {
	struct block *first, *last;
	uint64_t bytes;
	uint32_t n;
};

/* Puts a block last. Consumes @gate; a payer's charge stays with the block. */
void gated_append(struct gated_blocks *q, struct block *block, struct fence_set *gate);
/* Takes a block out, with its gate and its payer. @before is the one before it, NULL when it is the
 * first. */
void gated_take_out(struct gated_blocks *q, struct block *before, struct block *block);
/* Gives a block that nobody waits for back to the suballocator, and ends the charge of whoever has
 * paid for it until now. */
void gated_give_back(struct block *block);

/* Returns the timelines of another user than @account, who has an account and whose work the gate
 * waits for; NULL: there are none. @own says whether it waits for work of @account's as well. Of a
 * gate that nobody can be given, a part is looked at. */
struct timelines *gated_holder(const struct fence_set *gate, const struct account *account,
			       bool *own);
/* Returns what gated_holder() says of the first block for which it finds somebody, of many of the
 * first. */
struct timelines *gated_first_holder(const struct gated_blocks *q, const struct account *account);

/* Returns the size of the largest block that could be handed out, of many of the first. */
uint64_t gated_largest(const struct gated_blocks *q);
/* Whether there may be blocks that cannot be handed out yet: they have more fences than a grant can
 * name, or than each piece of a block can have, or than @account may have more. */
bool gated_must_wait(const struct gated_blocks *q, struct account *account);

/*
 * Both functions take memory out of these blocks, cut to the size of @a, with its gate; nobody pays
 * for it then. If nobody but the account of @a has paid for it, block->payer says so, without a
 * reference. They never take what is behind another user's work: that may never end, and the stream
 * that waited for it would stand still for as long. False: none was found in a bounded look.
 */
/* Takes one of the blocks that the account of @a pays for. */
bool gated_take_own(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a);
/* Takes several that lie side by side, with what is free between them. @anybody: also blocks that
 * others pay for. */
bool gated_take_run(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a,
		    bool anybody);
