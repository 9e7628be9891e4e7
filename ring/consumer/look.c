/* SPDX-License-Identifier: MIT */

/*
 * Whether a consumer has something to receive, or to be told of: it looks, and takes nothing.
 */

#include "base/mutation.h"
#include "ring/consumer/inside.h"
#include "ring/entry.h"

/* A message, or something to be told. */
static bool has_something(struct ring_consumer *c, struct ring_source *s)
{
	if (ring_is_left_behind(c, s))
		return true;
	if (!ring_is_admitted(c, s))
		return false;
	return (c->latest ? ring_lane_tail(s) > s->next
			  : ring_sequence_of(ring_source_entry(c, s, s->next)) > s->next ||
				ring_drops(c)) ||
	       atomic_load_explicit(&s->ring->sends_no_more, memory_order_acquire);
}

uint32_t ring_consumer_look(struct ring_consumer *c, uint32_t n)
{
	struct ring_source *s;
	uint32_t there = 0;

	if (c->live == 0)
		return 1;
	if (c->live & (c->live - 1)) {
		for (uint64_t live = c->live; live; live &= live - 1)
			if (has_something(c, &c->sources[__builtin_ctzll(live)]))
				return 1;
		return 0;
	}
	s = &c->sources[__builtin_ctzll(c->live)];
	/* on its way while the header is: one that is there is read next */
	__builtin_prefetch(ring_source_entry(c, s, s->next)->data);
	while (s->admitted && !c->latest && there < n &&
	       ring_sequence_of(ring_source_entry(c, s, s->next + there)) == s->next + there + 1)
		there++;
	return there > 0 ? there : has_something(c, s);
}

bool ring_consumer_is_empty(struct ring_consumer *c, uint32_t row)
{
	struct ring_source *s = &c->sources[row];

	if (!(c->attached & RING_BIT(row)) || s->failed || !ring_is_admitted(c, s))
		return true;
	if (c->latest) {
		uint64_t tail = ring_lane_tail(s);

		/* Who dies as it overwrites its only entry leaves a tail that nothing is before. */
		return tail <= s->next ||
		       ring_sequence_of(ring_source_entry(c, s, tail - 1)) != tail;
	}
	return ring_sequence_of(ring_source_entry(c, s, s->next)) != s->next + 1 &&
	       ring_lane_head(c, s) <= s->next;
}

/* The word is read before it is looked whether there is a message: the last one may have come in
 * between. One that has left us behind is for ring_consumer_receive_run() to tell. */
static bool has_ended(struct ring_consumer *c, uint32_t row)
{
	const struct ring_source *s = &c->sources[row];

	if (!atomic_load_explicit(&s->ring->sends_no_more, memory_order_acquire))
		return false;
	return (ring_consumer_is_empty(c, row) || MUTATION(end_before_the_last)) &&
	       !ring_is_left_behind(c, s);
}

bool ring_consumer_end(struct ring_consumer *c, uint32_t *row)
{
	for (uint64_t live = c->live; live; live &= live - 1) {
		*row = (uint32_t)__builtin_ctzll(live);
		if (!has_ended(c, *row))
			continue;
		c->live &= ~RING_BIT(*row);
		return true;
	}
	return false;
}
