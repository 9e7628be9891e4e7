/* SPDX-License-Identifier: MIT */

/*
 * Memory that a client had before it was a buffer. The client stays its owner: it may be in use in
 * ways of which the broker knows nothing, so it is neither zeroed nor handed to anybody else when
 * its buffer is gone. The broker keeps the descriptors as long as there is a buffer; so the memory
 * outlives its owner, like that of any other buffer.
 */

#include <errno.h>
#include <string.h>

#include <share/share.h>

#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/closer.h"
#include "broker/memory/adopted.h"
#include "broker/memory/inside.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/pools.h"
#include "broker/memory/segment.h"
#include "wire/messages.h"

bool pool_is_adopted(const struct pool *p)
{
	return p->choice.kind && p->choice.kind->id == MEMORY_ADOPTED;
}

const struct memory_kind *kind_of_segment(const struct segment *s)
{
	const struct memory_kind *kind = s->pool->choice.kind;

	if (kind->id == MEMORY_ADOPTED && memory_recipe_on_device(&s->memory.recipe))
		return memory_kind_by_id(MEMORY_VMM);
	return kind;
}

int segment_closing_new(struct broker *b, uid_t owner, struct closing *out[static 2])
{
	for (int i = 0; i < 2; i++)
		out[i] = closing_new_for(b->clients->closer, owner);
	if (out[0] && out[1])
		return 0;
	for (int i = 0; i < 2; i++) {
		closing_free(out[i]);
		out[i] = NULL;
	}
	return -ENOMEM;
}

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

uint64_t pool_adopted_by(const struct pool *p, const struct account *account)
{
	const struct segment *s;
	uint64_t bytes = 0;

	LIST_FOREACH (s, &p->extent.segments, link)
		if (s->state == SEGMENT_ACTIVE && s->cost.segment.account == account)
			bytes += s->memory.recipe.size;
	return bytes;
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
	int r = pool_pay(p, a);

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

/* Whether the client's library knows the segment's kind. An older library would take a grant of an
 * unknown kind for the fault of a broken broker. */
static bool is_known_to(const struct segment *s, const struct client *client)
{
	const struct memory_kind *kind = kind_of_segment(s);

	return (kind->id != MEMORY_ADOPTED || client->version >= WIRE_VERSION_ADOPT) &&
	       (kind->id != MEMORY_LEGACY || client->version >= WIRE_VERSION_LEGACY) &&
	       (kind->id != MEMORY_PINNED || client->version >= WIRE_VERSION_PINNED);
}

/* Memory that its owner may make smaller is for the owner's own processes. Whoever touches what was
 * cut off dies of SIGBUS, and nobody is to be able to do that to another user. */
bool segment_is_for(const struct segment *s, const struct client *client)
{
	const struct account *owner = s->cost.segment.account;

	return is_known_to(s, client) && !segment_is_lost(s) &&
	       (!(s->memory.recipe.flags & MEMORY_MAY_SHRINK) ||
		(owner && account_uid(owner) == client->peer.uid));
}

int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure)
{
	if (!is_known_to(s, client))
		return failure_set(failure, SHARE_ENOTSUP,
				   "pool '%s' is of kind %s, for which this program's library "
				   "is too old",
				   s->pool->name, kind_of_segment(s)->name);
	if (segment_is_lost(s))
		return failure_set(
		    failure, SHARE_EOWNERDEAD,
		    "the agent that made this memory of pool '%s' has ended, and memory "
		    "of kind %s is gone with its agent",
		    s->pool->name, kind_of_segment(s)->name);
	return failure_set(failure, SHARE_EACCES,
			   "this memory of pool '%s' is not sealed against becoming smaller "
			   "(F_SEAL_SHRINK), so only processes of the user who has adopted it may "
			   "have it",
			   s->pool->name);
}
