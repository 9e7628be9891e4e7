/* SPDX-License-Identifier: MIT */

/*
 * Members' pages: how large they are, where their owners have written anything, and what a
 * producer's ring has of a message, by ticket. Each word is read once, and is whatever its owner
 * liked.
 */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <share/channel.h>

#include "base/mutation.h"
#include "broker/channel/claim.h"
#include "broker/channel/page.h"

#define UNIT 4096 /* bytes of memory that are there together, at least */
#define SEEN 64   /* units of a page of which it is remembered whether they were written */

_Static_assert(sizeof(struct channel_row) + CHANNEL_IN_FLIGHT_MAX * sizeof(struct channel_ack) <=
		   (SEEN - 1) * UNIT,
	       "a row is in so many units");

size_t member_page_size(const struct channel *ch, uint32_t role)
{
	return role == SHARE_PRODUCER ? channel_ring_size(&ch->shape, ch->layout)
				      : channel_ledger_size(&ch->shape);
}

void *member_table_new(const struct member *producer)
{
	return calloc(producer->channel->shape.in_flight, sizeof(void *));
}

void member_remember_looks(struct member *m, const void *from)
{
	m->page.seen.from = (size_t)((const char *)from - (const char *)m->page.memory) / UNIT + 1;
	m->page.seen.holes = m->page.seen.written = 0;
}

void member_forget_looks(struct member *m)
{
	m->page.seen.from = 0;
	m->page.seen.holes = m->page.seen.written = 0;
}

/* Returns the unit's bit in what is remembered; 0: it is not among that. */
static uint64_t bit_of(const struct member_page *page, size_t unit)
{
	size_t i = unit / UNIT + 1 - page->seen.from;

	return page->seen.from > 0 && i < SEEN ? UINT64_C(1) << i : 0;
}

size_t member_unwritten(struct member *m, const void *at)
{
	size_t offset = (size_t)((const char *)at - (const char *)m->page.memory);
	size_t unit = offset / UNIT * UNIT;
	uint64_t bit = bit_of(&m->page, unit);
	off_t data;

	if (m->page.written[0] == unit + 1 || m->page.written[1] == unit + 1 ||
	    m->page.seen.written & bit)
		return 0;
	if (m->page.seen.holes & bit)
		return unit + UNIT - offset;
	data = lseek(m->page.fd, (off_t)unit, SEEK_DATA);
	if ((data < 0 && errno == ENXIO) || data >= (off_t)(unit + UNIT)) {
		m->page.seen.holes |= bit;
		return (data < 0 ? m->page.size : (size_t)data) - offset;
	}
	/* the answer stays true, as nobody can make holes in a page that is sealed */
	m->page.seen.written |= bit;
	m->page.written[1] = m->page.written[0];
	m->page.written[0] = unit + 1;
	return 0;
}

const struct channel_ticket *member_next_ticket(struct member *producer, uint32_t *ticket)
{
	const struct channel_shape *shape = &producer->channel->shape;

	while (*ticket < shape->in_flight) {
		const struct channel_ticket *t =
		    channel_ticket_at(producer->page.memory, shape, *ticket);
		size_t zeros = member_unwritten(producer, t);

		if (zeros == 0)
			return t;
		*ticket += (uint32_t)((zeros - 1) / sizeof(*t) + 1);
	}
	return NULL;
}

