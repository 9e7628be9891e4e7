/* SPDX-License-Identifier: MIT */

/*
 * An orphan is a message that a queue's producer that is gone has sent, and that nobody has
 * acknowledged. The message itself stays in the producer's ring, where there is a copy of it by
 * ticket; its memory is kept here. The broker reads who has it, and never its data.
 *
 * An orphan is owned by the claim of the consumer that has it in its lane or has fetched it, or it
 * waits. A consumer that can acknowledge nothing more gives it back. If that one had received it,
 * this counts as a delivery; when it has been delivered as often as the channel allows, it is lost,
 * as there is nobody left to take it back. Who gets those that wait is in orphan_fetch.c, and what
 * becomes of those that nobody gets in orphan_lost.c.
 *
 * An orphan of several buffers is found by the tickets of all of them, and known by the first
 * one's. Its owner has an entry for each, so that each may be kept by itself when it is
 * acknowledged.
 *
 * The rules R6 to R10 of tests/themes/model/membership.pml are these.
 */

#include <errno.h>
#include <stdlib.h>

#include <share/channel.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/channel/orphan.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/conversation.h"
#include "broker/journal/journal.h"
#include "broker/memory/pool.h"
#include "broker/suballocator/block.h"

struct orphan *orphan_find(const struct member *producer, uint32_t ticket)
{
	return producer->as_producer.orphans ? producer->as_producer.orphans[ticket] : NULL;
}

static uint64_t count(const struct channel *ch)
{
	return ch->orphans.waiting + ch->orphans.owned;
}

/* Has consumers ask who is there, with which they ask for orphans. */
static void tell_consumers(struct channel *ch)
{
	channel_changed(ch, SHARE_PRODUCER);
}

static void count_buffer(struct producer *p, const struct buffer *buffer, int n)
{
	p->n_inherited += (uint64_t)n;
	p->bytes_inherited += (uint64_t)n * block_size(buffer->block);
}

static void count_held(const struct orphan *o, int n)
{
	struct producer *p = &o->producer->as_producer;

	if (o->buffer)
		count_buffer(p, o->buffer, n);
	for (uint32_t i = 0; i < o->n_further; i++)
		count_buffer(p, o->further[i].buffer, n);
}

/* Puts an orphan among those that wait. One that @returns comes before those that nobody has had
 * yet; mostly several return, in the order in which they were sent. */
static void wait_for_owner(struct orphan *o, bool returns)
{
	struct producer *p = &o->producer->as_producer;
	struct channel *ch = o->producer->channel;

	if (!returns)
		TAILQ_INSERT_TAIL(&p->waiting, o, link);
	else if (p->returned_last && p->returned_last->number < o->number)
		TAILQ_INSERT_AFTER(&p->waiting, p->returned_last, o, link);
	else
		TAILQ_INSERT_HEAD(&p->waiting, o, link);
	if (returns)
		p->returned_last = o;
	count_held(o, 1);
	p->n_waiting++;
	producer_sort_in(o->producer);
	if (ch->orphans.waiting++ == 0)
		tell_consumers(ch);
}

static void wait_no_more(struct orphan *o)
{
	struct producer *p = &o->producer->as_producer;

	if (p->returned_last == o)
		p->returned_last = NULL;
	TAILQ_REMOVE(&p->waiting, o, link);
	count_held(o, -1);
	p->n_waiting--;
	producer_sort_in(o->producer);
	o->producer->channel->orphans.waiting--;
}

static void set_owner(struct orphan *o, struct claim *claim)
{
	struct consumer *c = &claim->consumer->as_consumer;

	if (o->fetch > 0 && o->fetch == c->fetched)
		c->fetched_last = o;
	o->owner = claim;
	claim->n_orphans++;
	o->producer->as_producer.n_owned++;
	o->producer->channel->orphans.owned++;
}

/* Gives up the owner's entries for buffers behind the first one; or (@given_back false) has them
 * end by themselves. */
static void part_from_entries(struct orphan *o, bool given_back)
{
	for (uint32_t i = 0; i < o->n_further; i++) {
		struct entry *entry = o->further[i].entry;

		o->further[i].entry = NULL;
		if (!entry)
			continue;
		entry->further_of = NULL;
		if (given_back && !MUTATION(keep_further_of_rejected))
			entry_give_up(o->owner, entry);
	}
}

static void lose_owner(struct orphan *o)
{
	struct consumer *c = &o->owner->consumer->as_consumer;

	part_from_entries(o, false);
	if (c->fetched_last == o)
		c->fetched_last = NULL;
	o->owner->n_orphans--;
	o->owner = NULL;
	o->producer->as_producer.n_owned--;
	o->producer->channel->orphans.owned--;
}

