/* SPDX-License-Identifier: MIT */

/*
 * What comes back. A ticket is looked at until everybody who got the message has acknowledged it:
 * oldest first, since that is how most programs give messages back, and one further down at each
 * call, so that one slow message does not keep those behind it. What is no more than data has
 * nothing to be given back, so there all that is done is retired at once.
 */

#include "ring/producer/inside.h"

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

		if (!ring_is_known(p, peer))
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
		if (ring_is_queue(p) && peer->load > 0)
			peer->load--;
	}
	t->pending = 0;
	ring_unload(p, t);
	if (p->copies.all) { /* as ring_finish() does */
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
	ring_unload(p, &p->tickets[ticket]);
	ring_put_free(p, (uint16_t)ticket);
	ring_show_in_flight(p);
}
