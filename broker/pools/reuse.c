/* SPDX-License-Identifier: MIT */

/*
 * Memory between its last user and the next. A released block waits here while work still runs on
 * it, and whoever allocated it goes on paying for it. When the work is done the block goes back to
 * the suballocator. So all that the suballocator has is clean, and stays so: merged with a gated
 * neighbour, it would be out of use for as long as that.
 *
 * Pools of policy *gate* hand such memory out nevertheless, together with its fences (gated.c): to
 * the user whose work that is, and who gets nothing clean or has reached a limit. No policy hands
 * memory out behind the work of others, because a fence that is never reached would stop whoever
 * got it. So where there is nothing else an allocation waits, and then fails and says for whom it
 * has waited.
 *
 * Who keeps memory back pays for it: when no work of the user who has allocated it is left, that is
 * a user whose work still runs. So users who leave work behind that never ends use up what they may
 * have themselves.
 *
 * Memory with more fences than a grant can name is handed out by no policy, and memory with more
 * than a few is not cut.
 *
 * Nobody tells the broker that a fence is reached. So it looks at these blocks when memory is
 * wanted, and every now and then while there are any.
 */

#include <stdio.h>

#include <event2/event.h>
#include <share/share.h>

#include "base/size.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/client/clients.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/records.h"
#include "broker/pools/inside.h"
#include "broker/pools/pools.h"
#include "broker/pools/reuse.h"

/* To look at a block costs more the more fences it has: so many cost as much as one more block. */
#define FENCES_A_LOOK 16

/* Returns what is left of a gate. A gate that was lost for want of memory cannot be reached; when
 * there is no client any more, no work of anybody is behind it either. */
static struct fence_set *look_at_gate(struct broker *b, struct fence_set *gate)
{
	gate = fence_set_prune(gate);
	if (!gate || b->clients->n > 0 || !fence_set_is_lost(gate))
		return gate;
	fence_set_drop(gate);
	return NULL;
}

/* Moves the charge to the user who keeps memory back: once the one who has allocated it has no more
 * work on it, that is one whose work still runs. */
static void charge_holder(struct pool *p, struct charge *charge, const struct fence_set *gate)
{
	struct timelines *holder;
	bool own;

	if (!charge->account || !gate)
		return;
	holder = gated_holder(gate, charge->account, &own);
	if (holder && !own)
		pool_charge_move(p, charge, holder->account);
}

static void charge_holder_of(struct block *block, const struct fence_set *gate)
{
	struct charge charge = pool_charge_of(block, PRICE_GATED_OWN);

	charge_holder(block_pool(block), &charge, gate);
	block->payer = charge.account;
}

void reuse_release(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		   struct charge *charge)
{
	/* what ran already when the block was allocated is not its allocator's to pay for */
	struct fence_set *earlier = look_at_gate(b, block_take_gate(block));

	gate = look_at_gate(b, gate);
	if (charge)
		charge_change_own(charge, PRICE_GATED_OWN);
	if (charge && !gate)
		pool_charge_return(p, charge);
	else if (charge)
		charge_holder(p, charge, gate);
	block->payer = charge ? charge->account : NULL;
	gate = fence_set_merge(earlier, gate);
	if (gate) {
		gated_append(&p->gated, block, gate);
		memory_look_again(b);
	} else {
		gated_give_back(block);
	}
	/* a block without a charge was never anybody's */
	if (charge && (!gate || p->reuse == SHARE_REUSE_GATE))
		pool_wake(&p->waiting);
}

bool reuse_collect(struct broker *b, struct pool *p, uint32_t limit)
{
	struct gated_blocks *q = &p->gated;
	bool any = false;

	for (uint32_t left = q->n, cost; left > 0 && limit > 0; left--) {
		struct block *block = q->first;
		struct fence_set *gate = block_take_gate(block);
		size_t fences = fence_set_size(gate);

		gated_take_out(q, NULL, block);
		cost = 1 + (uint32_t)(fences / FENCES_A_LOOK);
		limit -= cost < limit ? cost : limit;
		gate = look_at_gate(b, gate);
		if (gate) {
			/* with fewer fences it may be cut, or be somebody's own */
			any |= p->reuse == SHARE_REUSE_GATE && fence_set_size(gate) < fences;
			charge_holder_of(block, gate);
			/* it goes behind those that wait to be looked at */
			gated_append(q, block, gate);
			continue;
		}
		gated_give_back(block);
		any = true;
	}
	return any;
}

bool reuse_makes_room(const struct pool *p, const struct allocation *a, struct failure *failure)
{
	const struct timelines *holder = gated_first_holder(&p->gated, a->account);
	char who[48] = "its last users'";
	char wanted[SIZE_EXACT_MAX], gated[SIZE_TEXT_MAX], limit[SIZE_TEXT_MAX],
	    used[SIZE_TEXT_MAX];

	if (p->gated.n == 0 || a->size + p->extent.used > p->sizes.limit ||
	    (p->reuse == SHARE_REUSE_GATE && !holder && !gated_must_wait(&p->gated, a->account)))
		return false;
	if (holder)
		snprintf(who, sizeof(who), "user %u's", (unsigned)account_uid(holder->account));
	failure_set(failure, SHARE_EAGAIN,
		    "pool '%s' has no room for %s: %s work still runs on %s, which the "
		    "pool hands out only when that is done (limit %s, in use %s)",
		    p->name, size_exact(a->size, wanted), who, size_round(p->gated.bytes, gated),
		    size_round(p->sizes.limit, limit), size_round(p->extent.used, used));
	return true;
}

/* ------------------------------------------------------------------------------------------- */

void memory_look_again(struct broker *b)
{
	struct memory *m = b->memory;

	if (!event_pending(m->look_again, EV_TIMEOUT, NULL))
		broker_set_timer(b, m->look_again, m->look_delay_ms);
}

void memory_look_soon(struct broker *b)
{
	struct memory *m = b->memory;

	if (m->look_delay_ms > LOOK_AGAIN_MS || !event_pending(m->look_again, EV_TIMEOUT, NULL)) {
		m->look_delay_ms = LOOK_AGAIN_MS;
		broker_set_timer(b, m->look_again, LOOK_AGAIN_MS);
	}
}