/* Frees an orphan, after which its producer may be unused. */
static void end(struct orphan *o)
{
	struct member *producer = o->producer;
	struct channel *ch = producer->channel;
	struct broker *b = ch->broker;

	if (o->owner)
		lose_owner(o);
	else
		wait_no_more(o);
	b->channels->n_orphans--;
	producer->as_producer.orphans[o->ticket] = NULL;
	journal_drop(b->journal, &o->record);
	if (o->buffer)
		referrer_detach(b, o->buffer, &o->referrer);
	for (uint32_t i = 0; i < o->n_further; i++) {
		producer->as_producer.orphans[o->further[i].ticket] = NULL;
		referrer_detach(b, o->further[i].buffer, &o->further[i].referrer);
	}
	free(o->further);
	free(o);
	/* a consumer that waits for the last one hears that there are none any more */
	if (count(ch) == 0)
		tell_consumers(ch);
}

void orphan_lose(struct orphan *o)
{
	struct channel *ch = o->producer->channel;

	ch->orphans.lost++;
	ch->orphans.untold++;
	channel_note(ch);
	end(o);
}

bool orphan_add_entries(struct orphan *o, struct claim *claim)
{
	struct entry *first = claim_add_entry(claim, o->ticket, o->version, o->buffer);
	bool all = first;

	for (uint32_t i = 0; all && i < o->n_further && !MUTATION(first_buffer_alone); i++) {
		struct orphan_further *f = &o->further[i];

		f->entry = claim_add_entry(claim, f->ticket, f->version, f->buffer);
		all = f->entry;
		if (all)
			f->entry->further_of = o;
	}
	if (first && !all) {
		entry_give_up(claim, first);
		for (uint32_t i = 0; o->further[i].entry; i++) {
			entry_give_up(claim, o->further[i].entry);
			o->further[i].entry = NULL;
		}
	}
	return all;
}

void orphan_give(struct orphan *o, struct claim *claim)
{
	wait_no_more(o);
	o->position = 0;
	o->rejected_by = 0;
	o->fetch = ++claim->consumer->as_consumer.fetched;
	set_owner(o, claim);
	if (!MUTATION(fetch_not_noted))
		orphan_note(o);
	member_note(claim->consumer);
}

/* Makes the producer's table of orphans, if there is none. False without memory. */
static bool prepare(struct member *producer)
{
	struct producer *p = &producer->as_producer;

	if (p->orphans)
		return true;
	TAILQ_INIT(&p->waiting);
	p->orphans = member_table_new(producer);
	return p->orphans;
}

static void attach(struct orphan *o)
{
	struct account *account = o->producer->timelines->account;

	if (o->buffer)
		referrer_attach(o->buffer, &o->referrer, REFERRER_MESSAGE, account);
	o->producer->as_producer.orphans[o->ticket] = o;
	for (uint32_t i = 0; i < o->n_further; i++) {
		struct orphan_further *f = &o->further[i];

		referrer_attach(f->buffer, &f->referrer, REFERRER_MESSAGE, account);
		o->producer->as_producer.orphans[f->ticket] = o;
	}
	o->producer->channel->broker->channels->n_orphans++;
}

/* Whether the orphan's tickets can be: each is of the channel, and no other message's. */
static bool are_tickets(const struct orphan *o)
{
	const struct channel_shape *shape = &o->producer->channel->shape;

	if (o->ticket >= shape->in_flight || orphan_find(o->producer, o->ticket) ||
	    o->n_further >= channel_buffers(shape) || (o->n_further > 0 && !o->buffer))
		return false;
	for (uint32_t i = 0; i < o->n_further; i++) {
		uint32_t ticket = o->further[i].ticket;

		if (ticket >= shape->in_flight || ticket == o->ticket ||
		    orphan_find(o->producer, ticket))
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (o->further[k].ticket == ticket)
				return false;
	}
	return true;
}

int orphan_attach(struct broker *b, void *object)
{
	struct orphan *o = object;
	const struct channel_shape *shape = o->producer ? &o->producer->channel->shape : NULL;
	struct claim *owner = o->owner;

	(void)b;
	if (!shape || o->producer->role != SHARE_PRODUCER || !are_tickets(o) ||
	    o->deliveries == 0 || o->deliveries > shape->deliveries ||
	    (owner && owner->producer != o->producer))
		return -EBADMSG;
	if (!prepare(o->producer))
		return -ENOMEM;
	attach(o);
	if (owner)
		set_owner(o, owner);
	else
		wait_for_owner(o, false);
	return 0;
}

