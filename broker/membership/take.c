/* SPDX-License-Identifier: MIT */

/*
 * Claims that are taken over. A producer that goes leaves messages in flight, and its ring says
 * which buffers these are. Before its leases go, the broker takes a reference on each of those
 * buffers that it really holds, claim by claim, unless the consumer is done with it. A producer
 * that does not wait for a consumer any more, and wants its tickets back, has this one claim taken
 * over while it goes on itself.
 *
 * A reference is given up when the consumer has acknowledged the message and its streams have got
 * there, or can acknowledge nothing more (claim_look.c). The ring is whatever its owner wrote: all
 * that can come of nonsense is that its own messages are lost, or kept for long.
 *
 * Without memory for an entry the rest is taken over later, and the leases stay until then. The
 * producer does not wait for that: it loses its connection. When neither its user nor the
 * consumer's may have the broker remember more, the rest is taken over later, too, but the producer
 * keeps its connection and waits: what consumers acknowledge meanwhile needs no entry.
 */

#include <errno.h>

#include <share/channel.h>

#include "base/mutation.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/progress.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/membership/inside.h"
#include "broker/memory/pool.h"
#include "broker/orphan/orphan.h"

/* ------------------------------------------------------------------------------------------- */
/* Tickets                                                                                     */

/* Whether the consumer cannot have the message. Where the producer's ring says in whose lane each
 * one is, what is not acknowledged is an orphan, of which the owner has an entry already. Of the
 * other consumers only one that was left behind may still have it. */
static bool has_it_not(const struct claim *claim, uint32_t ticket)
{
	struct copy copy;

	return claim->producer->as_producer.orphans_made && !claim_is_left_behind(claim) &&
	       copy_ask(claim->producer, ticket, &copy);
}

/* Takes a reference on the ticket's buffer, if its producer holds that and the consumer may still
 * use it. Returns what entry_add() does. */
static int take_ticket(struct claim *claim, uint32_t ticket, const struct channel_ticket *t,
		       struct account *payer, uint32_t price)
{
	struct member *producer = claim->producer;
	struct broker *b = producer->channel->broker;
	uint64_t id = atomic_load_explicit(&t->buffer, memory_order_acquire);
	uint32_t version = atomic_load_explicit(&t->version, memory_order_relaxed);
	struct buffer *buffer = id ? buffer_find(b, id) : NULL;
	struct entry *entry;

	/* the broker keeps nothing beyond its own end */
	if (b->has_ended)
		return 0;
	if (!buffer || MUTATION(take_nothing) || buffer_pool(buffer) != producer->channel->pool ||
	    !lease_find(b, producer->client, buffer))
		return 0;
	switch (claim_ask_row(claim, ticket, version)) {
	case DONE_WITH:
		return 0;
	case NOT_ACKNOWLEDGED:
		if (claim->over || !claim_is_admitted(claim) || has_it_not(claim, ticket))
			return 0;
		break;
	case STILL_RUNS:
		break;
	}
	return entry_add(claim, ticket, version, buffer, payer, price, &entry);
}

