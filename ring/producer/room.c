/* SPDX-License-Identifier: MIT */

/*
 * Where a message goes, and what has to go for it when the channel drops the oldest. A message is
 * dropped by raising the head of its lane above it, and looking then at who has taken it before:
 * they keep it and acknowledge it; everybody else will see the head. So nobody reads what somebody
 * else believes to be free.
 */

#include <errno.h>

#include "ring/producer/inside.h"

/* What somebody has given back comes before what is sent now, wherever it is in its lane. */
static void look_for_rejected(struct ring_producer *p)
{
	for (uint64_t who = p->busy & (p->consumers.admitted | p->consumers.leaving); who;
	     who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);
		struct ring_peer *peer = &p->peers[consumer];
		uint64_t rejected =
		    atomic_load_explicit(&peer->ledger->rejected, memory_order_acquire);

		if (rejected == peer->rejected || MUTATION(send_before_what_was_rejected))
			continue;
		peer->rejected = rejected;
		/* the newest first, so that they are in front of the backlog in their order */
		for (uint16_t t = p->lists[consumer].last, previous; t != TICKET_NONE;
		     t = previous) {
			previous = p->tickets[t].previous;
			ring_observe(p, t, false);
		}
	}
}

/* So that the load of everybody is what it is, as far as they acknowledge in order. Where there is
 * no choice it does not matter. */
static void look_at_loads(struct ring_producer *p)
{
	uint64_t who = p->consumers.admitted;

	if ((who & (who - 1)) == 0)
		return;
	for (uint64_t lanes = p->busy; lanes; lanes &= lanes - 1) {
		struct ring_list *l = &p->lists[__builtin_ctzll(lanes)];

		while (l->first != TICKET_NONE && ring_observe(p, l->first, false))
			;
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Dropping                                                                                    */

static void drop(struct ring_producer *p, uint32_t lane, uint64_t sequence)
{
	struct ring_lane *l = &p->lanes[lane];
	uint16_t ticket = l->tickets[sequence & p->page.mask];
	struct ring_ticket *t = &p->tickets[ticket];
	bool unclaimed = ring_is_unclaimed(p, t), dropped = unclaimed;

	l->head = sequence + 1;
	if (l->base < l->head)
		l->base = l->head;
	l->limit = 0;
	atomic_store_explicit(&l->shared->head, l->head, memory_order_release);
	ring_barrier();
	if (t->list != lane || t->sequence != sequence)
		return; /* everybody has acknowledged it */
	for (uint64_t who = t->pending & p->consumers.admitted; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);

		if (ring_taken(p, consumer) > sequence && !MUTATION(drop_what_was_taken))
			continue;
		t->pending &= ~RING_BIT(consumer);
		dropped |= !(p->consumers.latest & RING_BIT(consumer));
		if (ring_is_queue(p) && p->peers[consumer].load > 0)
			p->peers[consumer].load--;
	}
	p->untold += unclaimed;
	if (dropped)
		channel_add(&p->page.header->dropped, 1);
	ring_finish_if_through(p, ticket);
}

static void drop_from_backlog(struct ring_producer *p, uint16_t ticket)
{
	channel_add(&p->page.header->dropped, 1);
	ring_finish(p, ticket);
}

/* The oldest that some consumer of a lane has not taken. */
static uint64_t oldest_in(struct ring_producer *p, uint32_t lane)
{
	struct ring_lane *l = &p->lanes[lane];

	l->limit = 0;
	(void)ring_has_room(p, lane);
	return l->limit - p->shape.depth;
}

/* Whether nobody would have it any more. */
static bool would_be_free(struct ring_producer *p, uint32_t lane, uint64_t sequence)
{
	uint16_t ticket = p->lanes[lane].tickets[sequence & p->page.mask];
	struct ring_ticket *t = &p->tickets[ticket];

	if (t->list != lane || t->sequence != sequence || (t->pending & ~p->consumers.admitted))
		return false;
	for (uint64_t who = t->pending; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);

		if (p->peers[consumer].taken > sequence && !ring_observe_one(p, ticket, consumer))
			return false;
	}
	return true;
}

/* What some have taken and others not may be free when it is dropped for the others: of that, only
 * so many are looked at. What nobody has taken is free for certain. */