/* Finds the entry that an earlier broker had made for a buffer behind the first one. */
static void find_further(struct orphan *o, struct claim *claim, struct entry *entry)
{
	for (uint32_t i = 0; i < o->n_further; i++) {
		struct orphan_further *f = &o->further[i];

		if (f->entry || !entry_is_of(entry, f->ticket, f->version))
			continue;
		f->entry = entry;
		entry->further_of = o;
		entry_is_orphans(claim, entry);
		return;
	}
}

bool orphans_have_entries(struct claim *claim)
{
	struct entry *entry;
	struct orphan *o;
	uint32_t n = 0;

	TAILQ_FOREACH (entry, &claim->entries, link) {
		o = orphan_find(claim->producer, entry->inherited->ticket);
		if (!o || o->owner != claim)
			continue;
		if (o->has_entry || !entry_is_of(entry, o->ticket, o->version)) {
			find_further(o, claim, entry);
			continue;
		}
		o->has_entry = true;
		entry_is_orphans(claim, entry);
		n++;
	}
	return n == claim->n_orphans;
}

/* ------------------------------------------------------------------------------------------- */
/* A producer goes                                                                             */

/* Has an orphan wait again, or ends it, as its owner can acknowledge it no more or has rejected it.
 * @had: the owner had received it, which counts as a delivery. */
static void give_back(struct orphan *o, bool had)
{
	if (had && o->deliveries >= o->producer->channel->shape.deliveries) {
		orphans_lose_often(o->producer, 1);
		end(o);
		return;
	}
	o->deliveries += had;
	o->position = 0;
	o->fetch = 0;
	if (o->owner)
		lose_owner(o);
	wait_for_owner(o, true);
	if (!MUTATION(return_not_noted))
		orphan_note(o);
}

static uint32_t deliveries_of(const struct member *producer, const struct copy *copy)
{
	uint32_t most = producer->channel->shape.deliveries;

	return copy->deliveries == 0 ? 1 : copy->deliveries < most ? copy->deliveries : most;
}

/* Finds a buffer that the ring names, which may be none. False: it is not the producer's. */
static bool find_buffer(struct member *producer, uint64_t id, struct buffer **out)
{
	struct broker *b = producer->channel->broker;

	*out = id == CHANNEL_NO_BUFFER ? NULL : buffer_find(b, id);
	return id == CHANNEL_NO_BUFFER || (*out && buffer_pool(*out) == producer->channel->pool &&
					   lease_find(b, producer->client, *out));
}

static bool was_acknowledged(const struct member *producer, const struct claim *claim,
			     uint32_t ticket, uint32_t version)
{
	return producer_has_noted(producer, ticket, version) ||
	       (claim && claim_ask_row(claim, ticket, version) != NOT_ACKNOWLEDGED);
}

static void discard(struct orphan *o)
{
	free(o->further);
	free(o);
}

/* Finds the buffers behind the first one. False: some are not the producer's, or cannot be. */
static bool read_further(struct orphan *o, const struct copy *copy)
{
	for (uint32_t i = 0; i < o->n_further; i++) {
		struct orphan_further *f = &o->further[i];
		struct copy_further said;

		if (!copy_ask_further(o->producer, o->ticket, copy, i, &said) ||
		    !find_buffer(o->producer, said.buffer, &f->buffer))
			return false;
		f->ticket = said.ticket;
		f->version = said.version;
	}
	return are_tickets(o);
}

/* Makes an orphan that is nobody's yet, and not attached. NULL without memory, or if (*nonsense)
 * there can be no such message. */
static struct orphan *begin(struct member *producer, uint32_t ticket, const struct copy *copy,
			    struct buffer *buffer, bool *nonsense)
{
	struct orphan *o = prepare(producer) ? calloc(1, sizeof(*o)) : NULL;

	*nonsense = false;
	if (!o)
		return NULL;
	o->producer = producer;
	o->buffer = buffer;
	o->ticket = ticket;
	o->version = copy->version;
	o->number = copy->number;
	if (copy->n_further == 0)
		return o;
	o->n_further = (uint8_t)copy->n_further;
	o->further = calloc(o->n_further, sizeof(*o->further));
	*nonsense = o->further && !read_further(o, copy);
	if (o->further && !*nonsense)
		return o;
	discard(o);
	return NULL;
}

