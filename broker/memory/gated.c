/* SPDX-License-Identifier: MIT */

/*
 * A pool's gated blocks, and how memory is found among them: one block, or several side by side.
 * What is not needed of them stays what it was: gated and paid for, or clean. So memory that nobody
 * can use for now is never more than what its payers have used, and never unpaid.
 */

#include "broker/memory/gated.h"
#include "base/mutation.h"
#include "broker/accounts/price.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "wire/wire.h"

/* Among how many gated blocks the one is found that fits best. */
#define OWN_LOOK 256

/* How many blocks are looked at for some that lie side by side. */
#define RUN_LOOK 16384

/* Memory behind more fences than this is not cut. Each piece would have all of them for itself, and
 * they cost what they cost in its record. So what is behind many is handed out whole or not at
 * all. */
#define CUT_FENCES_MAX 8

/* How many steps it may take to unite the gates of those blocks. */
#define RUN_STEPS 65536

/* How many fences a grant can name beside the giver's. */
#define GATE_MAX (WIRE_FENCES_MAX - 1)

/* What comes behind the last block: so only blocks that are in the queue have something there. */
static struct block end;

/* Whether a gate is so large that nobody can be given it. */
static bool is_too_large(const struct fence_set *gate)
{
	return fence_set_is_lost(gate) ||
	       (fence_set_size(gate) > GATE_MAX && fence_set_n_pending(gate) > GATE_MAX);
}

struct timelines *gated_holder(const struct fence_set *gate, const struct account *account,
			       bool *own)
{
	size_t n = fence_set_is_lost(gate) ? 0 : fence_set_size(gate);
	struct timelines *holder = NULL;

	*own = false;
	for (size_t i = 0; i < n && i <= GATE_MAX; i++) {
		const struct fence *f = fence_set_at(gate, i);

		if (!f->timelines || !f->timelines->account || fence_query(f) != TIMELINE_PENDING)
			continue;
		if (f->timelines->account == account)
			*own = true;
		else if (!holder)
			holder = f->timelines;
	}
	return holder;
}

/* Whether the blocks may be cut, as far as their fences are concerned. One of them may be NULL. */
static bool may_cut(struct account *account, const struct block *one, const struct block *other)
{
	size_t n = (one ? fence_set_n_pending(one->gate) : 0) +
		   (other ? fence_set_n_pending(other->gate) : 0);

	return n == 0 || (n <= CUT_FENCES_MAX && account_may_add(account, LIMIT_FENCES, n));
}

static bool is_for(const struct fence_set *gate, const struct account *account)
{
	bool own;

	return !is_too_large(gate) && !gated_holder(gate, account, &own);
}

static struct block *next_of(const struct block *block)
{
	return block->owner == &end ? NULL : block->owner;
}

void gated_append(struct gated_blocks *q, struct block *block, struct fence_set *gate)
{
	block->gate = gate;
	block->owner = &end;
	if (q->last)
		q->last->owner = block;
	else
		q->first = block;
	q->last = block;
	q->bytes += block_size(block);
	q->n++;
	if (block->payer)
		account_add_gated(block->payer, block_size(block));
	if (!MUTATION(gate_not_noted))
		block_note_gated(block);
}

void gated_take_out(struct gated_blocks *q, struct block *before, struct block *block)
{
	if (before)
		before->owner = block->owner;
	else
		q->first = next_of(block);
	if (q->last == block)
		q->last = before;
	block->owner = NULL;
	q->bytes -= block_size(block);
	q->n--;
	if (block->payer)
		account_subtract_gated(block->payer, block_size(block));
}

/* Ends the charge for a gated block, as whoever gets it pays for it from now on. */
static void end_charge(struct block *block)
{
	struct charge charge = pool_charge_of(block, PRICE_GATED_OWN);

	pool_charge_return(block_pool(block), &charge);
}

void gated_give_back(struct block *block)
{
	end_charge(block);
	block_forget(block);
	suballocator_free(&block_pool(block)->suballocator, block);
}

/* Puts a block back that was taken and is not needed. The work on it may be done by now. */
static void put_back(struct gated_blocks *q, struct block *block)
{
	if (block->gate)
		gated_append(q, block, block_take_gate(block));
	else
		gated_give_back(block);
}

/* Cuts a block that was taken, and may be cut. What lies behind @size bytes is another block,
 * behind the same fences and paid for by the same account. False without memory. */
static bool cut(struct suballocator *allocator, struct block *block, uint64_t size,
		struct block **rest)
{
	if (suballocator_cut(allocator, block, size, rest) < 0)
		return false;
	if (*rest)
		(*rest)->gate = fence_set_copy(block->gate);
	if (!*rest || !block->payer)
		return true;
	(*rest)->payer = account_ref(block->payer);
	account_must_add(block->payer, price_of(LIMIT_BYTES, 0, PRICE_GATED_OWN));
	return true;
}

