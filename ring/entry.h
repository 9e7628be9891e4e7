/* SPDX-License-Identifier: MIT */
#pragma once

#include "pages/timeline.h"
#include "ring/inside.h"
#include "ring/ring.h"

/* An entry as it is written, and as others read it while its producer may write anything into it.
 */

/* Data that lie by their message's ticket, and not in its entry. */
static inline bool ring_is_far(uint32_t data_size)
{
	return __builtin_expect(data_size > CHANNEL_DATA_NEAR, 0);
}

/* All but its sequence number, and data that are far; @ticket: of a copy, whose lane it is in. */
static inline void ring_entry_store(struct channel_entry *e, const struct ring_message *m,
				    uint64_t number, uint32_t version, uint16_t ticket,
				    uint32_t deliveries)
{
	if (!ring_is_far(m->data_size))
		ring_store_data(e->data, m->data, m->data_size);
	ring_store(&e->number, number);
	ring_store(&e->buffer, m->buffer);
	ring_store(&e->segment, m->buffer ? m->segment : 0);
	ring_store(&e->offset_data_size, CHANNEL_PACK(m->buffer ? m->offset : 0, m->data_size));
	ring_store(&e->size_deliveries, CHANNEL_PACK(m->buffer ? m->size : 0, deliveries));
	ring_store(&e->value, m->fence.value);
	ring_store(&e->version, version);
	ring_store(&e->ticket, ticket);
	ring_store(&e->timeline, CHANNEL_TIMELINE(m->fence.slot, m->n_further));
}

/* All but its data. */
static inline void ring_entry_load(const struct channel_entry *e, struct ring_message *out)
{
	uint64_t offset_data_size, size_deliveries;

	out->number = ring_load(&e->number);
	out->buffer = ring_load(&e->buffer);
	out->segment = ring_load(&e->segment);
	offset_data_size = ring_load(&e->offset_data_size);
	size_deliveries = ring_load(&e->size_deliveries);
	out->fence.value = ring_load(&e->value);
	out->fence.slot = ring_load(&e->timeline);
	out->version = ring_load(&e->version);
	out->ticket = ring_load(&e->ticket);
	out->n_further = 0;
	out->offset = CHANNEL_LARGE(offset_data_size);
	out->data_size = CHANNEL_SMALL(offset_data_size);
	out->size = CHANNEL_LARGE(size_deliveries);
	out->deliveries = CHANNEL_SMALL(size_deliveries);
}

static inline uint64_t ring_sequence_of(const struct channel_entry *e)
{
	return atomic_load_explicit(&e->sequence, memory_order_acquire);
}

/* As far as one can see, with no more data than @most; but for its ticket. */
static inline bool ring_is_sound(const struct ring_message *m, uint32_t most)
{
	return m->data_size <= most && m->version != 0 && m->fence.slot < TIMELINE_SLOTS &&
	       m->deliveries > 0 &&
	       (m->buffer != 0 || (m->segment == 0 && m->offset == 0 && m->size == 0));
}
