/* SPDX-License-Identifier: MIT */
#pragma once

#include "ring/entry.h"
#include "ring/producer/inside.h"

/* The message with this ticket goes into a lane, which has room. */
static inline __attribute__((always_inline)) void ring_put(struct ring_producer *p, uint32_t lane,
							   uint16_t ticket,
							   const struct ring_message *m,
							   uint32_t deliveries)
{
	struct ring_lane *l = &p->lanes[lane];
	struct channel_entry *e = (void *)(l->entries + (l->tail & p->page.mask) * p->page.stride);
	struct ring_ticket *t = &p->tickets[ticket];

	/*
	 * Whoever still reads the older one is not to take a mixture for either. Where all have
	 * taken it, nobody does. The line with the sequence number, which consumers keep looking
	 * at, is written last and at once.
	 */
	if (ring_drops(p) || (p->consumers.lingering | p->consumers.latest) != 0) {
		atomic_store_explicit(&e->sequence, 0, memory_order_release);
		atomic_thread_fence(memory_order_release);
	}
	ring_entry_store(e, m, t->number, t->version, ticket, deliveries);
	atomic_store_explicit(&e->sequence, l->tail + 1, memory_order_release);

	l->tickets[l->tail & p->page.mask] = ticket;
	t->sequence = l->tail++;
	atomic_store_explicit(&l->shared->tail, l->tail, memory_order_release);
	p->consumers.fresh |=
	    p->shape.mode == CHANNEL_BROADCAST ? p->consumers.admitted : RING_BIT(lane);
	/* nobody looks at the next one's data before its header: ours by then */
	e = (void *)(l->entries + (l->tail & p->page.mask) * p->page.stride);
	__builtin_prefetch(e->data, 1);
}
