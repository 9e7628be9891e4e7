/* SPDX-License-Identifier: MIT */

/*
 * Consumers come and go. Who goes is said to be left behind before what it has taken is read: what
 * it takes after that, it finds out not to be its own. In a queue, others get what it had not
 * acknowledged. One that says itself that it takes no more keeps what it has.
 */

#include <linux/membarrier.h>

#include "ring/producer/inside.h"

void ring_producer_identify(struct ring_producer *p, uint64_t member)
{
	p->member = member;
}

/* ------------------------------------------------------------------------------------------- */
/* Coming                                                                                      */

/* Those who are yet to acknowledge it may leave a fence each, and others have left some and gone.
 */
static bool has_room_for_fence(const struct ring_producer *p, const struct ring_ticket *t)
{
	return t->n_fences + (uint32_t)__builtin_popcountll(t->pending) < p->shape.consumers;
}

/* Broadcast: where a new one begins: at what nobody has, or at the oldest of which every later
 * message is still there. All these wait for it then. */
static uint64_t adopt(struct ring_producer *p, uint32_t consumer, bool oldest)
{
	struct ring_lane *l = &p->lanes[0];
	uint64_t start = l->tail, lowest = p->consumers.admitted == 0 ? l->base : l->tail;

	if (oldest)
		lowest = l->tail > p->shape.depth ? l->tail - p->shape.depth : 0;
	if (lowest < l->head)
		lowest = l->head;
	for (; start > lowest; start--) {
		struct ring_ticket *t = &p->tickets[l->tickets[(start - 1) & p->page.mask]];

		if (t->list != 0 || t->sequence != start - 1 || !has_room_for_fence(p, t))
			break;
		t->pending |= RING_BIT(consumer);
	}
	return start;
}

void ring_producer_forget_fences(struct ring_producer *p,
				 bool (*reached)(void *data, const struct ring_owned_fence *f),
				 void *data)
{
	const struct ring_lane *l = &p->lanes[0];

	for (uint32_t back = 1; back <= p->shape.history && back <= l->tail - l->head; back++) {
		uint16_t ticket = l->tickets[(l->tail - back) & p->page.mask];
		struct ring_owned_fence *fences = ring_fences_of(p, ticket);
		struct ring_ticket *t = &p->tickets[ticket];
		uint8_t left = 0;

		if (t->list != 0)
			continue;
		ring_observe(p, ticket, true);
		for (uint8_t i = 0; i < t->n_fences; i++)
			if (!reached(data, &fences[i]))
				fences[left++] = fences[i];
		t->n_fences = left;
	}
}

void ring_producer_wait_for(struct ring_producer *p, uint32_t n)
{
	p->wait_for = n;
}

void ring_producer_end_history(struct ring_producer *p)
{
	p->shape.history = 0;
}

