/* SPDX-License-Identifier: MIT */

/*
 * An orphan is a message that a queue's producer that is gone has sent, and that nobody has
 * acknowledged. The message itself stays in the producer's ring, where there is a copy of it by
 * ticket; its memory is kept here. The broker reads who has it, and never its data.
 *
 * An orphan is owned by the claim of the consumer that has it in its lane or has fetched it, or it
 * waits. A consumer that can acknowledge nothing more gives it back. If that one had received it,
 * this counts as a delivery; when it has been delivered as often as the channel allows, it is lost,
 * as there is nobody left to take it back. Who gets those that wait is in fetch.c, and what
 * becomes of those that nobody gets in deserted.c. How they are made is in make.c.
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
#include "broker/channel/records.h"
#include "broker/journal/journal.h"
#include "broker/orphan/inside.h"

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

static void count_held(const struct orphan *o, int n)
{
	struct producer *p = &o->producer->as_producer;

	producer_count_inherited(p, o->buffer, n);
	for (uint32_t i = 0; i < o->n_further; i++)
		producer_count_inherited(p, o->further[i].buffer, n);
}

void orphan_wait(struct orphan *o, bool returns)
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

void orphan_set_owner(struct orphan *o, struct claim *claim)
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
	orphan_set_owner(o, claim);
	if (!MUTATION(fetch_not_noted))
		orphan_note(o);
	member_note(claim->consumer);
}

bool orphans_prepare(struct member *producer)
{
	struct producer *p = &producer->as_producer;

	if (p->orphans)
		return true;
	TAILQ_INIT(&p->waiting);
	p->orphans = member_table_new(producer);
	return p->orphans;
}

void orphan_place(struct orphan *o)
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

bool orphan_has_tickets(const struct orphan *o)
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
	if (!shape || o->producer->role != SHARE_PRODUCER || !orphan_has_tickets(o) ||
	    o->deliveries == 0 || o->deliveries > shape->deliveries ||
	    (owner && owner->producer != o->producer))
		return -EBADMSG;
	if (!orphans_prepare(o->producer))
		return -ENOMEM;
	orphan_place(o);
	if (owner)
		orphan_set_owner(o, owner);
	else
		orphan_wait(o, false);
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
/* Those who have orphans */

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
	orphan_wait(o, true);
	if (!MUTATION(return_not_noted))
		orphan_note(o);
}

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
