/* SPDX-License-Identifier: MIT */

/*
 * What a producer leaves behind. Its ring says which buffers are in flight: of those that it really
 * holds the broker takes a reference each, before the leases go. A reference is given up when every
 * consumer that the producer had let in has acknowledged the message, or can receive nothing more
 * of it, or is dead. What their streams still do with the memory gates its next use, as ever.
 *
 * The ring and the ledgers are whatever their owners wrote. All that can come of nonsense in a ring
 * is that its own messages are lost or kept for long; of nonsense in a ledger, that its owner reads
 * what is not there any more. Everything is done a few tickets at a time.
 */

#include <stdlib.h>

#include <share/channel.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/estate.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/memory/pool.h"
#include "broker/suballocator/block.h"

struct estate *estate_with_room(struct member *producer, uint32_t room)
{
	struct estate *e = calloc(1, sizeof(*e) + room * sizeof(struct entry));

	if (!e)
		return NULL;
	e->producer = producer;
	e->broker = producer->channel->broker;
	return e;
}

struct estate *estate_new(struct member *producer)
{
	return estate_with_room(producer, producer->channel->shape.in_flight);
}

static void look_again(struct estate *e);

void estate_queue(struct estate *e)
{
	look_again(e);
	if (!e->queued)
		TAILQ_INSERT_TAIL(&e->broker->channels->estates, e, link);
	e->queued = true;
	channels_work_soon(e->broker);
}

/* Entries that run are looked at once more. */
static void look_again(struct estate *e)
{
	if (!e->waiting)
		return;
	TAILQ_REMOVE(&e->broker->channels->waiting, e, link);
	e->waiting = e->waits = false;
	e->next_entry = 0;
}

void estates_look_again(struct broker *b)
{
	struct estate *e;

	while ((e = TAILQ_FIRST(&b->channels->waiting)))
		estate_queue(e);
}

static void unqueue(struct estate *e)
{
	look_again(e);
	if (e->queued)
		TAILQ_REMOVE(&e->broker->channels->estates, e, link);
	e->queued = false;
}

void estate_goes_last(struct estate *e)
{
	TAILQ_REMOVE(&e->broker->channels->estates, e, link);
	TAILQ_INSERT_TAIL(&e->broker->channels->estates, e, link);
}

void estate_free(struct estate *e)
{
	if (!e)
		return;
	unqueue(e);
	free(e);
}

/* ------------------------------------------------------------------------------------------- */

void estate_take_buffer(struct estate *e, uint32_t ticket, const struct channel_ticket *t,
			const struct member *keeper)
{
	struct member *m = e->producer;
	uint64_t id = atomic_load_explicit(&t->buffer, memory_order_acquire);
	struct buffer *buffer = id ? buffer_find(e->broker, id) : NULL;

	if (!buffer || MUTATION(forget_estate) || buffer_pool(buffer) != m->channel->pool ||
	    !lease_find(e->broker, m->client, buffer))
		return;
	e->entries[e->n] = (struct entry){
	    .buffer = buffer,
	    .version = atomic_load_explicit(&t->version, memory_order_relaxed),
	    .ticket = (uint16_t)ticket,
	};
	buffer_keep(buffer, &e->entries[e->n++].keep, keeper->timelines->account);
	e->bytes += block_size(buffer->block);
}

/* Who may have messages of it, or wants to know what has become of it. */
static void find_holders(struct estate *e)
{
	struct member *producer = e->producer;
	struct channel *ch = producer->channel;
	uint64_t admitted = 0;

	for (uint32_t i = 0; i < ch->shape.consumers; i++) {
		struct member *m = channel_slots(ch, SHARE_CONSUMER)[i];
		const struct channel_admission *a =
		    channel_admission_at(producer->page.memory, &ch->shape, i);
		struct holder *h = &e->holders[e->n_holders];

		if (!m || m->state == MEMBER_PREPARING)
			continue;
		h->admitted = atomic_load_explicit(&a->consumer, memory_order_acquire) == m->id &&
			      m->as_consumer.abandoned_by[producer->slot] != producer->id;
		if (!h->admitted && m->known[producer->slot] != producer->id)
			continue;
		h->consumer = m;
		h->busy = h->admitted;
		m->as_consumer.holds++;
		admitted |= (uint64_t)h->admitted << e->n_holders++;
	}
	for (uint32_t i = 0; i < e->n; i++)
		e->entries[i].open = admitted;
	e->n_left = e->n;
}

