/* SPDX-License-Identifier: MIT */

/*
 * Memory between its last user and the next. In a pool of policy *gate* a released block goes back
 * to the suballocator with its fences, and the next user waits for them. Elsewhere it first waits
 * here until they are reached, so that all the suballocator has is clean, and what is clean stays
 * so: merged with a gated neighbour it would be out of use for as long as that. Memory with more
 * fences than a grant can name waits here, too, until there are fewer; meanwhile the pool grows.
 *
 * Fences are reached without anybody telling: blocks are looked at when memory is wanted, and every
 * now and then while there are any.
 */

#include <inttypes.h>
#include <stdio.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/pool.h"
#include "broker/reuse.h"
#include "wire/wire.h"

/* How long an allocation waits for work that others left running. */
#define USERS_WAIT_MS 1000

/* Looking at a block costs more the more work runs on it. */
#define FENCES_A_LOOK 16

/* What a grant can name beside the giver's fence. */
#define GATE_MAX (WIRE_FENCES_MAX - 1)

static bool is_too_large(const struct fence_set *gate)
{
	return fence_set_is_lost(gate) ||
	       (fence_set_size(gate) > GATE_MAX && fence_set_n_pending(gate) > GATE_MAX);
}

static bool must_wait(const struct pool *p, const struct fence_set *gate)
{
	return gate && (p->reuse != SHARE_REUSE_GATE || is_too_large(gate));
}

static void append(struct gated_blocks *q, struct block *block, struct fence_set *gate)
{
	block->gate = gate;
	block->owner = NULL; /* the next one */
	if (q->last)
		q->last->owner = block;
	else
		q->first = block;
	q->last = block;
	q->bytes += block_size(block);
	q->n++;
}

static struct block *take_first(struct gated_blocks *q)
{
	struct block *block = q->first;

	q->first = block->owner;
	if (!q->first)
		q->last = NULL;
	q->bytes -= block_size(block);
	q->n--;
	return block;
}

/* A gate that was lost for want of memory cannot be reached; without any client, nobody is behind
 * it either. */
static struct fence_set *look(struct broker *b, struct fence_set *gate)
{
	gate = fence_set_prune(gate);
	if (!gate || b->n_clients > 0 || !fence_set_is_lost(gate))
		return gate;
	fence_set_drop(gate);
	return NULL;
}

/* Whoever allocated it has paid for it until now. */
static void give_back(struct pool *p, struct block *block, struct fence_set *gate)
{
	struct charge charge = {block->payer, LIMIT_BYTES, block_size(block)};

	charge_return(&charge);
	suballocator_free(&p->suballocator, block, gate);
}

void reuse_release(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		   struct charge *charge)
{
	block->payer = charge ? charge->account : NULL;
	if (p->reuse != SHARE_REUSE_GATE)
		gate = look(b, fence_set_merge(block_take_gate(block), gate));
	if (must_wait(p, gate)) {
		append(&p->gated, block, gate);
		broker_look_again(b);
		return;
	}
	give_back(p, block, gate);
	pool_wake(p);
}

bool reuse_set_aside(struct broker *b, struct pool *p, struct block *block)
{
	struct block *rest;

	if (!block->gate || !is_too_large(block->gate))
		return false;
	while ((rest = suballocator_take_neighbour(&p->suballocator, block)))
		append(&p->gated, rest, block_take_gate(rest));
	append(&p->gated, block, block_take_gate(block));
	broker_look_again(b);
	return true;
}

bool reuse_collect(struct broker *b, struct pool *p, uint32_t limit)
{
	struct gated_blocks *q = &p->gated;
	bool any = false;

	for (uint32_t left = q->n, cost; left > 0 && limit > 0; left--) {
		struct block *block = take_first(q);
		struct fence_set *gate = block_take_gate(block);

		cost = 1 + (uint32_t)(fence_set_size(gate) / FENCES_A_LOOK);
		limit -= cost < limit ? cost : limit;
		gate = look(b, gate);
		if (must_wait(p, gate)) {
			append(q, block, gate); /* behind those that wait to be looked at */
			continue;
		}
		give_back(p, block, gate);
		any = true;
	}
	return any;
}

int reuse_wait(struct pool *p, uint64_t size, uint64_t waited_ms, char *detail, size_t detail_size)
{
	if (p->gated.n == 0 || size > p->limit - p->used)
		return SHARE_ENOMEM;
	if (waited_ms < USERS_WAIT_MS)
		return pool_wait(p, USERS_WAIT_MS - waited_ms);
	snprintf(detail, detail_size,
		 "pool '%s' has no room for %" PRIu64
		 " bytes: its last users' work still runs on "
		 "%" PRIu64
		 " bytes, and the pool hands those out only when it is done (limit "
		 "%" PRIu64 ", in use %" PRIu64 ")",
		 p->name, size, p->gated.bytes, p->limit, p->used);
	return SHARE_EAGAIN;
}
