/* SPDX-License-Identifier: MIT */

/*
 * The receiving half of a channel, but for receiving itself (receive.c): the producers that there
 * are, what was acknowledged or given back, and sleeping.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "ring/consumer/inside.h"

int ring_consumer_new(const struct channel_shape *shape, enum channel_layout layout, void *ledger,
		      uint32_t slot, uint64_t member, struct ring_consumer **out)
{
	struct ring_consumer *c = calloc(1, sizeof(*c));

	if (c)
		c->tickets = calloc((size_t)shape->rows * shape->in_flight, sizeof(*c->tickets));
	if (!c || !c->tickets) {
		free(c);
		return -ENOMEM;
	}
	c->shape = *shape;
	c->layout = layout;
	c->near = shape->data_max < CHANNEL_DATA_NEAR ? shape->data_max : CHANNEL_DATA_NEAR;
	c->far_size = channel_far_size(shape);
	c->ledger = ledger;
	c->slot = slot;
	c->member = member;
	c->ordered = ring_can_be_ordered();
	ring_sleeper_init(&c->sleeper, &c->ledger->sleeping);
	for (uint32_t i = 0; i < shape->rows; i++) {
		c->sources[i].row = channel_row_at(ledger, shape, i);
		c->sources[i].tickets = c->tickets + (size_t)i * shape->in_flight;
	}
	*out = c;
	return 0;
}

void ring_consumer_get_latest(struct ring_consumer *c)
{
	c->latest = true;
}

void ring_consumer_free(struct ring_consumer *c)
{
	if (c)
		free(c->tickets);
	free(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Who sends                                                                                   */

void ring_consumer_attach(struct ring_consumer *c, uint32_t row, uint64_t member, const void *ring,
			  bool lane)
{
	struct ring_source *s = &c->sources[row];
	struct channel_row *words = s->row;
	void *page = (void *)(uintptr_t)ring; /* for looking only */

	atomic_store_explicit(&words->producer, 0, memory_order_relaxed);
	atomic_store_explicit(&words->taken, 0, memory_order_relaxed);
	/* a row that was never used is zeros, and takes no memory as long as nobody looks */
	for (uint32_t i = 0; s->used && i < c->shape.in_flight; i++) {
		atomic_store_explicit(&words->acks[i].word, 0, memory_order_relaxed);
		atomic_store_explicit(&words->acks[i].value, 0, memory_order_relaxed);
		s->tickets[i].version = 0;
	}
	atomic_store_explicit(&words->producer, member, memory_order_release);

	uint32_t at = channel_lane_of(&c->shape, c->slot);

	*s = (struct ring_source){
	    .member = member,
	    .bit = RING_BIT(row),
	    .ring = ring,
	    .admission = channel_admission_at(page, &c->shape, c->slot),
	    .lane = channel_lane_at(page, &c->shape, at),
	    .entries = (const unsigned char *)channel_entry_at(page, &c->shape, at, 0),
	    .far = c->far_size ? channel_far_at(page, &c->shape, c->layout, 0) : NULL,
	    .row = words,
	    .tickets = s->tickets,
	    .failed = !lane && !MUTATION(lane_again),
	    .used = true,
	};
	c->stride = ring_stride(page, &c->shape);
	c->attached |= RING_BIT(row);
	if (!s->failed)
		c->live |= RING_BIT(row);
}

void ring_consumer_detach(struct ring_consumer *c, uint32_t row)
{
	c->attached &= ~RING_BIT(row);
	c->live &= ~RING_BIT(row);
	c->moved &= ~RING_BIT(row);
	c->rejected &= ~RING_BIT(row);
}

/* ------------------------------------------------------------------------------------------- */
/* Acknowledging                                                                               */

/* False if it was given up before, or the program has made it up. */
static bool let_go(struct ring_source *s, uint64_t member, uint32_t ticket, uint32_t version)
{
	if (s->member != member || s->tickets[ticket].version != version || version == 0)
		return false;
	s->tickets[ticket].version = 0;
	s->held--;
	return true;
}

bool ring_consumer_ack(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
		       uint32_t version, struct ring_fence fence, bool retained)
{
	struct ring_source *s = &c->sources[row];

	if (!let_go(s, member, ticket, version))
		return false;
	channel_add(&c->ledger->acknowledged, 1);
	ring_write_ack(c, s, ticket, version, fence, retained);
	return true;
}

/* @fence: NULL if the message is given back. */
static void give_up_further(struct ring_consumer *c, struct ring_source *s,
			    const struct ring_further *further, uint32_t n, uint32_t kept,
			    const struct ring_fence *fence)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t ticket = further[i].ticket;

		if (s->tickets[ticket].version != further[i].version || further[i].version == 0)
			continue;
		s->tickets[ticket].version = 0;
		channel_add(&c->ledger->further, UINT64_MAX);
		if (fence)
			ring_write_ack(c, s, ticket, further[i].version, *fence, kept & 1u << i);
		else
			ring_write_rejection(c, s, ticket, further[i].version,
					     s->tickets[ticket].deliveries, kept & 1u << i);
	}
}