bool estate_take(struct estate *e, int *budget)
{
	struct wire_message done = {.type = WIRE_DONE, .serial = e->serial};
	struct member *m = e->producer;
	struct client *client = m->client;
	const struct channel_ticket *t;

	e->phase = PHASE_TAKING;
	for (; (t = member_next_ticket(m, &e->next_ticket)); e->next_ticket++, --*budget) {
		if (*budget <= 0)
			return false;
		estate_take_buffer(e, e->next_ticket, t, m);
	}
	e->phase = PHASE_SETTLING;
	e->since_ms = clock_ms();
	find_holders(e);
	m->state = MEMBER_GONE;
	member_detach(m);
	estate_queue(e);
	channel_changed(m->channel, SHARE_PRODUCER);
	if (done.serial)
		client_send(client, &done, NULL, 0);
	return true;
}

void estate_take_later(struct estate *e, uint32_t serial)
{
	e->phase = PHASE_TAKING;
	e->serial = serial;
	estate_queue(e);
}

bool estate_is_being_taken(const struct estate *e)
{
	return e && e->phase == PHASE_TAKING;
}

/* ------------------------------------------------------------------------------------------- */

void estate_give_up(struct estate *e, struct entry *entry)
{
	struct buffer *buffer = entry->buffer;

	entry->buffer = NULL;
	e->n_left--;
	e->bytes -= block_size(buffer->block);
	buffer_let_go(e->broker, buffer, &entry->keep);
}

bool estate_gate(struct entry *entry, struct fence *fence)
{
	struct fence_set **pending = &entry->buffer->pending;

	*pending = fence_set_prune(*pending);
	if (!fence_set_may_add(*pending, fence)) {
		fence_done(fence);
		return false;
	}
	*pending = fence_set_add(*pending, fence);
	return true;
}

enum answer estate_add_fence(struct estate *e, struct entry *entry, struct member *consumer,
			     int *budget)
{
	struct fence fence;

	/* once another producer has its slot, so may it have the rows in the ledgers of those who
	 * are there; the others write nothing any more */
	if ((!member_holds_slot(e->producer) && consumer->state != MEMBER_GONE) ||
	    !member_has_acknowledged(consumer, e->producer, entry->ticket, entry->version, &fence))
		return NOT_ACKNOWLEDGED;
	if (!fence.timelines)
		return ACKNOWLEDGED;
	*budget -= (int)(fence_set_size(entry->buffer->pending) / 16);
	return estate_gate(entry, &fence) ? ACKNOWLEDGED : UNPAID;
}

struct holder *estate_find_holder(const struct estate *e, const struct member *consumer)
{
	for (uint32_t i = 0; e->phase == PHASE_SETTLING && i < e->n_holders; i++)
		if (e->holders[i].consumer == consumer)
			return (struct holder *)(uintptr_t)&e->holders[i];
	return NULL;
}

static void give_up_if_done_with(struct estate *e, struct entry *entry)
{
	if (!entry->open && !entry->runs)
		estate_give_up(e, entry);
}

/* Consumers that had closed the channel before hold nothing, but work of theirs may be running. It
 * gates the next use of the memory; where their user may not have as many fences, the entry waits
 * until the work is done or they are dead. */
static bool ask_the_departed(struct estate *e, int *budget)
{
	struct member *m;

	for (; e->next_entry < e->n; e->next_entry++, --*budget) {
		struct entry *entry = &e->entries[e->next_entry];

		if (*budget <= 0)
			return false;
		if (!entry->buffer)
			continue;
		entry->runs = false;
		LIST_FOREACH (m, &e->producer->channel->departed, as_consumer.of_departed) {
			entry->runs |= !m->died && !MUTATION(forget_departures) &&
				       estate_add_fence(e, entry, m, budget) == UNPAID;
			--*budget;
		}
		e->waits |= entry->runs;
		give_up_if_done_with(e, entry);
	}
	return true;
}

