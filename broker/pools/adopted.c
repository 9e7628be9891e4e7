/* SPDX-License-Identifier: MIT */

/*
 * Memory that a client had before it was a buffer. The client stays its owner: it may be in use in
 * ways of which the broker knows nothing, so it is neither zeroed nor handed to anybody else when
 * its buffer is gone. The broker keeps the descriptors as long as there is a buffer; so the memory
 * outlives its owner, like that of any other buffer. But what others have by a handle of the older
 * kind is gone with its owner's process, of which the descriptor is a pidfd then.
 */

#include <errno.h>
#include <string.h>

#include <share/share.h>

#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/segment_cost.h"
#include "broker/pools/adopted.h"
#include "broker/pools/inside.h"
#include "broker/pools/pools.h"
#include "broker/socket/closer.h"

/* Takes @cost and all of @memory over on success. 0 or -ENOMEM. */
static int add(struct broker *b, struct pool *p, const struct memory_segment *memory,
	       struct segment_cost *cost, struct segment **out)
{
	struct closing *closing[2];

	if (segment_closing_new(b, account_uid(cost->segment.account), closing) < 0)
		return -ENOMEM;
	if (pool_add_segment(b, p, memory, cost, out) == 0) {
		memcpy((*out)->closing, closing, sizeof(closing));
		return 0;
	}
	closing_free(closing[0]);
	closing_free(closing[1]);
	return -ENOMEM;
}

/* Checks whether there is room. Of a device's memory the whole allocation is kept, whatever part of
 * it the buffer is. */
static int check_room(const struct pool *p, struct account *account,
		      const struct memory_segment *memory, struct failure *failure)
{
	uint64_t whole = memory->recipe.size;

	if (whole > p->sizes.limit || whole > POOL_BUFFER_MAX)
		return pool_fail_size(p, whole, failure);
	if (pool_room(p) < whole)
		return pool_fail_full(p, whole, failure);
	if (pool_user_may_have(p, account, whole))
		return 0;
	pool_user_explain(p, account, whole, failure);
	return SHARE_EQUOTA;
}

int pool_adopt(struct broker *b, struct pool *p, struct account *account,
	       const struct memory_segment *memory, struct segment **out, struct failure *failure)
{
	struct segment_cost cost;
	int r;

	r = check_room(p, account, memory, failure);
	if (r == 0)
		r = segment_cost_take(p, account, memory, &cost, failure);
	if (r != 0)
		return r;
	if (add(b, p, memory, &cost, out) < 0) {
		segment_cost_return(b, &cost);
		return failure_no_memory(failure, "the broker");
	}
	p->extent.reserved += memory->recipe.size;
	return 0;
}

/* Takes a block out of @all. What lies before and behind it is free, but nobody gets that, as
 * nothing is allocated in such a pool. */
static int take(struct suballocator *a, struct block *all, uint64_t offset, uint64_t size,
		struct block **out)
{
	struct block *block = all, *behind = NULL;
	int r = 0;

	suballocator_take(a, all);
	if (offset > 0)
		r = suballocator_cut(a, all, offset, &block);
	if (r == 0)
		r = suballocator_cut(a, block, size, &behind);
	if (behind)
		suballocator_free(a, behind);
	if (block != all)
		suballocator_free(a, all);
	if (r < 0)
		suballocator_free(a, block);
	*out = block;
	return r;
}

int pool_adopt_block(struct broker *b, struct segment *s, uint64_t offset, struct allocation *a)
{
	struct pool *p = s->pool;
	int r = pool_pay(p, a, false);

	if (r == 0 && take(&p->suballocator, s->region.first, offset, a->size, &a->block) < 0) {
		pool_charge_return(p, &a->charge);
		r = SHARE_ESYSTEM;
	}
	if (r == 0)
		pool_count_block(p, a->block);
	else
		pool_shrink(b, p, 0);
	return r;
}