/* Makes an orphan of the message of this ticket, if it is one. False without memory. */
static bool make_orphan(struct member *producer, uint32_t ticket, int *budget)
{
	struct channel *ch = producer->channel;
	struct claim *claim = NULL;
	struct buffer *buffer;
	struct orphan *o;
	struct copy copy;
	bool in_lane, owned, had, nonsense;

	if (!copy_ask(producer, ticket, &copy) || copy.sequence == CHANNEL_COPY_FINISHED ||
	    orphan_find(producer, ticket)) /* an earlier broker has made it an orphan already */
		return true;
	*budget -= (int)copy.n_further;
	in_lane = copy.sequence != CHANNEL_COPY_WAITS;
	if (in_lane)
		claim = copy_owner(producer, &copy);
	if (was_acknowledged(producer, claim, ticket, copy.version) ||
	    !find_buffer(producer, copy.buffer, &buffer))
		return true;
	owned = claim && !claim->over;
	/* if its row is gone, nobody knows whether that consumer had received it */
	had = in_lane && !owned && (!claim || claim_taken(claim) >= copy.sequence);
	if (had && deliveries_of(producer, &copy) == ch->shape.deliveries) {
		orphans_lose_often(producer, 1);
		return true;
	}
	o = begin(producer, ticket, &copy, buffer, &nonsense);
	if (!o)
		return nonsense;
	if (owned && !orphan_add_entries(o, claim)) {
		discard(o);
		return false;
	}
	attach(o);
	o->deliveries = deliveries_of(producer, &copy) + had;
	o->position = owned ? copy.sequence : 0;
	if (owned)
		set_owner(o, claim);
	else
		wait_for_owner(o, false);
	orphan_note(o);
	return true;
}

static int compare_tickets(const void *left, const void *right)
{
	const struct orphan *a = *(struct orphan *const *)left, *b = *(struct orphan *const *)right;

	return (a->number > b->number) - (a->number < b->number);
}

/* Sorts the orphans that wait: they were found in the order of their tickets, and are received in
 * the order in which they were sent. Without memory for that they stay as they are. */
static void sort_waiting(struct producer *p)
{
	struct orphan **all =
	    p->n_waiting > 1 ? calloc(p->n_waiting, sizeof(struct orphan *)) : NULL;
	uint32_t n = 0;

	while (all && n < p->n_waiting) {
		all[n] = TAILQ_FIRST(&p->waiting);
		TAILQ_REMOVE(&p->waiting, all[n], link);
		n++;
	}
	if (all)
		qsort(all, n, sizeof(struct orphan *), compare_tickets);
	for (uint32_t i = 0; i < n; i++)
		TAILQ_INSERT_TAIL(&p->waiting, all[i], link);
	free(all);
}

bool orphans_make(struct member *producer, int *budget)
{
	struct producer *p = &producer->as_producer;
	struct channel *ch = producer->channel;

	if (p->orphans_made || p->transient || !channel_has_copies(&ch->shape, ch->layout) ||
	    ch->broker->has_ended || MUTATION(make_no_orphans))
		return true;
	/* each ticket is looked at once, as its message may be lost, which is counted */
	for (; member_next_ticket(producer, &p->next_orphan); p->next_orphan++, --*budget) {
		if (*budget <= 0)
			return false;
		if (!make_orphan(producer, p->next_orphan, budget)) {
			client_lose(producer->client, -ENOMEM);
			*budget = BUDGET_NO_MEMORY;
			return false;
		}
	}
	sort_waiting(p);
	p->orphans_made = true;
	return true;
}

/* ------------------------------------------------------------------------------------------- */
/* Those who have orphans */

bool orphan_look(struct claim *claim, const struct inherited *inherited,
		 enum acknowledgement acknowledged)
{
	struct orphan *o = orphan_find(claim->producer, inherited->ticket);

	if (!o || o->owner != claim || o->ticket != inherited->ticket ||
	    o->version != inherited->version)
		return false;
	if (acknowledged != NOT_ACKNOWLEDGED)
		end(o);
	else if (claim_ask_rejected(claim, o->ticket, o->version) == o->deliveries) {
		o->rejected_by = claim->consumer->id;
		o->rejected_ms = clock_ms();
		part_from_entries(o, true);
		give_back(o, true);
		return true;
	} else if (claim->over) {
		part_from_entries(o, true);
		give_back(o, o->position == 0 || claim_taken(claim) >= o->position ||
				 MUTATION(mark_what_was_not_taken));
	} else if (o->position > 0 && member_receives_no_more(claim->consumer) &&
		   claim_taken(claim) < o->position)
		give_back(o, false);
	return false;
}
