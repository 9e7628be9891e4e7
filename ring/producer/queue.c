/* SPDX-License-Identifier: MIT */

/*
 * A queue: to whom a message goes, which is whoever has the fewest, and what waits because nobody
 * has room, or had it before somebody gave it back. What waits is read from its copy.
 */

#include "base/mutation.h"
#include "ring/producer/lane.h"

static uint32_t choose_of(struct ring_producer *p, uint64_t consumers, bool with_room)
{
	uint64_t after = consumers & ~((RING_BIT(p->turn) << 1) - 1);
	uint64_t rest = consumers & ~after;
	uint32_t best = CHANNEL_MEMBERS_MAX;

	for (int half = 0; half < 2; half++, after = rest)
		for (; after; after &= after - 1) {
			uint32_t consumer = (uint32_t)__builtin_ctzll(after);

			if (best != CHANNEL_MEMBERS_MAX &&
			    p->peers[consumer].load >= p->peers[best].load)
				continue;
			if (!with_room || ring_has_room(p, consumer))
				best = consumer;
		}
	return best;
}

uint32_t ring_choose(struct ring_producer *p, bool with_room, uint64_t rather_not)
{
	uint64_t admitted = p->consumers.admitted;
	uint32_t best;

	if (MUTATION(give_back_to_who_rejected))
		rather_not = 0;
	best = choose_of(p, admitted & ~rather_not, with_room);

	if (best == CHANNEL_MEMBERS_MAX && admitted & rather_not)
		best = choose_of(p, admitted, with_room);
	return best;
}

void ring_read_copy(const struct ring_producer *p, uint16_t ticket, struct ring_message *out)
{
	struct channel_entry *copy = ring_copy_of(p, ticket);

	ring_entry_load(copy, out);
	out->n_further = CHANNEL_MORE(out->fence.slot);
	out->fence.slot = CHANNEL_SLOT(out->fence.slot);
	out->ticket = ticket;
	/* in our own page, or memory; and in no other, whatever has become of the copy */
	out->data = copy->data;
	if (p->far.all && ring_is_far(out->data_size))
		out->data = p->far.all + ticket * p->far.size + channel_far_data(&p->shape);
}

void ring_deliver(struct ring_producer *p, uint16_t ticket, uint32_t consumer,
		  const struct ring_message *m, uint32_t deliveries)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct channel_entry *copy = ring_copy_of(p, ticket);

	t->consumer = (uint8_t)consumer;
	t->pending |= RING_BIT(consumer);
	p->peers[consumer].load++;
	p->turn = consumer;
	ring_append(p, consumer, ticket);
	/* first whose it is, and then that it is there: nobody else is to have it then */
	ring_store(&copy->ticket, (uint16_t)consumer);
	if (!MUTATION(copy_of_no_lane))
		atomic_store_explicit(&copy->sequence, p->lanes[consumer].tail + 1,
				      memory_order_release);
	ring_put(p, consumer, ticket, m, deliveries);
}

void ring_deliver_backlog(struct ring_producer *p)
{
	struct ring_list *backlog = &p->lists[LIST_BACKLOG];

	while (backlog->n > 0) {
		uint16_t ticket = backlog->first;
		struct ring_message m;
		uint32_t consumer;

		/* nobody is to get what one who was left behind with it has acknowledged by now */
		if (p->tickets[ticket].pending != 0 && ring_observe(p, ticket, true))
			continue;
		consumer = ring_choose(p, true, p->tickets[ticket].refused);
		if (consumer == CHANNEL_MEMBERS_MAX)
			return;
		ring_unlink(p, ticket);
		ring_read_copy(p, ticket, &m);
		ring_deliver(p, ticket, consumer, &m, m.deliveries);
	}
}
