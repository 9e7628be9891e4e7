/* SPDX-License-Identifier: MIT */

/*
 * What is in flight: who has yet to acknowledge a message, and where its ticket goes when that is
 * over, or when others are to have it. What consumers write is read once; a fence is taken down as
 * soon as its acknowledgement is seen, because the consumer may be gone by the time that the others
 * have acknowledged, too.
 */

#include "pages/timeline.h"
#include "ring/producer/inside.h"

static void ring_prepend(struct ring_producer *p, uint32_t list, uint16_t ticket)
{
	struct ring_list *l = &p->lists[list];
	struct ring_ticket *t = &p->tickets[ticket];

	t->list = (uint8_t)list;
	t->previous = TICKET_NONE;
	t->next = l->first;
	if (l->first == TICKET_NONE)
		l->last = ticket;
	else
		p->tickets[l->first].previous = ticket;
	l->first = ticket;
	l->n++;
	ring_set_busy(p, list);
}

void ring_unlink(struct ring_producer *p, uint16_t ticket)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct ring_list *l = &p->lists[t->list];

	if (l->cursor == ticket)
		l->cursor = t->next;
	if (t->previous == TICKET_NONE)
		l->first = t->next;
	else
		p->tickets[t->previous].next = t->next;
	if (t->next == TICKET_NONE)
		l->last = t->previous;
	else
		p->tickets[t->next].previous = t->previous;
	l->n--;
	ring_set_busy(p, t->list);
	t->list = LIST_FREE;
}

void ring_finish(struct ring_producer *p, uint16_t ticket)
{
	struct ring_ticket *t = &p->tickets[ticket];

	ring_unlink(p, ticket);
	/* one who had been given up has acknowledged it after all */
	if (t->acknowledged)
		t->set_aside = false;
	/* its producer may be gone before it is taken back: then it is known that it was not */
	if (t->set_aside && t->pending == 0)
		channel_add(&p->page.header->set_aside, 1);
	/* whoever has acknowledged it may be gone before its ticket is free */
	if (p->copies.all)
		atomic_store_explicit(&ring_copy_of(p, ticket)->sequence, CHANNEL_COPY_FINISHED,
				      memory_order_release);
	if (t->pending != 0) {
		ring_append(p, LIST_LIMBO, ticket);
		return;
	}
	ring_append(p, LIST_DONE, ticket);
}

bool ring_finish_if_through(struct ring_producer *p, uint16_t ticket)
{
	struct ring_ticket *t = &p->tickets[ticket];
	bool through;

	if (t->list == LIST_LIMBO)
		through = t->pending == 0;
	else if (t->list == LIST_BACKLOG)
		through = t->acknowledged; /* by one who was left behind with it */
	else if (t->list >= CHANNEL_MEMBERS_MAX)
		through = false;
	else if (p->shape.mode == CHANNEL_BROADCAST)
		through = t->pending == 0 && !ring_is_unclaimed(p, t) && !ring_is_history(p, t);
	else
		through = !(t->pending & RING_BIT(t->consumer));
	if (through)
		ring_finish(p, ticket);
	return through;
}

void ring_give_to_others(struct ring_producer *p, uint16_t ticket, bool had)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct channel_entry *copy = ring_copy_of(p, ticket);
	uint64_t size_deliveries = ring_load(&copy->size_deliveries);
	uint32_t deliveries = CHANNEL_SMALL(size_deliveries);

	if (had && MUTATION(lose_what_it_had))
		t->acknowledged = true;
	if (t->acknowledged || (had && deliveries >= p->shape.deliveries)) {
		t->set_aside = !t->acknowledged;
		ring_finish(p, ticket);
		return;
	}
	deliveries += had && !MUTATION(redeliver_unmarked);
	/* One word says that nobody has it, and as which delivery it comes: killed between two
	 * stores, we would leave it unmarked, or counted twice. */
	atomic_store_explicit(&copy->sequence,
			      had && !MUTATION(mark_after_return)
				  ? CHANNEL_COPY_RETURNED | deliveries
				  : CHANNEL_COPY_WAITS,
			      memory_order_release);
	if (had) {
		ring_store(&copy->size_deliveries,
			   CHANNEL_PACK(CHANNEL_LARGE(size_deliveries), deliveries));
		channel_add(&p->page.header->redelivered, 1);
	}
	ring_unlink(p, ticket);
	ring_prepend(p, LIST_BACKLOG, ticket);
}

/* ------------------------------------------------------------------------------------------- */

uint64_t ring_taken(struct ring_producer *p, uint32_t consumer)
{
	struct ring_peer *peer = &p->peers[consumer];
	uint64_t tail = p->lanes[channel_lane_of(&p->shape, consumer)].tail, taken;

	if (!ring_is_known(p, peer))
		return peer->taken;
	taken = atomic_load_explicit(&peer->row->taken, memory_order_acquire);
	if (taken > tail)
		taken = tail; /* which harms nobody but itself */
	if (taken > peer->taken)
		peer->taken = taken;
	return peer->taken;
}

