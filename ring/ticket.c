/* SPDX-License-Identifier: MIT */

/*
 * What is in flight. A ticket is looked at until everybody who got the message has acknowledged it:
 * oldest first, since that is how most programs give messages back, and one further down at each
 * call, so that one slow message does not keep those behind it. What consumers write is read once;
 * a fence is taken down as soon as its acknowledgement is seen, because the consumer may be gone by
 * the time that the others have acknowledged, too.
 */

#include "base/mutation.h"
#include "pages/timeline.h"
#include "ring/producer.h"

void ring_prepend(struct ring_producer *p, uint32_t list, uint16_t ticket)
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
		channel_add(&p->header->set_aside, 1);
	/* whoever has acknowledged it may be gone before its ticket is free */
	if (p->copies)
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
		channel_add(&p->header->redelivered, 1);
	}
	ring_unlink(p, ticket);
	ring_prepend(p, LIST_BACKLOG, ticket);
}

/* ------------------------------------------------------------------------------------------- */

static bool is_known(struct ring_producer *p, struct ring_peer *peer)
{
	if (!peer->known)
		peer->known =
		    atomic_load_explicit(&peer->row->producer, memory_order_acquire) == p->member;
	return peer->known;
}

uint64_t ring_taken(struct ring_producer *p, uint32_t consumer)
{
	struct ring_peer *peer = &p->peers[consumer];
	uint64_t tail = p->lanes[channel_lane_of(&p->shape, consumer)].tail, taken;

	if (!is_known(p, peer))
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
		channel_add(&p->header->rejected, 1);
	ring_give_to_others(p, ticket, true);
	return true;
}