/* Takes over some of one claim; true when that was all. */
static bool take(struct claim *claim, int *budget)
{
	struct member *producer = claim->producer;
	const struct channel_ticket *t;
	int r = 0;

	for (; (t = member_next_ticket(producer, &claim->next_ticket));
	     claim->next_ticket++, --*budget) {
		if (*budget > 0)
			r = take_ticket(claim, claim->next_ticket, t, claim_account(claim, true),
					PRICE_ENTRY);
		if (r == -ENOMEM)
			client_lose(producer->client, r);
		if (r < 0)
			*budget = BUDGET_NO_MEMORY;
		if (*budget <= 0) {
			claim_note(claim); /* with next_ticket, which is how far it has come */
			return false;
		}
	}
	claim_tell_left_behind(claim);
	claim->taken = true;
	/* the consumer can know nothing of this producer, nor get anything of it */
	claim->over |=
	    !claim->told_consumer && !claim_is_admitted(claim) && !producer_has_orphans(producer);
	claim_note(claim);
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* A producer goes                                                                             */

bool member_take_over(struct member *m, int *budget)
{
	struct wire_message done = {.type = WIRE_DONE, .serial = m->as_producer.serial};
	struct channel *ch = m->channel;
	struct client *client = m->client;
	struct claim *claim;

	if (!orphans_make(m, budget))
		return false;
	for (claim = claims_first(m); claim; claim = claims_next(m, claim))
		if (!claim->taken && !take(claim, budget))
			return false;
	if (m->as_producer.closing)
		TAILQ_REMOVE(&ch->broker->channels->closing, m, as_producer.link);
	m->as_producer.closing = false;
	orphans_lose_aside(m);
	m->state = MEMBER_GONE;
	producer_forget_acknowledged(m);
	member_note(m);
	/* a claim that was taken over earlier may be over by now, but could not end before its
	 * producer was GONE */
	for (claim = claims_first(m); claim; claim = claims_next(m, claim))
		claim_follow(claim);
	member_detach(m);
	channel_changed(ch, SHARE_PRODUCER);
	if (done.serial)
		client_send(client, &done, NULL, 0);
	producer_sort_in(m);
	member_free_if_unused(m);
	channel_end_if_unused(ch);
	return true;
}

void member_take_over_later(struct member *m, uint32_t serial)
{
	struct broker *b = m->channel->broker;

	m->as_producer.closing = true;
	m->as_producer.serial = serial;
	TAILQ_INSERT_TAIL(&b->channels->closing, m, as_producer.link);
	member_note(m);
	channels_work_soon(b);
}

/* ------------------------------------------------------------------------------------------- */
/* A consumer is left to the broker                                                            */

static bool has_bit(const unsigned char *tickets, size_t size, uint32_t ticket)
{
	return ticket / 8 < size && tickets[ticket / 8] & 1u << ticket % 8;
}

/* The consumer's user pays for as much as the consumer says that it holds. That it has the rest,
 * only the producer says. */
static struct account *payer_of(const struct claim *claim)
{
	return claim_account(claim, claim->consumer->as_consumer.n_paid >=
					member_held_buffers(claim->consumer));
}

int claim_abandon(struct claim *claim, const unsigned char *tickets, size_t size)
{
	const struct channel_ticket *t;
	int r = 0;

	if (claim->taken)
		return 0;
	for (uint32_t i = 0; r == 0 && (t = member_next_ticket(claim->producer, &i)); i++)
		if (has_bit(tickets, size, i) && !MUTATION(abandon_without_keeping))
			r = take_ticket(claim, i, t, payer_of(claim),
					PRICE_ENTRY + PRICE_INHERITED);
	while (r < 0 && claim->n > 0)
		entry_give_up(claim, TAILQ_FIRST(&claim->entries));
	if (r == 0)
		claim_tell_left_behind(claim);
	claim->taken = r == 0;
	claim_note(claim);
	claim_follow(claim);
	return r;
}

/* ------------------------------------------------------------------------------------------- */

/* Whether the consumer has not acknowledged the message. What it has acknowledged is over for it,
 * though its streams may still use it. */
static bool is_lent(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	return claim_ask_row(claim, ticket, version) == NOT_ACKNOWLEDGED;
}

static bool keeps(const struct claim *claim, const struct buffer *buffer)
{
	const struct entry *entry;

	TAILQ_FOREACH (entry, &claim->entries, link)
		if (entry->inherited->buffer == buffer &&
		    is_lent(claim, entry->inherited->ticket, entry->inherited->version))
			return true;
	return false;
}

static bool ring_has(const struct claim *claim, uint64_t id)
{
	const struct channel_ticket *t;

	for (uint32_t i = 0; (t = member_next_ticket(claim->producer, &i)); i++)
		if (atomic_load_explicit(&t->buffer, memory_order_acquire) == id &&
		    is_lent(claim, i, atomic_load_explicit(&t->version, memory_order_relaxed)))
			return true;
	return false;
}

bool claim_has(const struct claim *claim, struct buffer *buffer)
{
	struct member *producer = claim->producer;

	if (claim->taken)
		return keeps(claim, buffer);
	return lease_find(producer->channel->broker, producer->client, buffer) &&
	       ring_has(claim, buffer_id(buffer));
}