/* Whether what its ledger does not say was not acknowledged: another producer's row may be where
 * this one's was, and then it is known when it has told us, or is dead. */
static bool is_heard(const struct estate *e, const struct holder *h)
{
	return member_holds_slot(e->producer) || h->told || h->consumer->died;
}

static bool look_at_holder(struct estate *e, uint32_t index, int *budget)
{
	struct holder *h = &e->holders[index];
	uint64_t bit = UINT64_C(1) << index;

	for (; h->admitted && h->next < e->n; h->next++, --*budget) {
		struct entry *entry = &e->entries[h->next];

		if (*budget <= 0)
			return false;
		if (!(entry->open & bit))
			continue;
		switch (estate_add_fence(e, entry, h->consumer, budget)) {
		case ACKNOWLEDGED:
			break;
		case UNPAID:
			h->unpaid = true;
			continue;
		case NOT_ACKNOWLEDGED:
			if (!h->over || !is_heard(e, h))
				continue;
		}
		entry->open &= ~bit;
		give_up_if_done_with(e, entry);
	}
	h->busy = false;
	if (h->over && !h->unpaid && (!h->admitted || is_heard(e, h))) {
		h->consumer->as_consumer.holds--;
		h->consumer = NULL;
	}
	return true;
}

static bool is_complete(const struct estate *e)
{
	for (uint32_t i = 0; i < e->n_holders; i++)
		if (e->holders[i].consumer)
			return false;
	return true;
}

void estate_end(struct estate *e)
{
	struct member *producer = e->producer;
	struct channel *ch = producer->channel;

	e->complete = true;
	if (e->partial) {
		LIST_REMOVE(e, of_producer);
		producer->as_producer.n_abandoned--;
		estate_free(e);
	}
	if (!producer->as_producer.estate->complete ||
	    !LIST_EMPTY(&producer->as_producer.abandoned))
		return;
	member_free(producer);
	channel_end_if_unused(ch);
}

/* Nothing of it is left, whoever may still be there. */
static void let_holders_go(struct estate *e)
{
	for (uint32_t i = 0; i < e->n_holders; i++) {
		if (e->holders[i].consumer)
			e->holders[i].consumer->as_consumer.holds--;
		e->holders[i].consumer = NULL;
	}
}

bool estate_work(struct estate *e, int *budget)
{
	if (e->phase == PHASE_TAKING && !estate_take(e, budget))
		return true;
	if (!ask_the_departed(e, budget))
		return true;
	for (uint32_t i = 0; i < e->n_holders; i++)
		if (e->holders[i].consumer && e->holders[i].busy && !look_at_holder(e, i, budget))
			return true;
	unqueue(e);
	if (e->partial && e->n_left == 0)
		let_holders_go(e);
	if (e->waits) {
		e->waiting = true;
		TAILQ_INSERT_TAIL(&e->broker->channels->waiting, e, link);
	} else if (is_complete(e)) {
		estate_end(e);
	}
	return false;
}

/* ------------------------------------------------------------------------------------------- */

static void drained(struct estate *e, const struct member *consumer)
{
	struct holder *h = estate_find_holder(e, consumer);

	/* said again, it changes nothing: each time costs a look at everything */
	if (!h || (h->over && !consumer->died))
		return;
	h->over = true;
	h->busy = true;
	h->unpaid = false;
	h->next = 0;
	estate_queue(e);
}

void estate_drained(struct estate *e, const struct member *consumer)
{
	struct estate *part;

	drained(e, consumer);
	LIST_FOREACH (part, &e->producer->as_producer.abandoned, of_producer)
		drained(part, consumer);
}

void estates_consumer_gone(struct member *consumer)
{
	struct member *m;

	LIST_FOREACH (m, &consumer->channel->members, of_channel)
		if (m->role == SHARE_PRODUCER && consumer->as_consumer.holds > 0)
			estate_drained(m->as_producer.estate, consumer);
}
