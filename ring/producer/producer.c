/* SPDX-License-Identifier: MIT */

/*
 * The sending half of a channel: it writes a ring and reads the ledgers of consumers. What is
 * needed of theirs for the next message is remembered, and looked at again only when it does not
 * suffice; nothing on the way of a message is locked or waits, and a barrier is needed only
 * for consumers that sleep now and then, in ring_producer_wake(), once for as many messages as
 * there are.
 */

#include <errno.h>
#include <stdlib.h>

#include "base/mutation.h"
#include "pages/timeline.h"
#include "ring/entry.h"
#include "ring/producer/lane.h"

/* False without memory. */
static bool find_copies(struct ring_producer *p, enum channel_layout layout)
{
	size_t size;

	if (!ring_is_queue(p))
		return true;
	p->copies.stride = channel_entry_size(&p->shape);
	if (channel_has_copies(&p->shape, layout)) {
		p->copies.all = (void *)channel_copy_at(p->page.ring, &p->shape, 0);
		return true;
	}
	size = p->shape.in_flight * p->copies.stride;
	p->copies.own = aligned_alloc(_Alignof(struct channel_entry), size);
	if (p->copies.own)
		memset(p->copies.own, 0, size);
	p->copies.all = p->copies.own;
	return p->copies.all;
}

/* All of it zeros, of which pages that are not used take no memory. */
static bool allocate(struct ring_producer *p, enum channel_layout layout)
{
	const struct channel_shape *s = &p->shape;
	uint32_t lanes = channel_lanes(s);
	uint16_t *positions = calloc((size_t)lanes * s->depth, sizeof(*positions));

	p->lanes[0].tickets = positions;
	p->free.tickets = calloc(s->in_flight, sizeof(*p->free.tickets));
	p->tickets = calloc(s->in_flight, sizeof(*p->tickets));
	p->fences = calloc((size_t)s->in_flight * s->consumers, sizeof(*p->fences));
	if (!positions || !p->free.tickets || !p->tickets || !p->fences || !find_copies(p, layout))
		return false;
	for (uint32_t i = 0; i < lanes; i++) {
		p->lanes[i].tickets = positions + (size_t)i * s->depth;
		p->lanes[i].shared = channel_lane_at(p->page.ring, s, i);
		p->lanes[i].entries = (unsigned char *)channel_entry_at(p->page.ring, s, i, 0);
	}
	for (uint32_t i = 0; i < LISTS; i++)
		p->lists[i] = (struct ring_list){TICKET_NONE, TICKET_NONE, TICKET_NONE, 0};
	for (uint32_t i = 0; i < s->in_flight; i++)
		ring_put_free(p, (uint16_t)i);
	return true;
}

int ring_producer_new(const struct channel_shape *shape, enum channel_layout layout, void *ring,
		      struct ring_producer **out)
{
	struct ring_producer *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->shape = *shape;
	p->page.ring = ring;
	p->page.header = ring;
	p->page.mask = shape->depth - 1;
	p->page.stride = ring_stride(ring, shape);
	p->shared_tickets = channel_ticket_at(ring, shape, 0);
	p->far.size = channel_far_size(shape);
	p->wanted = 1;
	p->far.all = p->far.size ? channel_far_at(ring, shape, layout, 0) : NULL;
	p->ordered = ring_can_be_ordered();
	atomic_store_explicit(&p->page.header->heeds,
			      CHANNEL_HEEDS_REJECTIONS | CHANNEL_HEEDS_LATEST |
				  CHANNEL_COUNTS_TAKEN_BACK,
			      memory_order_relaxed);
	ring_sleeper_init(&p->sleeper, &p->page.header->waiting);
	if (!allocate(p, layout)) {
		ring_producer_free(p);
		return -ENOMEM;
	}
	*out = p;
	return 0;
}

