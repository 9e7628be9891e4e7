/* SPDX-License-Identifier: MIT */

/*
 * What the row of a claim says: what the consumer has taken, has acknowledged behind which fences,
 * and has given back. Each word is read once, and is whatever its owner liked.
 */

#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/channel/page.h"
#include "broker/channel/records.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "pages/timeline.h"

/* Whether the owner's streams can have such a fence. One that they cannot have is reached. */
static bool can_be(const struct timelines *t, uint32_t slot, uint64_t value)
{
	return !t->dead && slot > 0 && slot < TIMELINE_SLOTS && value > 0 &&
	       value < TIMELINE_POISON &&
	       (int64_t)(value - timeline_value(t->page, slot)) <= FENCE_AHEAD_MAX;
}

/* Whether the consumer's work is still to be done behind which it has acknowledged. */
static bool runs(const struct member *consumer, const struct channel_ack *ack, uint64_t word)
{
	struct timelines *t = consumer->timelines;
	struct fence fence = {
	    .timelines = t,
	    .slot = (uint32_t)word & (uint32_t)~CHANNEL_ACK_RETAINED,
	    .value = atomic_load_explicit(&ack->value, memory_order_relaxed),
	};

	if (word & CHANNEL_ACK_REJECTED || !can_be(t, fence.slot, fence.value))
		return false;
	if (timeline_is_by_gpu(t->page, fence.slot))
		order_watch_gpus(consumer->channel->broker);
	return fence_query(&fence) == TIMELINE_PENDING;
}

/* Returns the claim's row; NULL: the consumer has not written it for this producer. */
static const struct channel_row *row_of(const struct claim *claim)
{
	struct member *consumer = claim->consumer;
	const struct channel_row *row =
	    channel_row_at(consumer->page.memory, &consumer->channel->shape, claim->row);

	if (member_unwritten(consumer, row) > 0 ||
	    atomic_load_explicit(&row->producer, memory_order_acquire) != claim->producer->id)
		return NULL;
	return row;
}

enum acknowledgement claim_ask_row(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	const struct channel_row *row = row_of(claim);
	uint64_t word;

	if (!row || member_unwritten(claim->consumer, &row->acks[ticket]) > 0)
		return NOT_ACKNOWLEDGED;
	word = atomic_load_explicit(&row->acks[ticket].word, memory_order_acquire);
	if (word >> 32 != version)
		return NOT_ACKNOWLEDGED;
	/* who has given it back may have got it again, so the entry stays until the consumer is
	 * done with the producer */
	if (word & CHANNEL_ACK_REJECTED && !MUTATION(free_what_was_rejected))
		return NOT_ACKNOWLEDGED;
	return runs(claim->consumer, &row->acks[ticket], word) && !MUTATION(do_not_wait)
		   ? STILL_RUNS
		   : DONE_WITH;
}

uint64_t claim_taken(const struct claim *claim)
{
	const struct channel_row *row = row_of(claim);

	return row ? atomic_load_explicit(&row->taken, memory_order_acquire) : 0;
}

uint32_t claim_ask_rejected(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	const struct channel_row *row = row_of(claim);
	uint64_t word;

	if (!row || member_unwritten(claim->consumer, &row->acks[ticket]) > 0)
		return 0;
	word = atomic_load_explicit(&row->acks[ticket].word, memory_order_acquire);
	return word >> 32 == version && word & CHANNEL_ACK_REJECTED
		   ? (uint32_t)word & CHANNEL_ACK_DELIVERY
		   : 0;
}

/* Returns the version with which the consumer is done, as the word says. 0: none, as it was given
 * back. */
static uint32_t acknowledged_version(uint64_t word)
{
	return word & CHANNEL_ACK_REJECTED && !MUTATION(note_rejected) ? 0 : (uint32_t)(word >> 32);
}

bool claim_is_quiet(struct claim *claim, int *budget)
{
	const struct channel_shape *shape = &claim->consumer->channel->shape;
	const struct channel_row *row = row_of(claim);
	const struct channel_ack *ack;
	uint64_t word;
	size_t zeros;

	for (; row && claim->next_ack < shape->in_flight; claim->next_ack++, --*budget) {
		if (*budget <= 0) {
			claim->producer->channel->broker->channels->n_steps++;
			return false;
		}
		ack = &row->acks[claim->next_ack];
		zeros = member_unwritten(claim->consumer, ack);
		if (zeros > 0) {
			claim->next_ack += (uint32_t)((zeros - 1) / sizeof(*ack));
			continue;
		}
		word = atomic_load_explicit(&ack->word, memory_order_acquire);
		if (runs(claim->consumer, ack, word))
			return MUTATION(end_too_early);
		if (!orphan_note_acknowledged(claim, claim->next_ack, acknowledged_version(word)))
			return false;
	}
	return true;
}

bool claim_is_admitted(const struct claim *claim)
{
	const struct channel_admission *a =
	    channel_admission_at(claim->producer->page.memory, &claim->producer->channel->shape,
				 claim->consumer->as_consumer.slot);

	return member_unwritten(claim->producer, a) == 0 &&
	       atomic_load_explicit(&a->consumer, memory_order_acquire) == claim->consumer->id;
}