#define LOOK_AT 64

/* Of what all have received, the oldest that all have acknowledged: it is there for who comes.
 * Whether there was one. */
static bool drop_from_history(struct ring_producer *p, uint64_t received)
{
	const struct ring_lane *l = &p->lanes[0];
	uint64_t history = p->shape.history, first = l->tail > history ? l->tail - history : 0;
	uint64_t last;

	if (first < l->head)
		first = l->head;
	for (last = first; last < received && !would_be_free(p, 0, last);)
		last++;
	for (uint64_t sequence = first; last < received && sequence <= last; sequence++)
		drop(p, 0, sequence);
	return last < received;
}

/* Everybody who was there has received the history, so it goes before what nobody has. */
static void drop_for_nobody(struct ring_producer *p)
{
	uint64_t oldest = oldest_in(p, 0);

	if (!drop_from_history(p, oldest) && oldest < p->lanes[0].tail)
		drop(p, 0, oldest);
}

static void drop_in_broadcast(struct ring_producer *p)
{
	uint64_t tail = p->lanes[0].tail, oldest = oldest_in(p, 0), untaken = oldest, last;

	for (uint64_t who = p->consumers.admitted; who; who &= who - 1) {
		uint64_t taken = p->peers[__builtin_ctzll(who)].taken;

		untaken = taken > untaken ? taken : untaken;
	}
	for (last = oldest; last < untaken && last - oldest < LOOK_AT; last++)
		if (would_be_free(p, 0, last))
			break;
	if (last < untaken && last - oldest == LOOK_AT)
		last = untaken;
	for (uint64_t sequence = oldest; last < tail && sequence <= last; sequence++)
		drop(p, 0, sequence);
	if (last >= tail)
		drop_from_history(p, oldest);
}

static void drop_in_lanes(struct ring_producer *p)
{
	uint32_t oldest = CHANNEL_MEMBERS_MAX;
	uint64_t number = UINT64_MAX;

	for (uint64_t who = p->consumers.admitted; who; who &= who - 1) {
		uint32_t lane = (uint32_t)__builtin_ctzll(who);
		uint64_t sequence = oldest_in(p, lane);
		const struct ring_ticket *t =
		    &p->tickets[p->lanes[lane].tickets[sequence & p->page.mask]];

		if (sequence < p->lanes[lane].tail && would_be_free(p, lane, sequence) &&
		    t->number < number) {
			number = t->number;
			oldest = lane;
		}
	}
	if (oldest != CHANNEL_MEMBERS_MAX)
		drop(p, oldest, oldest_in(p, oldest));
}

static void drop_oldest(struct ring_producer *p)
{
	if (ring_is_deserted_broadcast(p)) {
		drop_for_nobody(p);
		return;
	}
	if (p->shape.mode == CHANNEL_BROADCAST) {
		drop_in_broadcast(p);
		return;
	}
	for (uint16_t t = p->lists[LIST_BACKLOG].first; t != TICKET_NONE; t = p->tickets[t].next)
		if (p->tickets[t].pending == 0) {
			drop_from_backlog(p, t);
			return;
		}
	drop_in_lanes(p);
}

/* Of a lane the oldest goes before the next. */
static uint32_t count_droppable(struct ring_producer *p, uint32_t lane)
{
	const struct ring_lane *l = &p->lanes[lane];
	uint32_t n = 0;

	for (uint64_t at = oldest_in(p, lane); at < l->tail && would_be_free(p, lane, at); at++)
		n += ring_count_tickets(p, l->tickets[at & p->page.mask]);
	return n;
}

/* Whether so many tickets would be free if all were dropped that can be. */
static bool could_have_tickets(struct ring_producer *p, uint32_t tickets)
{
	uint32_t n = p->free.n;

	if (p->shape.mode == CHANNEL_BROADCAST) {
		(void)oldest_in(p, 0); /* how far all have got */
		for (uint16_t t = p->lists[0].first; t != TICKET_NONE; t = p->tickets[t].next)
			if (would_be_free(p, 0, p->tickets[t].sequence))
				n += ring_count_tickets(p, t);
		return n >= tickets;
	}
	for (uint16_t t = p->lists[LIST_BACKLOG].first; t != TICKET_NONE; t = p->tickets[t].next)
		if (p->tickets[t].pending == 0)
			n += ring_count_tickets(p, t);
	for (uint64_t who = p->consumers.admitted; who; who &= who - 1)
		n += count_droppable(p, (uint32_t)__builtin_ctzll(who));
	return n >= tickets;
}