bool member_receives_no_more(struct member *consumer)
{
	const struct channel_ledger *ledger = consumer->page.memory;

	if (member_unwritten(consumer, ledger) > 0 ||
	    !atomic_load_explicit(&ledger->receives_no_more, memory_order_acquire))
		return false;
	/* what it has written before it said so is there, though there was a hole a moment ago */
	if (!MUTATION(trust_old_holes))
		consumer->page.seen.holes = 0;
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* Messages, by ticket                                                                         */

#define WORD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

bool copy_ask(struct member *producer, uint32_t ticket, struct copy *out)
{
	const struct channel_shape *shape = &producer->channel->shape;
	const struct channel_ticket *t = channel_ticket_at(producer->page.memory, shape, ticket);
	const struct channel_entry *e;

	if (!channel_has_copies(shape, producer->channel->layout))
		return false;
	e = channel_copy_at(producer->page.memory, shape, ticket);
	if (member_unwritten(producer, t) > 0 || member_unwritten(producer, e) > 0)
		return false;
	out->buffer = atomic_load_explicit(&t->buffer, memory_order_acquire);
	out->version = atomic_load_explicit(&t->version, memory_order_acquire);
	out->sequence = atomic_load_explicit(&e->sequence, memory_order_acquire);
	out->slot = WORD(e->ticket);
	out->number = WORD(e->number);
	out->value = WORD(e->value);
	out->timeline = WORD(e->timeline);
	out->n_further = 0;
	if (channel_buffers(shape) > 1) {
		out->n_further = CHANNEL_MORE(out->timeline);
		out->timeline = CHANNEL_SLOT(out->timeline);
	}
	out->deliveries = CHANNEL_SMALL(WORD(e->size_deliveries));
	if (out->sequence & CHANNEL_COPY_RETURNED && out->sequence != CHANNEL_COPY_FINISHED) {
		out->deliveries = (uint32_t)out->sequence;
		out->sequence = CHANNEL_COPY_WAITS;
	}
	return out->buffer != 0 && WORD(e->version) == out->version;
}

bool copy_ask_further(struct member *producer, uint32_t ticket, const struct copy *copy, uint32_t i,
		      struct copy_further *out)
{
	const struct channel_shape *shape = &producer->channel->shape;
	const struct channel_further *f;
	uint64_t word;

	if (i + 1 >= channel_buffers(shape))
		return false;
	f = (const void *)channel_far_at(producer->page.memory, shape, producer->channel->layout,
					 ticket);
	if (member_unwritten(producer, &f[i]) > 0 ||
	    member_unwritten(producer, (const char *)&f[i + 1] - 1) > 0)
		return false;
	word = WORD(f[i].ticket);
	out->buffer = WORD(f[i].buffer);
	out->ticket = (uint16_t)word;
	out->version = (uint32_t)(word >> 32);
	return (uint16_t)(word >> 16) == (uint16_t)copy->version && out->version != 0 &&
	       out->ticket < shape->in_flight && out->buffer != 0 &&
	       out->buffer != CHANNEL_NO_BUFFER;
}

/* Returns the identifier of the consumer that was let into this slot last; 0: nobody was. *start is
 * where it began. */
static uint64_t admitted_to(struct member *producer, uint32_t slot, uint64_t *start)
{
	const struct channel_shape *shape = &producer->channel->shape;
	const struct channel_admission *a;
	uint64_t consumer;

	if (slot >= shape->consumers)
		return 0;
	a = channel_admission_at(producer->page.memory, shape, slot);
	if (member_unwritten(producer, a) > 0)
		return 0;
	consumer = atomic_load_explicit(&a->consumer, memory_order_acquire);
	*start = atomic_load_explicit(&a->start, memory_order_relaxed);
	return consumer;
}

/* Messages that were in the lane before its consumer was let in belonged to an earlier one,
 * which has gone. */
struct claim *copy_owner(struct member *producer, const struct copy *copy)
{
	uint64_t start = 0, consumer = admitted_to(producer, copy->slot, &start);

	return consumer && (copy->sequence > start || MUTATION(slot_is_the_owner))
		   ? claim_find(producer, consumer)
		   : NULL;
}

bool copy_was_of(const struct copy *copy, const struct claim *claim)
{
	uint64_t start = 0, consumer;

	if (copy->slot != claim->consumer->as_consumer.slot)
		return false;
	consumer = admitted_to(claim->producer, copy->slot, &start);
	return consumer == claim->consumer->id || copy->sequence <= start;
}
