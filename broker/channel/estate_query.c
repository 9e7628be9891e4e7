/* SPDX-License-Identifier: MIT */

/* What others want to know about estates: whom they wait for, and what is in them. */

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/estate.h"

bool estate_waits_for(const struct estate *e, const struct member *consumer)
{
	const struct holder *h = estate_find_holder(e, consumer);
	const struct estate *part;

	if (h && !h->over)
		return true;
	LIST_FOREACH (part, &e->producer->as_producer.abandoned, of_producer) {
		h = estate_find_holder(part, consumer);
		if (h && !h->over)
			return true;
	}
	return false;
}

bool estate_has_unreceived(const struct estate *e)
{
	for (uint32_t i = 0; e->phase == PHASE_SETTLING && i < e->n_holders; i++) {
		const struct holder *h = &e->holders[i];

		if (h->consumer && h->admitted && !h->over && h->consumer->state != MEMBER_GONE &&
		    member_unreceived(e->producer, h->consumer) > 0)
			return true;
	}
	return false;
}

bool estate_is_at_work(const struct estate *e)
{
	const struct estate *part;

	LIST_FOREACH (part, &e->producer->as_producer.abandoned, of_producer)
		if (part->queued)
			return true;
	return e->queued;
}

static bool ring_has(struct member *producer, uint64_t id)
{
	const struct channel_ticket *t;

	for (uint32_t i = 0; (t = member_next_ticket(producer, &i)); i++)
		if (atomic_load_explicit(&t->buffer, memory_order_relaxed) == id)
			return true;
	return false;
}

static bool has_entry(const struct estate *e, const struct buffer *buffer)
{
	for (uint32_t i = 0; i < e->n; i++)
		if (e->entries[i].buffer == buffer)
			return true;
	return false;
}

bool estate_has(const struct estate *e, const struct buffer *buffer)
{
	struct member *m = e->producer;
	const struct estate *part;

	LIST_FOREACH (part, &m->as_producer.abandoned, of_producer)
		if (has_entry(part, buffer))
			return true;
	if (e->phase != PHASE_SETTLING)
		return lease_find(e->broker, m->client, (struct buffer *)(uintptr_t)buffer) &&
		       ring_has(m, buffer_id(buffer));
	return has_entry(e, buffer);
}

uint64_t estate_since_ms(const struct estate *e)
{
	return e->since_ms;
}

void estate_measure(const struct estate *e, uint64_t *buffers, uint64_t *bytes)
{
	const struct estate *part;

	*buffers += e->phase == PHASE_SETTLING ? e->n_left : e->n;
	*bytes += e->bytes;
	LIST_FOREACH (part, &e->producer->as_producer.abandoned, of_producer) {
		*buffers += part->n_left;
		*bytes += part->bytes;
	}
}
