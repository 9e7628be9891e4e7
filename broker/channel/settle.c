/* SPDX-License-Identifier: MIT */

/*
 * A producer that is gone may lose its slot to a new one before all that it has sent is back, and
 * with the slot the rows of it in the ledgers of consumers. What these had acknowledged there, and
 * what they still have, they tell the broker then, and nobody but them knows of it: it is as good
 * as the ledger, which is theirs as well. Who does not, or does it behind more fences than its user
 * may have, keeps the memory until it is dead.
 */

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/channel/estate.h"

/* They are in the order of their tickets. */
static struct entry *find_entry(struct estate *e, uint32_t ticket)
{
	uint32_t low = 0, high = e->n;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (e->entries[middle].ticket < ticket)
			low = middle + 1;
		else
			high = middle;
	}
	return low < e->n && e->entries[low].ticket == ticket ? &e->entries[low] : NULL;
}

static void settle_one(struct estate *e, struct holder *h, const struct wire_settled *s)
{
	struct entry *entry = find_entry(e, s->ticket);
	uint64_t bit = UINT64_C(1) << (h - e->holders);
	struct fence fence;

	if (!entry || !entry->buffer || entry->version != s->version || !(entry->open & bit))
		return;
	fence = member_fence(h->consumer, s->slot, s->value);
	if (fence.timelines && !estate_gate(entry, &fence)) {
		h->refused = true;
		return;
	}
	entry->open &= ~bit;
	if (!entry->open && !entry->runs)
		estate_give_up(e, entry);
}

static void settle(struct estate *e, const struct member *consumer, const struct wire_settled *acks,
		   size_t n, bool all)
{
	struct holder *h = estate_find_holder(e, consumer);

	if (!h)
		return;
	for (size_t i = 0; i < n; i++)
		settle_one(e, h, &acks[i]);
	h->told |= all && !h->refused;
	if (e->n_left == 0)
		estate_queue(e);
}

void estate_settle(struct estate *e, const struct member *consumer, const struct wire_settled *acks,
		   size_t n, bool all)
{
	struct estate *part;

	settle(e, consumer, acks, n, all);
	LIST_FOREACH (part, &e->producer->as_producer.abandoned, of_producer)
		settle(part, consumer, acks, n, all);
	if (all)
		estate_drained(e, consumer);
}