/* Direct. Nobody gets more of the tickets than `depth`: a consumer that does not acknowledge, or
 * does so behind work that is not done, keeps its own messages, not those of others. */
static bool has_place(struct ring_producer *p, uint32_t target)
{
	return p->peers[target].load < p->shape.depth && ring_has_room(p, target);
}

/* Perhaps when its oldest is dropped. */
static bool could_have_place(struct ring_producer *p, uint32_t target)
{
	return has_place(p, target) || oldest_in(p, target) < p->lanes[target].tail;
}

/* With those of what only has to be reclaimed. */
static uint32_t count_free(const struct ring_producer *p)
{
	uint32_t n = p->free.n;

	for (uint16_t t = p->lists[LIST_DONE].first; t != TICKET_NONE; t = p->tickets[t].next)
		n += ring_count_tickets(p, t);
	return n;
}

/* One is worth what it gives back at once; of several, none is while they do not suffice. */
void ring_drop_for_tickets(struct ring_producer *p, uint32_t target, uint32_t tickets)
{
	if (p->shape.mode == CHANNEL_DIRECT && !could_have_place(p, target))
		return;
	if (tickets > 1 && !could_have_tickets(p, tickets) && !MUTATION(drop_in_vain))
		return;
	while (count_free(p) < tickets) {
		uint32_t before = p->lists[LIST_DONE].n;

		drop_oldest(p);
		if (p->lists[LIST_DONE].n == before)
			return;
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Finding room                                                                                */

/* In a lane that is full. Its oldest has been taken meanwhile, or goes. */
static void make_room(struct ring_producer *p, uint32_t lane)
{
	if (!ring_has_room(p, lane))
		drop(p, lane, p->lanes[lane].tail - p->shape.depth);
}

static int find_in_queue(struct ring_producer *p, uint32_t *lane)
{
	struct ring_list *backlog = &p->lists[LIST_BACKLOG];

	look_for_rejected(p);
	look_at_loads(p);
	ring_deliver_backlog(p);
	if (backlog->n == 0 && (*lane = ring_choose(p, true, 0)) != CHANNEL_MEMBERS_MAX)
		return 0;
	if (backlog->n == 0 && p->consumers.admitted != 0) {
		if (!ring_drops(p))
			return -EAGAIN;
		*lane = ring_choose(p, false, 0);
		make_room(p, *lane);
		return 0;
	}
	/* what was sent earlier waits, and so does this */
	*lane = LIST_BACKLOG;
	if (p->consumers.admitted != 0 && !ring_drops(p))
		return -EAGAIN;
	if (backlog->n < p->shape.depth)
		return 0;
	if (!ring_drops(p))
		return -EAGAIN;
	drop_from_backlog(p, backlog->first);
	return 0;
}

static int find_for_one(struct ring_producer *p, uint32_t target)
{
	if (!ring_is_there(p, target))
		return -ENOENT;
	if (has_place(p, target))
		return 0;
	if (!ring_drops(p))
		return -EAGAIN;
	if (oldest_in(p, target) < p->lanes[target].tail)
		drop(p, target, oldest_in(p, target));
	return has_place(p, target) ? 0 : -EAGAIN;
}

int ring_find_room(struct ring_producer *p, uint32_t target, uint32_t *lane)
{
	switch (p->shape.mode) {
	case CHANNEL_QUEUE:
		return find_in_queue(p, lane);
	case CHANNEL_DIRECT:
		*lane = target;
		return find_for_one(p, target);
	default:
		*lane = 0;
		if (ring_has_room(p, 0))
			return 0;
		if (!ring_drops(p) && !ring_is_deserted_broadcast(p) &&
		    !MUTATION(drop_though_somebody_is_there))
			return -EAGAIN;
		make_room(p, 0);
		return 0;
	}
}