void ring_producer_free(struct ring_producer *p)
{
	if (!p)
		return;
	free(p->lanes[0].tickets);
	free(p->free.tickets);
	free(p->tickets);
	free(p->fences);
	free(p->copies.own);
	free(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Sending                                                                                     */

/* @sequence: what is said of it at first. */
static void keep_copy(struct ring_producer *p, uint16_t ticket, const struct ring_message *m,
		      uint32_t deliveries, uint64_t sequence)
{
	struct channel_entry *copy = ring_copy_of(p, ticket);
	const struct ring_ticket *t = &p->tickets[ticket];

	/* nobody reads it now, unlike an entry: the compiler may do this as it likes */
	atomic_store_explicit(&copy->sequence, sequence, memory_order_relaxed);
	copy->number = t->number;
	copy->buffer = m->buffer;
	copy->segment = m->segment;
	copy->offset_data_size = CHANNEL_PACK(m->offset, m->data_size);
	copy->size_deliveries = CHANNEL_PACK(m->size, deliveries);
	copy->value = m->fence.value;
	copy->version = t->version;
	copy->ticket = 0;
	copy->timeline = CHANNEL_TIMELINE(m->fence.slot, m->n_further);
	if (m->data_size > 0 && !ring_is_far(m->data_size))
		memcpy(copy->data, m->data, m->data_size);
}

static uint32_t next_version(const struct ring_producer *p, uint16_t ticket)
{
	uint32_t version = p->tickets[ticket].version + 1;

	return version == 0 ? 1 : version;
}

/* Who was left behind, or is late where it was dropped, may still read what was there before. */
static __attribute__((noinline)) void store_far(struct ring_producer *p, uint16_t ticket,
						const struct ring_message *m)
{
	ring_store_data(p->far.all + ticket * p->far.size + channel_far_data(&p->shape), m->data,
			m->data_size);
}

/* @deliveries, @sequence: of the copy, in a queue. */
static inline __attribute__((always_inline)) uint16_t take_ticket(struct ring_producer *p,
								  const struct ring_message *m,
								  void *reference,
								  uint32_t deliveries,
								  uint64_t sequence)
{
	uint16_t ticket = ring_take_free(p);
	struct channel_ticket *shared = &p->shared_tickets[ticket];
	struct ring_ticket *t = &p->tickets[ticket];
	uint32_t version = next_version(p, ticket);

	ring_show_in_flight(p);
	*t = (struct ring_ticket){
	    .version = version,
	    .number = p->sent,
	    .buffer = m->buffer,
	    .reference = reference,
	    .list = LIST_FREE,
	};
	if (ring_is_far(m->data_size) && !MUTATION(data_after_ticket))
		store_far(p, ticket, m);
	if (p->copies.all)
		keep_copy(p, ticket, m, deliveries, sequence);
	/* behind the copy: who finds the ticket in use finds that */
	atomic_store_explicit(&shared->buffer,
			      m->buffer || !p->copies.all || p->copies.own ? m->buffer
									   : CHANNEL_NO_BUFFER,
			      memory_order_release);
	atomic_store_explicit(&shared->version, version, memory_order_release);
	if (ring_is_far(m->data_size) && MUTATION(data_after_ticket))
		store_far(p, ticket, m);
	return ticket;
}

/* With this one. */
static uint32_t count_delivery(const struct ring_producer *p, const struct ring_message *m)
{
	if (!ring_is_queue(p))
		return 1;
	return m->deliveries < p->shape.deliveries ? m->deliveries + 1 : p->shape.deliveries;
}

static bool is_sound(const struct ring_producer *p, const struct ring_message *m)
{
	return m->data_size <= p->shape.data_max && m->fence.slot < TIMELINE_SLOTS &&
	       (m->offset | m->size) >> 48 == 0;
}

/* Whoever has said that it receives no more is not there. */
static bool lacks_consumers(struct ring_producer *p)
{
	if (p->wait_for == 0 || p->shape.mode == CHANNEL_DIRECT)
		return false;
	ring_notice_leaving(p, p->consumers.admitted);
	return (uint32_t)__builtin_popcountll(p->consumers.admitted) < p->wait_for;
}

/* 0, -EAGAIN or -ENOENT. */
static inline __attribute__((always_inline)) int find_place(struct ring_producer *p,
							    uint32_t target, uint32_t tickets,
							    uint32_t *lane)
{
	int r;

	p->full.for_consumers = lacks_consumers(p);
	p->full.for_tickets = !p->full.for_consumers && p->free.n < tickets;
	p->full.target = target;
	if (p->full.for_consumers)
		return -EAGAIN;
	if (p->shape.mode == CHANNEL_BROADCAST) {
		ring_look_for_desertion(p);
		if (p->free.n >= tickets && ring_is_known_to_have_room(p, 0)) {
			*lane = 0;
			return 0;
		}
	}
	if (p->full.for_tickets && p->shape.mode == CHANNEL_DIRECT && !ring_is_there(p, target))
		return -ENOENT;
	if (p->full.for_tickets) {
		bool drops = ring_drops(p) || ring_is_deserted_broadcast(p);

		p->full.comes_back = ring_pass_over_for_tickets(p, tickets);
		if (drops && p->lists[LIST_DONE].n == 0)
			ring_drop_for_tickets(p, target, tickets);
		/* what has gone now is not there yet, though this may be tried for the last time;
		 * and of several, some may have been done before others could be dropped */
		p->full.comes_back |= (drops || tickets > 1) && p->lists[LIST_DONE].n > 0;
		return -EAGAIN;
	}
	r = ring_find_room(p, target, lane);
	if (r == -EAGAIN && ring_notice_leaving(p, p->consumers.admitted))
		r = ring_find_room(p, target, lane);
	return r < 0 ? r : 0;
}

int ring_producer_look_for_room(struct ring_producer *p, uint32_t target, uint32_t buffers)
{
	uint32_t lane;

	if (buffers > 0)
		p->wanted = buffers;
	return find_place(p, target, p->wanted, &lane);
}

/* To whom it goes, by a place that was found. */
static inline __attribute__((always_inline)) void hand_over(struct ring_producer *p, uint32_t lane,
							    uint32_t target, uint16_t ticket,
							    const struct ring_message *m,
							    uint32_t deliveries)
{
	p->sent++;
	ring_sleeper_goes_on(&p->sleeper);
	if (ring_is_queue(p)) {
		if (lane == LIST_BACKLOG)
			ring_append(p, LIST_BACKLOG, ticket);
		else
			ring_deliver(p, ticket, lane, m, deliveries);
		return;
	}
	if (p->shape.mode == CHANNEL_BROADCAST) {
		p->tickets[ticket].pending = p->consumers.admitted;
	} else {
		p->tickets[ticket].pending = RING_BIT(target);
		p->tickets[ticket].consumer = (uint8_t)target;
		p->peers[target].load++;
	}
	ring_append(p, lane, ticket);
	ring_put(p, lane, ticket, m, deliveries);
}

int ring_producer_send(struct ring_producer *p, const struct ring_message *m, uint32_t target,
		       void *reference)
{
	uint32_t lane, deliveries = count_delivery(p, m);
	uint16_t ticket;
	int r;

	if (!is_sound(p, m))
		return -EINVAL;
	r = find_place(p, target, 1, &lane);
	if (r < 0) {
		p->wanted = 1;
		return r;
	}
	ticket = take_ticket(p, m, reference, deliveries, CHANNEL_COPY_WAITS);
	hand_over(p, lane, target, ticket, m, deliveries);
	return 0;
}

static bool are_sound(const struct ring_producer *p, const struct ring_message *m)
{
	if (!is_sound(p, m) || m->buffer == 0 || m->n_further >= channel_buffers(&p->shape))
		return false;
	for (uint32_t i = 0; i < m->n_further; i++)
		if (m->further[i].buffer == 0 ||
		    (m->further[i].offset | m->further[i].size) >> 48 != 0)
			return false;
	return true;
}

/* A ticket for each of the further buffers, which are there before the message's own is in use.
 * Whoever finds one in use finds a copy that says of it that nothing is to be done: it is no
 * message. The first of them, + 1, or 0. */
static __attribute__((noinline)) uint16_t take_further(struct ring_producer *p,
						       const struct ring_message *m)
{
	uint16_t first = ring_peek_free(p, m->n_further), last = first,
		 tickets[CHANNEL_BUFFERS_MAX];
	struct channel_further *to = (void *)(p->far.all + first * p->far.size);

	for (uint32_t i = 0; i < m->n_further; i++) {
		const struct ring_further *f = &m->further[i];
		struct ring_message alone = {.buffer = f->buffer};

		tickets[i] = take_ticket(p, &alone, NULL, 1,
					 MUTATION(further_is_a_message) ? CHANNEL_COPY_WAITS
									: CHANNEL_COPY_FINISHED);
		p->tickets[tickets[i]].list = LIST_FURTHER;
		ring_store(&to[i].ticket, CHANNEL_FURTHER(tickets[i], next_version(p, first),
							  p->tickets[tickets[i]].version));
		ring_store(&to[i].buffer, f->buffer);
		ring_store(&to[i].segment, f->segment);
		ring_store(&to[i].offset, f->offset);
		ring_store(&to[i].size, f->size);
	}
	for (uint32_t i = m->n_further; i-- > 0; last = tickets[i])
		p->tickets[tickets[i]].further = i + 1 < m->n_further ? (uint16_t)(last + 1) : 0;
	return m->n_further > 0 ? (uint16_t)(last + 1) : 0;
}

int ring_producer_send_several(struct ring_producer *p, const struct ring_message *m,
			       uint32_t target, void *reference)
{
	uint32_t lane, deliveries = count_delivery(p, m);
	uint16_t ticket, further;
	int r;

	if (m->n_further == 0)
		return ring_producer_send(p, m, target, reference);
	if (!are_sound(p, m))
		return -EINVAL;
	p->wanted = 1 + m->n_further;
	r = find_place(p, target, p->wanted, &lane);
	if (r < 0)
		return r;
	further = take_further(p, m);
	ticket = take_ticket(p, m, reference, deliveries, CHANNEL_COPY_WAITS);
	p->tickets[ticket].further = further;
	p->wanted = 1;
	hand_over(p, lane, target, ticket, m, deliveries);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Counting                                                                                    */

/* The newest are, if any. */
static uint32_t count_unclaimed(const struct ring_producer *p)
{
	uint32_t n = 0;

	for (uint16_t t = p->lists[0].last;
	     t != TICKET_NONE && ring_is_unclaimed(p, &p->tickets[t]); t = p->tickets[t].previous)
		n++;
	return n;
}

static uint32_t only_for_who_comes(const struct ring_producer *p)
{
	uint32_t n = 0;

	for (uint16_t ticket = p->lists[0].last; ticket != TICKET_NONE;
	     ticket = p->tickets[ticket].previous) {
		const struct ring_ticket *t = &p->tickets[ticket];

		if (p->shape.history == 0 || !ring_is_history(p, t))
			break;
		if (t->pending == 0 && !ring_is_unclaimed(p, t))
			n += ring_count_tickets(p, ticket);
	}
	return n;
}

/* Somebody has it, or will. */
static bool is_under_way(const struct ring_producer *p, const struct ring_ticket *t)
{
	if (t->list >= LIST_DONE || t->set_aside || t->acknowledged)
		return false;
	return ring_is_queue(p) || (t->pending & ~p->consumers.latest) != 0 ||
	       ring_is_unclaimed(p, t);
}

static uint64_t count_done(const struct ring_producer *p)
{
	uint64_t done = p->sent;

	for (uint32_t i = 0; i < p->shape.in_flight; i++)
		if (is_under_way(p, &p->tickets[i]) && p->tickets[i].number < done)
			done = p->tickets[i].number;
	return done;
}

void ring_producer_took_back(struct ring_producer *p)
{
	channel_add(&p->page.header->taken_back, 1);
}

void ring_producer_get_stats(const struct ring_producer *p, struct ring_producer_stats *out)
{
	out->sent = p->sent;
	out->dropped = p->page.header->dropped;
	out->redelivered = p->page.header->redelivered;
	out->set_aside = p->page.header->set_aside;
	out->left_behind = p->page.header->left_behind;
	out->rejected = p->page.header->rejected;
	out->in_flight = p->shape.in_flight - p->free.n - only_for_who_comes(p);
	out->waiting = p->lists[LIST_BACKLOG].n + count_unclaimed(p);
	out->done = count_done(p);
}