bool ring_observe_one(struct ring_producer *p, uint16_t ticket, uint32_t consumer)
{
	struct ring_ticket *t = &p->tickets[ticket];
	struct ring_peer *peer = &p->peers[consumer];
	uint32_t flags;
	uint64_t word;

	if (!is_known(p, peer))
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
	if (p->shape.mode != CHANNEL_BROADCAST && t->consumer == consumer && peer->load > 0)
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

/* ------------------------------------------------------------------------------------------- */

static bool take_done(struct ring_producer *p, struct ring_return *out)
{
	uint16_t ticket = p->lists[LIST_DONE].first;
	struct ring_ticket *t = &p->tickets[ticket];

	if (ticket == TICKET_NONE)
		return false;
	ring_unlink(p, ticket);
	t->list = LIST_RETURNED;
	out->reference = t->reference;
	out->buffer = t->buffer;
	out->ticket = ticket;
	out->retained = t->retained;
	out->set_aside = t->set_aside;
	out->message = NULL;
	if (t->set_aside) {
		ring_read_copy(p, ticket, &p->aside);
		out->message = &p->aside;
	}
	out->n_further = 0;
	for (uint16_t further = ticket; ring_next_further(p, &further);)
		out->further_retained[out->n_further++] = p->tickets[further].retained;
	out->n = t->n_fences;
	for (uint32_t i = 0; i < out->n; i++)
		out->fences[i] = ring_fences_of(p, ticket)[i];
	t->n_fences = 0;
	return true;
}

/* The oldest, and one more at each call; or once around. True when something is done. */
static bool look_at(struct ring_producer *p, uint32_t list, bool all)
{
	struct ring_list *l = &p->lists[list];

	if (l->first == TICKET_NONE)
		return false;
	if (ring_observe(p, l->first, false) && p->lists[LIST_DONE].n > 0)
		return true;
	for (uint32_t n = all ? l->n : 1; n > 0 && l->first != TICKET_NONE; n--) {
		uint16_t ticket = l->cursor == TICKET_NONE ? l->first : l->cursor;

		l->cursor = p->tickets[ticket].next;
		if (ring_observe(p, ticket, false) && p->lists[LIST_DONE].n > 0)
			return true;
	}
	return false;
}

static bool look(struct ring_producer *p, bool all)
{
	uint64_t lanes = p->busy & ~(RING_BIT(p->look) - 1), rest = p->busy & ~lanes;

	for (int half = 0; half < 2; half++, lanes = rest)
		for (; lanes; lanes &= lanes - 1) {
			p->look = (uint32_t)__builtin_ctzll(lanes);
			if (look_at(p, p->look, all))
				return true;
		}
	p->look = 0;
	return look_at(p, LIST_LIMBO, all);
}

bool ring_producer_reclaim(struct ring_producer *p, bool all, struct ring_return *out)
{
	if (p->lists[LIST_BACKLOG].n > 0)
		ring_deliver_backlog(p);
	ring_pass_over(p);
	if (p->lists[LIST_DONE].n == 0 && all)
		ring_notice_leaving(p, p->consumers.admitted);
	if (p->lists[LIST_DONE].n == 0)
		look(p, all);
	/* what was rejected is there now */
	if (p->lists[LIST_DONE].n == 0 && p->lists[LIST_BACKLOG].n > 0)
		ring_deliver_backlog(p);
	return take_done(p, out);
}

/* ------------------------------------------------------------------------------------------- */
/* What is no more than data                                                                   */

static bool is_plain(const struct ring_ticket *t)
{
	return !t->buffer && !t->n_fences && !t->retained;
}

/* By all that it was sent to, and by nobody else: there is nothing to be noted of it. */
static bool is_plainly_acknowledged(struct ring_producer *p, uint16_t ticket)
{
	const struct ring_ticket *t = &p->tickets[ticket];
	uint64_t plain = (uint64_t)t->version << 32;

	if (!is_plain(t))
		return false;
	if (p->shape.mode == CHANNEL_BROADCAST ? ring_is_unclaimed(p, t)
					       : t->pending != RING_BIT(t->consumer))
		return false;
	for (uint64_t who = t->pending; who; who &= who - 1) {
		struct ring_peer *peer = &p->peers[__builtin_ctzll(who)];
		uint64_t word;

		if (!is_known(p, peer))
			return false;
		word = atomic_load_explicit(&peer->row->acks[ticket].word, memory_order_acquire);
		if (word != plain && !(MUTATION(any_version) && word != 0))
			return false;
	}
	return true;
}

static void retire_at_once(struct ring_producer *p, uint16_t ticket)
{
	struct ring_ticket *t = &p->tickets[ticket];

	for (uint64_t who = t->pending; who; who &= who - 1) {
		struct ring_peer *peer = &p->peers[__builtin_ctzll(who)];

		peer->acknowledged++;
		if (p->shape.mode != CHANNEL_BROADCAST && peer->load > 0)
			peer->load--;
	}
	t->pending = 0;
	if (p->copies) { /* as ring_finish() does */
		atomic_store_explicit(&ring_copy_of(p, ticket)->sequence, CHANNEL_COPY_FINISHED,
				      memory_order_release);
		atomic_store_explicit(&p->shared_tickets[ticket].buffer, 0, memory_order_release);
	}
	ring_put_free(p, ticket);
}

/* Of a lane, or of what is done. */
static uint32_t retire_plain_of(struct ring_producer *p, uint32_t list, uint32_t limit,
				void **references)
{
	struct ring_list *l = &p->lists[list];
	uint16_t ticket = l->first;
	uint32_t n = 0;

	while (n < limit && ticket != TICKET_NONE) {
		const struct ring_ticket *t = &p->tickets[ticket];

		if (list == LIST_DONE ? t->set_aside || !is_plain(t)
				      : !is_plainly_acknowledged(p, ticket))
			break;

		if (l->cursor == ticket)
			l->cursor = t->next;
		references[n++] = t->reference;
		retire_at_once(p, ticket);
		ticket = t->next;
	}
	if (n == 0)
		return 0;
	l->first = ticket;
	l->n -= n;
	if (ticket == TICKET_NONE)
		l->last = TICKET_NONE;
	else
		p->tickets[ticket].previous = TICKET_NONE;
	ring_set_busy(p, list);
	return n;
}

uint32_t ring_producer_retire_plain(struct ring_producer *p, uint32_t limit, void **references)
{
	uint32_t n = 0;

	if (p->shape.history != 0)
		return 0;
	ring_pass_over(p);
	n = retire_plain_of(p, LIST_DONE, limit, references);
	for (uint64_t lanes = p->busy; lanes && n < limit; lanes &= lanes - 1)
		n +=
		    retire_plain_of(p, (uint32_t)__builtin_ctzll(lanes), limit - n, references + n);
	if (n > 0)
		ring_show_in_flight(p);
	return n;
}

static __attribute__((noinline)) void retire_further(struct ring_producer *p, uint16_t ticket)
{
	for (bool more = ring_next_further(p, &ticket); more;) {
		uint16_t each = ticket;

		more = ring_next_further(p, &ticket);
		atomic_store_explicit(&p->shared_tickets[each].buffer, 0, memory_order_release);
		ring_put_free(p, each);
	}
}

void ring_producer_retire(struct ring_producer *p, uint32_t ticket)
{
	if (ticket >= p->shape.in_flight || p->tickets[ticket].list != LIST_RETURNED)
		return;
	atomic_store_explicit(&p->shared_tickets[ticket].buffer, 0, memory_order_release);
	if (__builtin_expect(p->tickets[ticket].further != 0, 0))
		retire_further(p, (uint16_t)ticket);
	ring_put_free(p, (uint16_t)ticket);
	ring_show_in_flight(p);
}