void ring_producer_admit(struct ring_producer *p, uint32_t consumer, struct ring_owner *owner,
			 const void *ledger, uint32_t row, unsigned how)
{
	struct ring_peer *peer = &p->peers[consumer];
	void *page = (void *)(uintptr_t)ledger; /* for looking only */
	uint32_t lane = channel_lane_of(&p->shape, consumer);
	uint64_t start, lost;

	ring_producer_dismiss(p, consumer, true);
	lost = p->consumers.admitted == 0 && !MUTATION(hide_what_was_dropped) ? p->untold : 0;
	start = p->shape.mode == CHANNEL_BROADCAST ? adopt(p, consumer, how & RING_OLDEST)
						   : p->lanes[lane].tail;
	*peer = (struct ring_peer){
	    .admission = channel_admission_at(p->page.ring, &p->shape, consumer),
	    .ledger = ledger,
	    .row = channel_row_at(page, &p->shape, row),
	    .owner = owner,
	    .taken = start,
	    .head = start,
	    .progress = start,
	    .since = p->sent,
	};
	p->lanes[lane].limit = 0;
	p->consumers.admitted |= RING_BIT(consumer);
	if (how & RING_LATEST && p->shape.mode == CHANNEL_BROADCAST)
		p->consumers.latest |= RING_BIT(consumer);
	p->consumers.fresh |= RING_BIT(consumer);
	p->untold = 0;
	atomic_store_explicit(&peer->admission->start, start, memory_order_relaxed);
	atomic_store_explicit(&peer->admission->lost, lost, memory_order_relaxed);
	atomic_store_explicit(&peer->admission->head, start, memory_order_relaxed);
	atomic_store_explicit(&peer->admission->consumer, owner->member, memory_order_release);
	if (ring_is_queue(p))
		ring_deliver_backlog(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Going                                                                                       */

/* Once for each that has come. After the last one, what is sent is for who comes next. */
static void stop_counting(struct ring_producer *p, uint32_t consumer)
{
	if (!(p->consumers.admitted & RING_BIT(consumer)) && !MUTATION(stops_counting_twice))
		return;
	p->consumers.admitted &= ~RING_BIT(consumer);
	p->consumers.latest &= ~RING_BIT(consumer);
	if (p->consumers.admitted == 0)
		p->lanes[0].base = p->lanes[0].tail;
}

/* Of a message: somebody may have a lease of each of its buffers. */
static void retain_all(struct ring_producer *p, uint16_t ticket)
{
	do
		p->tickets[ticket].retained |= !MUTATION(recycle_abandoned);
	while (ring_next_further(p, &ticket));
}

enum parting { LEAVES, LEFT_BEHIND, SAFE };

/* All that it has not taken is not its own any more. All that it has: it will acknowledge that if
 * it LEAVES, may use it until then if it is LEFT_BEHIND, and cannot if it is SAFE; but whoever it
 * has sent it on to can. */
static void part_from(struct ring_producer *p, uint32_t consumer, uint64_t taken,
		      enum parting parting)
{
	uint16_t previous;

	/* the newest first, so that they are in front of the backlog in their order */
	for (uint16_t ticket = p->lists[channel_lane_of(&p->shape, consumer)].last;
	     ticket != TICKET_NONE; ticket = previous) {
		struct ring_ticket *t = &p->tickets[ticket];
		bool had = t->sequence < taken;

		previous = t->previous;
		if (!(t->pending & RING_BIT(consumer)))
			continue;
		if (ring_observe_one(p, ticket, consumer)) {
			ring_finish_if_through(p, ticket);
			continue;
		}
		if (had && parting == LEAVES && !MUTATION(hand_on_what_is_held))
			continue;
		if (parting == SAFE && had)
			retain_all(p, ticket);
		if (parting == SAFE || !had)
			t->pending &= ~RING_BIT(consumer);
		if (ring_is_queue(p))
			ring_give_to_others(p, ticket, had);
		else
			ring_finish_if_through(p, ticket);
	}
}

/* What it had acknowledged is seen a last time; nothing else of it is waited for. */
static void forget(struct ring_producer *p, uint32_t consumer)
{
	for (uint32_t ticket = 0; ticket < p->shape.in_flight; ticket++) {
		struct ring_ticket *t = &p->tickets[ticket];

		t->refused &= ~RING_BIT(consumer);
		if (!(t->pending & RING_BIT(consumer)))
			continue;
		if (!ring_observe_one(p, (uint16_t)ticket, consumer))
			retain_all(p, (uint16_t)ticket);
		t->pending &= ~RING_BIT(consumer);
		/* in a queue it is in the lane of another, or was never sent to one */
		ring_finish_if_through(p, (uint16_t)ticket);
	}
	p->consumers.lingering &= ~RING_BIT(consumer);
	p->consumers.fresh &= ~RING_BIT(consumer);
	p->peers[consumer] = (struct ring_peer){0};
}

/* Whether, from now on, who has not seen what we have stored has its own earlier stores seen by us.
 * The barrier that consumers save themselves (receive.c). */
static bool order_with(const struct ring_producer *p)
{
	ring_barrier();
	return ring_drops(p) || syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0;
}

void ring_producer_dismiss(struct ring_producer *p, uint32_t consumer, bool safe)
{
	struct ring_peer *peer = &p->peers[consumer];
	struct ring_lane *l = &p->lanes[channel_lane_of(&p->shape, consumer)];
	uint64_t taken = l->tail;

	safe = safe || MUTATION(left_behind_is_gone);
	if ((p->consumers.admitted | p->consumers.leaving) & RING_BIT(consumer)) {
		stop_counting(p, consumer);
		p->consumers.leaving &= ~RING_BIT(consumer);
		/* who is dead, or has left, reads it no more, and was in nobody's way */
		if (!safe)
			atomic_store_explicit(&peer->admission->left_behind, peer->owner->member,
					      memory_order_release);
		if (safe || order_with(p))
			taken = ring_taken(p, consumer);
		part_from(p, consumer, taken, safe ? SAFE : LEFT_BEHIND);
		l->limit = 0;
		if (!safe) {
			channel_add(&p->page.header->left_behind, 1);
			p->consumers.lingering |= RING_BIT(consumer);
			p->consumers.fresh |= RING_BIT(consumer); /* to be told */
		}
	}
	if (safe)
		forget(p, consumer);
	if (ring_is_queue(p))
		ring_deliver_backlog(p);
}

void ring_notice_desertion(struct ring_producer *p)
{
	if (!MUTATION(send_to_who_has_left))
		ring_notice_leaving(p, p->consumers.admitted);
}

bool ring_notice_leaving(struct ring_producer *p, uint64_t consumers)
{
	bool any = false;

	for (uint64_t who = consumers & p->consumers.admitted; who; who &= who - 1) {
		uint32_t consumer = (uint32_t)__builtin_ctzll(who);

		if (!ring_receives_no_more(p, consumer))
			continue;
		any = true;
		stop_counting(p, consumer);
		p->consumers.leaving |= RING_BIT(consumer);
		part_from(p, consumer, ring_taken(p, consumer), LEAVES);
		p->lanes[channel_lane_of(&p->shape, consumer)].limit = 0;
	}
	if (any && ring_is_queue(p))
		ring_deliver_backlog(p);
	return any;
}

/* ------------------------------------------------------------------------------------------- */
/* Left to somebody else                                                                       */

static bool has_fence(const struct ring_producer *p, uint32_t ticket, uint64_t member)
{
	for (uint32_t i = 0; i < p->tickets[ticket].n_fences; i++)
		if (ring_fences_of(p, ticket)[i].owner->member == member)
			return true;
	return false;
}

void ring_producer_add_tickets(const struct ring_producer *p, uint32_t ticket, unsigned char *bits)
{
	uint16_t each = (uint16_t)ticket;

	do
		bits[each / 8] |= (unsigned char)(1u << each % 8);
	while (ring_next_further(p, &each));
}

void ring_producer_find_held(const struct ring_producer *p, uint32_t consumer, uint64_t member,
			     unsigned char *bits)
{
	uint64_t bit = consumer < CHANNEL_MEMBERS_MAX ? RING_BIT(consumer) : 0;

	for (uint32_t ticket = 0; ticket < p->shape.in_flight; ticket++)
		if (p->tickets[ticket].list != LIST_FREE &&
		    (p->tickets[ticket].pending & bit || has_fence(p, ticket, member)))
			ring_producer_add_tickets(p, ticket, bits);
}

void ring_producer_abandon(struct ring_producer *p, uint32_t consumer)
{
	for (uint32_t ticket = 0; ticket < p->shape.in_flight; ticket++)
		if (p->tickets[ticket].pending & RING_BIT(consumer))
			retain_all(p, (uint16_t)ticket);
	ring_producer_dismiss(p, consumer, true);
}
