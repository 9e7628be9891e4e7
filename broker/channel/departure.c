/* SPDX-License-Identifier: MIT */

/*
 * Consumers that have closed a channel while their streams still use what they acknowledged. The
 * producers know, as long as they are there; should one go, the broker has to. So a ledger is kept
 * until all the fences in it are reached.
 */

#include <stdlib.h>

#include "broker/broker.h"
#include "broker/channel/inside.h"
#include "pages/timeline.h"

struct departure {
	struct member *consumer;
	uint32_t row, ticket;          /* to be read next */
	uint64_t last[TIMELINE_SLOTS]; /* what is to be reached; 0: nothing */
};

struct departure *departure_new(struct member *consumer)
{
	struct departure *d = calloc(1, sizeof(*d));

	if (d)
		d->consumer = consumer;
	return d;
}

void departure_free(struct departure *d)
{
	free(d);
}

/* False when its owner's streams can have no such fence. */
static bool can_be(const struct timelines *t, uint32_t slot, uint64_t value)
{
	return !t->dead && slot > 0 && slot < TIMELINE_SLOTS && value > 0 &&
	       value < TIMELINE_POISON &&
	       (int64_t)(value - timeline_value(t->page, slot)) <= FENCE_AHEAD_MAX;
}

struct fence member_fence(struct member *consumer, uint32_t slot, uint64_t value)
{
	struct timelines *t = consumer->timelines;

	if (!can_be(t, slot, value))
		return (struct fence){0};
	if (timeline_is_by_gpu(t->page, slot))
		broker_watch_gpus(consumer->channel->broker);
	return (struct fence){timelines_ref(t), value, slot};
}

/* What an acknowledgement says, read once. False when it names no fence that its owner's streams
 * can have: then there is none. */
static bool read_fence(const struct timelines *t, const struct channel_ack *ack, uint64_t word,
		       uint32_t *slot, uint64_t *value)
{
	*slot = (uint32_t)word & (uint32_t)~CHANNEL_ACK_RETAINED;
	*value = atomic_load_explicit(&ack->value, memory_order_relaxed);
	return can_be(t, *slot, *value);
}

bool member_has_acknowledged(struct member *consumer, const struct member *producer,
			     uint32_t ticket, uint32_t version, struct fence *out)
{
	const struct channel_row *row =
	    channel_row_at(consumer->page.memory, &consumer->channel->shape, producer->slot);
	struct timelines *t = consumer->timelines;
	uint64_t word, value;
	uint32_t slot;

	*out = (struct fence){0};
	if (member_unwritten(consumer, row) > 0 ||
	    atomic_load_explicit(&row->producer, memory_order_acquire) != producer->id ||
	    member_unwritten(consumer, &row->acks[ticket]) > 0)
		return false;
	word = atomic_load_explicit(&row->acks[ticket].word, memory_order_acquire);
	if (word >> 32 != version)
		return false;
	if (read_fence(t, &row->acks[ticket], word, &slot, &value))
		*out = member_fence(consumer, slot, value);
	return true;
}

static void read_ack(struct departure *d, const struct channel_ack *ack)
{
	uint64_t word = atomic_load_explicit(&ack->word, memory_order_acquire), value;
	uint32_t slot;

	if (read_fence(d->consumer->timelines, ack, word, &slot, &value) && value > d->last[slot])
		d->last[slot] = value;
}

/* Whatever producers they are about. True when all was read. */
static bool read_ledger(struct departure *d, int *budget)
{
	const struct channel_shape *shape = &d->consumer->channel->shape;
	size_t zeros;

	for (; d->row < shape->producers; d->row++, d->ticket = 0, --*budget) {
		const struct channel_row *row =
		    channel_row_at(d->consumer->page.memory, shape, d->row);

		if (member_unwritten(d->consumer, row) > 0 ||
		    atomic_load_explicit(&row->producer, memory_order_acquire) == 0)
			continue;
		for (; d->ticket < shape->in_flight; d->ticket++, --*budget) {
			if (*budget <= 0)
				return false;
			zeros = member_unwritten(d->consumer, &row->acks[d->ticket]);
			if (zeros > 0)
				d->ticket += (uint32_t)((zeros - 1) / sizeof(row->acks[0]));
			else
				read_ack(d, &row->acks[d->ticket]);
		}
	}
	return true;
}

bool departure_look(struct departure *d, int *budget)
{
	if (!read_ledger(d, budget))
		return false;
	*budget -= 16;
	for (uint32_t i = 1; i < TIMELINE_SLOTS; i++) {
		const struct fence fence = {d->consumer->timelines, d->last[i], i};

		if (d->last[i] && fence_query(&fence) == TIMELINE_PENDING)
			return false;
	}
	return true;
}
