/* SPDX-License-Identifier: MIT */

/*
 * A consumer that a producer has left behind may use what it has taken for as long as it likes. The
 * producer wants its tickets back; so the broker takes a reference on each buffer that the consumer
 * may still use, as it does when a producer dies, and gives it up when the consumer has
 * acknowledged the message and left, or is dead. It is an estate with one holder, and none of its
 * producer's leases go.
 *
 * A producer can do that once for each consumer, since it sends it nothing after that; so what it
 * costs is less than what the membership had cost.
 */

#include <errno.h>

#include <share/error.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/channel/estate.h"

static bool has_bit(const unsigned char *tickets, size_t size, uint32_t ticket)
{
	return ticket / 8 < size && tickets[ticket / 8] & 1u << ticket % 8;
}

static uint32_t count(const unsigned char *tickets, size_t size, uint32_t in_flight)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < in_flight; i++)
		n += has_bit(tickets, size, i);
	return n;
}

/* What the consumer has acknowledged, or can acknowledge no more, is only behind its fences. */
static void take(struct estate *e, uint32_t ticket, const struct channel_ticket *t, int *budget)
{
	struct holder *h = &e->holders[0];
	struct entry *entry = &e->entries[e->n];
	uint32_t n = e->n;

	estate_take_buffer(e, ticket, t, h->consumer);
	if (e->n == n)
		return;
	e->n_left++;
	entry->open = 1;
	switch (estate_add_fence(e, entry, h->consumer, budget)) {
	case UNPAID:
		h->unpaid = true;
		return;
	case NOT_ACKNOWLEDGED:
		if (!h->over)
			return;
		break;
	case ACKNOWLEDGED:
		break;
	}
	entry->open = 0;
	estate_give_up(e, entry);
	e->n = n;
}

int member_abandon(struct member *producer, struct member *consumer, const unsigned char *tickets,
		   size_t size)
{
	const struct channel_ticket *t;
	struct estate *e;
	int budget = 0;

	if (consumer->as_consumer.abandoned_by[producer->slot] == producer->id || consumer->died)
		return 0;
	if (producer->as_producer.n_abandoned >= CHANNEL_MEMBERS_MAX)
		return SHARE_EQUOTA;
	e = estate_with_room(producer, count(tickets, size, producer->channel->shape.in_flight));
	if (!e)
		return -ENOMEM;
	consumer->as_consumer.abandoned_by[producer->slot] = producer->id;
	consumer->as_consumer.holds++;
	e->holders[0] = (struct holder){
	    .consumer = consumer,
	    .admitted = true,
	    .over = consumer->state == MEMBER_GONE,
	};
	e->n_holders = 1;
	for (uint32_t i = 0; (t = member_next_ticket(producer, &i)); i++)
		if (has_bit(tickets, size, i) && !MUTATION(abandon_without_keeping))
			take(e, i, t, &budget);
	e->partial = true;
	e->phase = PHASE_SETTLING;
	e->next_entry = e->n; /* those that were gone before are nobody's here */
	e->since_ms = clock_ms();
	LIST_INSERT_HEAD(&producer->as_producer.abandoned, e, of_producer);
	producer->as_producer.n_abandoned++;
	estate_queue(e);
	return 0;
}