/* Who has given the message up has said before what it keeps of the others. */
static __attribute__((noinline)) void observe_further(struct ring_producer *p, uint16_t ticket,
						      const struct ring_peer *peer)
{
	while (ring_next_further(p, &ticket)) {
		uint64_t word =
		    atomic_load_explicit(&peer->row->acks[ticket].word, memory_order_relaxed);

		if (word >> 32 == p->tickets[ticket].version && word & CHANNEL_ACK_RETAINED &&
		    !MUTATION(forget_further_retained))
			p->tickets[ticket].retained = true;
	}
}

/* By one who was left behind with it: others have it already. Who has rejected it before, and had
 * it once more then, may have said so of the earlier delivery, and use it still. */
static bool observe_rejection_of_others(struct ring_producer *p, uint16_t ticket, uint32_t consumer,
					uint64_t word)
{
	struct ring_ticket *t = &p->tickets[ticket];

	if (t->refused & RING_BIT(consumer) && !MUTATION(heed_who_has_refused))
		return false;
	t->pending &= ~RING_BIT(consumer);
	if (word & CHANNEL_ACK_RETAINED)
		t->retained = true;
	if (t->further)
		observe_further(p, ticket, &p->peers[consumer]);
	p->peers[consumer].acknowledged++;
	return true;
}

/* What a consumer takes and is left behind with gives it back unseen, which is no rejection by its
 * program. One by the program that is seen only then cannot be told from that. */
static bool counts_as_rejected(const struct ring_peer *peer)
{
	return atomic_load_explicit(&peer->admission->left_behind, memory_order_relaxed) !=
	       peer->owner->member;
}

/* Given back: it goes to others. Not so, and nothing is said, if what is meant is an earlier
 * delivery of what it has now. */
static bool observe_rejection(struct ring_producer *p, uint16_t ticket, uint32_t consumer,
			      uint64_t word)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct ring_peer *peer = &p->peers[consumer];
	uint64_t size_deliveries;

	if (!ring_is_queue(p))
		return false;
	if (t->list != consumer)
		return observe_rejection_of_others(p, ticket, consumer, word);
	size_deliveries = ring_load(&ring_copy_of(p, ticket)->size_deliveries);
	if ((word & CHANNEL_ACK_DELIVERY) != CHANNEL_SMALL(size_deliveries) &&
	    !MUTATION(heed_old_rejection))
		return false;
	t->pending &= ~RING_BIT(consumer);
	t->refused |= RING_BIT(consumer);
	if (word & CHANNEL_ACK_RETAINED)
		t->retained = true;
	if (t->further)
		observe_further(p, ticket, peer);
	peer->acknowledged++;
	if (peer->load > 0)
		peer->load--;
	if (counts_as_rejected(peer))
		channel_add(&p->page.header->rejected, 1);
	ring_give_to_others(p, ticket, true);
	return true;
}

bool ring_observe_one(struct ring_producer *p, uint16_t ticket, uint32_t consumer)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct ring_peer *peer = &p->peers[consumer];
	uint32_t flags;
	uint64_t word;

	if (!ring_is_known(p, peer))
		return false;
	word = atomic_load_explicit(&peer->row->acks[ticket].word, memory_order_acquire);
	if (MUTATION(free_before_ack) && ring_taken(p, consumer) > t->sequence)
		word = (uint64_t)t->version << 32;
	if (word >> 32 != t->version && !(MUTATION(any_version) && word != 0))
		return false;
	if (word & CHANNEL_ACK_REJECTED && !MUTATION(rejected_is_acknowledged))
		return observe_rejection(p, ticket, consumer, word);
	if (t->n_fences == p->shape.consumers)
		return false; /* later: there is no room for another fence */
	t->pending &= ~RING_BIT(consumer);
	t->acknowledged = true;
	peer->acknowledged++;
	if ((ring_is_queue(p) || MUTATION(load_ends_with_ack)) && t->consumer == consumer &&
	    peer->load > 0)
		peer->load--;
	if (word & CHANNEL_ACK_RETAINED && !MUTATION(forget_retained))
		t->retained = true;
	flags = (uint32_t)(word & ~CHANNEL_ACK_RETAINED);
	if (flags != 0 && flags < TIMELINE_SLOTS) {
		uint64_t value =
		    atomic_load_explicit(&peer->row->acks[ticket].value, memory_order_relaxed);

		ring_fences_of(p, ticket)[t->n_fences++] = (struct ring_owned_fence){
		    .owner = peer->owner, .fence = {.slot = flags, .value = value}};
		peer->owner->fences++;
	}
	if (t->further)
		observe_further(p, ticket, peer);
	return true;
}

bool ring_observe(struct ring_producer *p, uint16_t ticket, bool thoroughly)
{
	struct ring_ticket *t = &p->tickets[ticket];
	uint64_t counting = t->pending & p->consumers.admitted,
		 others = t->pending & ~p->consumers.admitted;
	uint8_t list = t->list;

	for (; others; others &= others - 1)
		ring_observe_one(p, ticket, (uint32_t)__builtin_ctzll(others));
	for (; counting; counting &= counting - 1)
		if (!ring_observe_one(p, ticket, (uint32_t)__builtin_ctzll(counting)) &&
		    !thoroughly)
			return false;
	return ring_finish_if_through(p, ticket) || t->list != list;
}