uint64_t gated_largest(const struct gated_blocks *q)
{
	uint64_t largest = 0;
	uint32_t left = OWN_LOOK;

	for (struct block *block = q->first; block && left > 0; block = next_of(block), left--)
		if (block_size(block) > largest && !is_too_large(block->gate))
			largest = block_size(block);
	return largest;
}

struct timelines *gated_first_holder(const struct gated_blocks *q, const struct account *account)
{
	struct timelines *holder = NULL;
	uint32_t left = RUN_LOOK / 4;
	bool own;

	for (struct block *block = q->first; block && !holder && left > 0; left--) {
		holder = gated_holder(block->gate, account, &own);
		block = next_of(block);
	}
	return holder;
}

bool gated_must_wait(const struct gated_blocks *q, struct account *account)
{
	if (q->n > RUN_LOOK / 4) /* some would not be looked at */
		return true;
	for (struct block *block = q->first; block; block = next_of(block))
		if (is_too_large(block->gate) || !may_cut(account, block, NULL))
			return true;
	return false;
}

/* ------------------------------------------------------------------------------------------- */

bool gated_take_own(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a)
{
	struct block *before = NULL, *best = NULL, *best_before = NULL, *rest;
	uint32_t left = OWN_LOOK;

	for (struct block *block = q->first; block && left > 0; block = next_of(block), left--) {
		if (block->payer == a->account && block_size(block) >= a->size &&
		    block_offset(block) % a->alignment == 0 &&
		    (!best || block_size(block) < block_size(best)) &&
		    is_for(block->gate, a->account) && !segment_is_lost(segment_of(block))) {
			bool fits = block_size(block) - a->size < SUBALLOCATOR_UNIT;

			if (fits || may_cut(a->account, block, NULL)) {
				best = block;
				best_before = before;
			}
			if (fits)
				break;
		}
		before = block;
	}
	if (!best)
		return false;
	gated_take_out(q, best_before, best);
	if (!cut(allocator, best, a->size, &rest)) {
		put_back(q, best);
		return false;
	}
	if (rest)
		put_back(q, rest);
	end_charge(best);
	best->payer = a->account;
	a->block = best;
	return true;
}

/* ------------------------------------------------------------------------------------------- */

/* A run of blocks that lie side by side: from @start in @first to somewhere in @last. */
struct run {
	struct block *first, *last;
	uint64_t start; /* it is aligned */
};

struct looked_for {
	const struct allocation *wanted;
	bool anybody;
	uint64_t size; /* a multiple of units */
	uint32_t left; /* how many may still be looked at */
};

static bool may_be_part(const struct looked_for *l, const struct block *block)
{
	if (!block || block_is_free(block))
		return block;
	return block->owner && (l->anybody || block->payer == l->wanted->account) &&
	       is_for(block->gate, l->wanted->account);
}

/* Finds the first block of the run in which @block is the first gated one. NULL: @block is not the
 * first one. Two free blocks are never neighbours. */
static struct block *first_of(const struct looked_for *l, struct block *block)
{
	struct block *before = block->before;

	if (!may_be_part(l, block) || !may_be_part(l, before))
		return may_be_part(l, block) ? block : NULL;
	return block_is_free(before) && !may_be_part(l, before->before) ? before : NULL;
}

static uint64_t end_of(const struct block *block)
{
	return block_offset(block) + block_size(block);
}

/* What has to be waited for in a run, and what it takes to find that out. */
struct effort {
	const struct fence *last;
	uint64_t fences, steps;
	uint64_t bytes; /* bytes that are not paid for yet */
};

/* Adds a gate to the effort. False: it is too much. Neighbours are mostly of the same stream, whose
 * fences count once. */
static bool add_gate(struct effort *e, const struct fence_set *gate)
{
	const struct fence *f = fence_set_size(gate) == 1 ? fence_set_at(gate, 0) : NULL;

	if (!f || !e->last || f->timelines != e->last->timelines || f->slot != e->last->slot)
		e->fences += fence_set_size(gate);
	e->last = f ? f : e->last;
	e->steps += e->fences;
	return e->fences <= GATE_MAX && e->steps <= RUN_STEPS;
}

/* Returns how many bytes of a block lie between two places. */
static uint64_t part_of(const struct block *block, uint64_t from, uint64_t to)
{
	uint64_t first = block_offset(block) > from ? block_offset(block) : from;
	uint64_t last = end_of(block) < to ? end_of(block) : to;

	return last - first;
}

