/* SPDX-License-Identifier: MIT */

/*
 * Consumers that get the latest message alone, in a broadcast where others may get all. What they
 * have not taken is dropped for them when something that it keeps is wanted: a place in the lane, a
 * ticket, memory. It is done as everywhere (room.c), by a head that is a consumer's own. All that
 * is older than the latest goes in one step, so that a barrier is due for many messages, or for one
 * where memory comes back at once.
 *
 * So such a consumer keeps what it has taken, and nothing else. It acknowledges what it leaves out
 * before it says that it has got beyond it.
 */

#include "ring/producer/inside.h"

/* Not below what has been looked at already. */
static uint64_t first_left(const struct ring_peer *peer)
{
	return peer->taken > peer->head && !MUTATION(pass_over_what_was_taken) ? peer->taken
									       : peer->head;
}

/* From @first up to @to, which we have said is not for it, whatever it has not taken by then. */
static void drop_for(struct ring_producer *p, uint32_t consumer, uint64_t first, uint64_t to)
{
	const struct ring_lane *l = &p->lanes[0];
	uint64_t taken = MUTATION(pass_over_what_was_taken) ? first : ring_taken(p, consumer);

	if (first < taken)
		first = taken;
	if (first < l->head)
		first = l->head;
	for (; first < to; first++) {
		uint16_t ticket = l->tickets[first & p->page.mask];
		struct ring_ticket *t = &p->tickets[ticket];

		if (t->list != 0 || t->sequence != first)
			continue;
		t->pending &= ~RING_BIT(consumer);
		ring_finish_if_through(p, ticket);
	}
}

/* What is below @to is for none of them, but for what they have taken. */
static void pass_over(struct ring_producer *p, uint64_t to)
{
	uint64_t first[CHANNEL_MEMBERS_MAX], raised = 0;

	for (uint64_t who = p->consumers.latest; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);
		struct ring_peer *peer = &p->peers[consumer];

		if (first_left(peer) >= to || ring_taken(p, consumer) >= to)
			continue;
		first[consumer] = first_left(peer);
		peer->head = to;
		atomic_store_explicit(&peer->admission->head, to, memory_order_release);
		raised |= RING_BIT(consumer);
	}
	if (raised)
		ring_barrier();
	for (; raised; raised &= raised - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(raised);

		drop_for(p, consumer, first[consumer], to);
	}
}

uint64_t ring_pass_over_for_room(struct ring_producer *p)
{
	uint64_t tail = p->lanes[0].tail, head = p->lanes[0].head, lowest = tail;
	uint64_t wanted = tail >= p->shape.depth ? tail - p->shape.depth + 1 : 0;

	pass_over(p, tail > 0 && tail - 1 > wanted ? tail - 1 : wanted);
	for (uint64_t who = p->consumers.latest; who; who &= who - 1) {
		uint64_t left = first_left(&p->peers[__builtin_ctzll(who)]);

		lowest = left < lowest ? left : lowest;
	}
	return lowest > head ? lowest : head;
}

void ring_pass_over_old(struct ring_producer *p)
{
	if (p->lanes[0].tail > 0)
		pass_over(p, p->lanes[0].tail - 1);
}

bool ring_pass_over_for_tickets(struct ring_producer *p, uint32_t tickets)
{
	uint64_t tail = p->lanes[0].tail;
	const struct ring_ticket *t;
	uint16_t ticket;

	ring_pass_over(p);
	if (p->consumers.latest == 0 || tail == 0)
		return false;
	if (p->lists[LIST_DONE].n > 0)
		return true;
	ticket = p->lanes[0].tickets[(tail - 1) & p->page.mask];
	t = &p->tickets[ticket];
	if (t->list == 0 && t->sequence == tail - 1 && (t->pending & ~p->consumers.latest) == 0 &&
	    !ring_is_history(p, t) && p->free.n + ring_count_tickets(p, ticket) >= tickets)
		pass_over(p, tail);
	return p->lists[LIST_DONE].n > 0;
}

uint64_t ring_who_is_modest(struct ring_producer *p)
{
	uint64_t modest = 0;

	for (uint64_t who = p->consumers.latest; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who), held = 0;
		uint64_t taken = ring_taken(p, consumer);

		for (uint32_t i = 0; i < p->shape.in_flight; i++)
			held += p->tickets[i].pending & RING_BIT(consumer) &&
				p->tickets[i].sequence < taken;
		if (held <= CHANNEL_LATEST_HELD)
			modest |= RING_BIT(consumer);
	}
	return modest;
}