bool ring_consumer_reject(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
			  uint32_t version, bool retained)
{
	struct ring_source *s = &c->sources[row];
	uint32_t deliveries = s->tickets[ticket].deliveries;

	if (!let_go(s, member, ticket, version))
		return false;
	/* among those that it does not hold any more, for older brokers that look at it */
	channel_add(&c->ledger->acknowledged, 1);
	ring_write_rejection(c, s, ticket, version, deliveries, retained);
	/* who sees the count sees what was said */
	atomic_store_explicit(&c->ledger->rejected, c->ledger->rejected + 1, memory_order_release);
	return true;
}

/* The message is given up last: whoever sees that sees what is said of the others. */
bool ring_consumer_give_up(struct ring_consumer *c, uint32_t row, uint64_t member, uint32_t ticket,
			   uint32_t version, const struct ring_fence *fence, bool retained,
			   const struct ring_further *further, uint32_t n, uint32_t kept)
{
	struct ring_source *s = &c->sources[row];
	bool held;

	if (s->member == member && !MUTATION(acknowledge_further_last))
		give_up_further(c, s, further, n, kept, fence);
	held = fence ? ring_consumer_ack(c, row, member, ticket, version, *fence, retained)
		     : ring_consumer_reject(c, row, member, ticket, version, retained);
	if (s->member == member && MUTATION(acknowledge_further_last))
		give_up_further(c, s, further, n, kept, fence);
	return held;
}

bool ring_consumer_can_reject(const struct ring_consumer *c, uint32_t row)
{
	const struct ring_source *s = &c->sources[row];

	return !(c->attached & RING_BIT(row)) || ring_heeds_rejections(s);
}

uint32_t ring_consumer_holds(const struct ring_consumer *c, uint32_t row, uint32_t ticket)
{
	return row < c->shape.rows && ticket < c->shape.in_flight
		   ? c->sources[row].tickets[ticket].version
		   : 0;
}

uint32_t ring_consumer_held(const struct ring_consumer *c, uint32_t row)
{
	return c->sources[row].held;
}

/* A futex: one ring is enough for a sleep. Our own bell has changed by then, so that it ends. */
uint64_t ring_consumer_wake(struct ring_consumer *c)
{
	uint64_t doorbells = c->rejected, moved = c->moved & c->attached, who = 0;
	bool bell = false;

	c->moved = c->rejected = 0;
	for (; moved; moved &= moved - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(moved);

		if (!c->ordered || ring_may_sleep(&c->sources[slot].ring->waiting))
			who |= RING_BIT(slot);
	}
	if (who)
		ring_barrier();
	for (; who; who &= who - 1) {
		uint32_t slot = (uint32_t)__builtin_ctzll(who);
		struct ring_source *s = &c->sources[slot];
		uint32_t waiting = atomic_load_explicit(&s->ring->waiting, memory_order_relaxed);

		switch (waiting & CHANNEL_SLEEP_STATE) {
		case CHANNEL_ON_FUTEX:
			bell |= s->rung != waiting;
			s->rung = waiting;
			break;
		case CHANNEL_ON_DOORBELL:
			doorbells |= RING_BIT(slot);
			break;
		}
	}
	if (bell)
		ring_bell(&c->ledger->bell);
	return doorbells;
}

uint64_t ring_consumer_receives_no_more(struct ring_consumer *c)
{
	/* behind all that was taken: whoever sees it sees how far we have got */
	atomic_store_explicit(&c->ledger->receives_no_more, 1, memory_order_release);
	ring_bell(&c->ledger->bell);
	c->live = 0;
	return c->attached;
}

/* ------------------------------------------------------------------------------------------- */
/* Sleeping                                                                                    */

/* The bell is read before the announcement, so that whatever is rung for it is seen. */
void ring_consumer_sleep(struct ring_consumer *c, bool doorbell, struct ring_sleep *out)
{
	bool one = c->live && !(c->live & (c->live - 1));

	*out = (struct ring_sleep){NULL, 0, false};
	if (one && !doorbell) {
		out->word = &c->sources[__builtin_ctzll(c->live)].lane->bell;
		out->value = atomic_load_explicit(out->word, memory_order_acquire);
	}
	out->unsure =
	    !ring_sleeper_announce(&c->sleeper, out->word ? CHANNEL_ON_FUTEX : CHANNEL_ON_DOORBELL);
}

void ring_consumer_awake(struct ring_consumer *c)
{
	ring_sleeper_awake(&c->sleeper);
}

void ring_consumer_get_stats(const struct ring_consumer *c, struct ring_consumer_stats *out)
{
	out->received = c->ledger->received;
	out->acknowledged = c->ledger->acknowledged - c->ledger->rejected;
	out->lost = c->ledger->lost;
	out->rejected = c->ledger->rejected;
}