/* Whether the user can pay for so much. If not, the run would only have to be put back, and nobody
 * would pay for it then. */
static bool can_pay(const struct allocation *a, uint64_t bytes)
{
	return a->charge.account || account_may_add(a->account, LIMIT_BYTES, bytes);
}

/* Whether the run may be cut, where it begins or ends in the middle of a block. */
static bool may_trim(const struct looked_for *l, const struct run *run)
{
	return may_cut(l->wanted->account,
		       run->start > block_offset(run->first) ? run->first : NULL,
		       end_of(run->last) > run->start + l->size ? run->last : NULL);
}

static bool is_long_enough(struct looked_for *l, struct block *first, struct run *out)
{
	uint64_t start =
	    (block_offset(first) + l->wanted->alignment - 1) & ~(l->wanted->alignment - 1);
	struct effort effort = {.last = NULL};

	for (struct block *last = first; may_be_part(l, last) && l->left > 0; last = last->after) {
		l->left--;
		if (end_of(last) <= start) {
			first = last->after;
			continue;
		}
		if (!add_gate(&effort, last->gate))
			return false;
		if (block_is_free(last) || last->payer != l->wanted->account)
			effort.bytes += part_of(last, start, start + l->size);
		if (end_of(last) - start >= l->size) {
			*out = (struct run){first, last, start};
			return can_pay(l->wanted, effort.bytes) && may_trim(l, out);
		}
	}
	return false;
}

static bool find_run(const struct gated_blocks *q, struct looked_for *l, struct run *out)
{
	struct block *first;

	for (struct block *block = q->first; block && l->left > 0; block = next_of(block)) {
		l->left--;
		first = first_of(l, block);
		if (first && !segment_is_lost(segment_of(first)) && is_long_enough(l, first, out))
			return true;
	}
	return false;
}

static bool is_within(const struct run *run, const struct block *block)
{
	return block->region == run->first->region && block->offset >= run->first->offset &&
	       block->offset <= run->last->offset;
}

/* Takes all blocks of the run out of the queue, and out of the lists of free blocks. */
static void take_all(struct gated_blocks *q, struct suballocator *allocator, const struct run *run)
{
	struct block *before = NULL, *block, *next;

	for (block = q->first; block; block = next) {
		next = next_of(block);
		if (is_within(run, block))
			gated_take_out(q, before, block);
		else
			before = block;
	}
	for (block = run->first; block != run->last->after; block = block->after)
		if (block_is_free(block))
			suballocator_take(allocator, block);
}

/* Cuts off what lies before the run's start and behind its end. False without memory. */
static bool trim(struct gated_blocks *q, struct suballocator *allocator, struct run *run,
		 uint64_t size)
{
	uint64_t front = run->start - block_offset(run->first);
	struct block *rest;

	if (front > 0) {
		struct block *before = run->first;

		if (!cut(allocator, before, front, &rest))
			return false;
		if (run->last == before)
			run->last = rest;
		run->first = rest;
		put_back(q, before);
	}
	if (!cut(allocator, run->last, run->start + size - block_offset(run->last), &rest))
		return false;
	if (rest)
		put_back(q, rest);
	return true;
}

static void put_all_back(struct gated_blocks *q, const struct run *run)
{
	struct block *block = run->first, *next;
	bool more = true;

	for (; more; block = next) {
		more = block != run->last;
		next = block->after; /* it stays, as it is in use, like all of the run */
		put_back(q, block);
	}
}

static void unite(struct suballocator *allocator, struct run *run)
{
	for (bool more = run->first != run->last; more;) {
		struct block *after = run->first->after;

		more = after != run->last;
		run->first->gate = fence_set_merge(run->first->gate, block_take_gate(after));
		block_forget(after);
		suballocator_unite(allocator, run->first);
	}
}

bool gated_take_run(struct gated_blocks *q, struct suballocator *allocator, struct allocation *a,
		    bool anybody)
{
	const uint64_t units = (a->size + SUBALLOCATOR_UNIT - 1) / SUBALLOCATOR_UNIT;
	struct looked_for l = {a, anybody, units * SUBALLOCATOR_UNIT, RUN_LOOK};
	struct block *block;
	struct run run;
	bool all_own = true;

	if (!find_run(q, &l, &run))
		return false;
	take_all(q, allocator, &run);
	if (!trim(q, allocator, &run, l.size)) {
		put_all_back(q, &run);
		return false;
	}
	for (block = run.first; block != run.last->after; block = block->after) {
		all_own = all_own && (!block->gate || block->payer == a->account);
		end_charge(block);
	}
	unite(allocator, &run);
	run.first->payer = all_own ? a->account : NULL;
	a->block = run.first;
	return true;
}
