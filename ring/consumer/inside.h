/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/channel.h>

#include "ring/inside.h"
#include "ring/ring.h"

/*
 * Inside of the receiving half: its parts are receive.c (what comes out of the rings of producers),
 * look.c (whether something does) and consumer.c (who they are, and what goes back to them).
 */

/* Of a ticket; @version 0: it is not held. */
struct ring_held {
	uint32_t version, deliveries;
};

struct ring_source {
	uint64_t member, bit; /* of its row */
	const struct channel_ring *ring;
	const struct channel_admission *admission;
	const struct channel_lane *lane;
	const unsigned char *entries;
	const unsigned char *far; /* NULL: nothing of a message lies there */
	struct channel_row *row;
	uint64_t next; /* sequence number */
	uint64_t lost; /* not told of yet */
	uint32_t held;
	struct ring_held *tickets;
	uint32_t rung; /* for which of its sleeps */
	bool admitted, failed;
	bool used; /* its row, by this one or another before */
};

struct ring_consumer {
	struct channel_shape shape;
	enum channel_layout layout;
	struct channel_ledger *ledger;
	uint64_t member;
	size_t stride, far_size;
	uint32_t slot;
	uint32_t near;     /* bytes of data of a message whose data lie in its entry, at most */
	uint32_t turn;     /* who is looked at first */
	uint64_t attached; /* by row */
	uint64_t live;     /* of these, those from whom something may come */
	uint64_t moved;    /* those who might wait for what we have done */
	uint64_t rejected; /* those who do not, and are to be told */
	bool latest;       /* of each producer, and nothing older */
	bool ordered;      /* who sleeps can count on us to pass a barrier */
	struct ring_sleeper sleeper;
	struct ring_source sources[CHANNEL_MEMBERS_MAX];
	struct ring_held *tickets; /* of all sources */
};

static inline void ring_write_word(struct ring_consumer *c, struct ring_source *s, uint32_t ticket,
				   uint64_t word, uint64_t value)
{
	struct channel_ack *ack = &s->row->acks[ticket];

	atomic_store_explicit(&ack->value, value, memory_order_relaxed);
	atomic_store_explicit(&ack->word, word, memory_order_release);
	c->moved |= s->bit;
}

static inline void ring_write_ack(struct ring_consumer *c, struct ring_source *s, uint32_t ticket,
				  uint32_t version, struct ring_fence fence, bool retained)
{
	ring_write_word(c, s, ticket,
			(uint64_t)version << 32 | (retained ? CHANNEL_ACK_RETAINED : 0) |
			    fence.slot,
			fence.value);
}

static inline void ring_write_rejection(struct ring_consumer *c, struct ring_source *s,
					uint32_t ticket, uint32_t version, uint32_t deliveries,
					bool retained)
{
	ring_write_word(c, s, ticket,
			(uint64_t)version << 32 | (retained ? CHANNEL_ACK_RETAINED : 0) |
			    CHANNEL_ACK_REJECTED | (deliveries & CHANNEL_ACK_DELIVERY),
			0);
	c->rejected |= s->bit & c->attached;
}

static inline bool ring_heeds_rejections(const struct ring_source *s)
{
	return atomic_load_explicit(&s->ring->heeds, memory_order_relaxed) &
	       CHANNEL_HEEDS_REJECTIONS;
}

static inline bool ring_drops(const struct ring_consumer *c)
{
	return c->shape.when_full == SHARE_FULL_DROP;
}

/* What is below was dropped for everybody. */
static inline uint64_t ring_lane_head(const struct ring_consumer *c, const struct ring_source *s)
{
	return ring_drops(c) ? atomic_load_explicit(&s->lane->head, memory_order_acquire) : 0;
}

static inline const struct channel_entry *ring_source_entry(const struct ring_consumer *c,
							    const struct ring_source *s,
							    uint64_t sequence)
{
	return (const void *)(s->entries + (sequence & (c->shape.depth - 1)) * c->stride);
}

static inline const unsigned char *ring_source_far(const struct ring_consumer *c,
						   const struct ring_source *s, uint32_t ticket)
{
	return s->far + ticket * c->far_size;
}

static inline uint64_t ring_lane_tail(const struct ring_source *s)
{
	return atomic_load_explicit(&s->lane->tail, memory_order_acquire);
}

/* Of a message in this position of a lane, that is not for us: what is read of it by others than
 * its entry says may be another one's. */
static inline bool ring_is_passed(const struct ring_consumer *c, const struct ring_source *s,
				  uint64_t position)
{
	uint64_t head = ring_lane_head(c, s);

	if (c->latest && head <= position)
		head = atomic_load_explicit(&s->admission->head, memory_order_acquire);
	return head > position;
}

static inline bool ring_is_left_behind(const struct ring_consumer *c, const struct ring_source *s)
{
	return atomic_load_explicit(&s->admission->left_behind, memory_order_acquire) == c->member;
}

static inline bool ring_is_admitted(const struct ring_consumer *c, struct ring_source *s)
{
	if (s->admitted)
		return true;
	if (atomic_load_explicit(&s->admission->consumer, memory_order_acquire) != c->member)
		return false;
	s->next = atomic_load_explicit(&s->admission->start, memory_order_relaxed);
	s->lost = atomic_load_explicit(&s->admission->lost, memory_order_relaxed);
	channel_add(&c->ledger->lost, s->lost);
	s->admitted = true;
	return true;
}
