/* SPDX-License-Identifier: MIT */

/*
 * Entries of claims: what one consumer has of buffers that the broker has taken over from their
 * producer, who pays for that, and what the journal has of it. They are no objects of their own.
 */

#include <errno.h>
#include <stdlib.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/records.h"
#include "broker/channel/entry.h"
#include "broker/channel/page.h"
#include "broker/channel/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/order/order.h"
#include "broker/suballocator/block.h"

void producer_count_inherited(struct producer *p, const struct buffer *buffer, int n)
{
	if (!buffer)
		return;
	p->n_inherited += (uint64_t)n;
	p->bytes_inherited += (uint64_t)n * block_size(buffer->block);
}

/* Returns what is inherited of this ticket already, or makes it; NULL without memory. */
static struct inherited *inherit(struct member *producer, uint32_t ticket, uint32_t version,
				 struct buffer *buffer)
{
	struct producer *p = &producer->as_producer;
	struct inherited *inherited;

	if (!p->inherited)
		p->inherited = member_table_new(producer);
	if (!p->inherited)
		return NULL;
	inherited = p->inherited[ticket];
	if (inherited && inherited->version == version && inherited->buffer == buffer)
		return inherited;
	inherited = calloc(1, sizeof(*inherited));
	if (!inherited)
		return NULL;
	inherited->buffer = buffer;
	inherited->version = version;
	inherited->ticket = ticket;
	p->inherited[ticket] = inherited;
	producer_count_inherited(p, buffer, 1);
	return inherited;
}

static void let_go(struct member *producer, struct inherited *inherited)
{
	struct producer *p = &producer->as_producer;

	if (p->inherited[inherited->ticket] == inherited)
		p->inherited[inherited->ticket] = NULL;
	producer_count_inherited(p, inherited->buffer, -1);
	free(inherited);
}

struct account *claim_account(const struct claim *claim, bool producer)
{
	return (producer ? claim->producer : claim->consumer)->timelines->account;
}

/* Charges for an entry. The consumer pays, as it does not acknowledge the message and so keeps it;
 * the producer does where the consumer's account has no room. False: neither account has. */
static bool pay(const struct claim *claim, struct entry *entry, uint32_t price)
{
	const uint64_t wanted = price;

	entry->price = price & (UINT32_MAX >> 1);
	entry->producer_pays = !account_may_add(claim_account(claim, false), LIMIT_MEMORY, wanted);
	if (price > 0 && entry->producer_pays &&
	    !account_may_add(claim_account(claim, true), LIMIT_MEMORY, wanted))
		return false;
	account_must_add(claim_account(claim, entry->producer_pays), price);
	return true;
}

static void pay_back(const struct claim *claim, const struct entry *entry)
{
	account_give_back(claim_account(claim, entry->producer_pays), entry->price);
}

void entry_is_orphans(struct claim *claim, struct entry *entry)
{
	pay_back(claim, entry);
	entry->price = 0;
}

/* Makes an entry that is not noted yet. @payer is whose the reference on the buffer is. 0, -ENOMEM,
 * or -EDQUOT if no account has room for @price. */
static int attach_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			struct buffer *buffer, struct account *payer, uint32_t price,
			struct entry **out)
{
	struct entry *entry = malloc(sizeof(*entry));

	if (!entry)
		return -ENOMEM;
	if (!pay(claim, entry, price)) {
		free(entry);
		return -EDQUOT;
	}
	entry->inherited = inherit(claim->producer, ticket, version, buffer);
	if (!entry->inherited) {
		pay_back(claim, entry);
		free(entry);
		return -ENOMEM;
	}
	entry->referrer.account = payer;
	if (buffer)
		referrer_attach(buffer, &entry->referrer, REFERRER_MESSAGE, payer);
	entry->inherited->n_entries++;
	claim->consumer->as_consumer.n_paid += payer == claim->consumer->timelines->account;
	entry->record = 0;
	entry->further_of = NULL;
	TAILQ_INSERT_TAIL(&claim->entries, entry, link);
	claim->n++;
	*out = entry;
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Their records                                                                               */

/* What the record of an entry says. */
struct taken {
	struct claim *claim;
	struct buffer *buffer;
	uint32_t ticket, version, record;
	bool consumer_pays;
};

static void taken_fields(struct record *r, void *object)
{
	struct taken *t = object;

	record_buffer_or_none(r, &t->buffer);
	record_claim(r, &t->claim);
	record_u32(r, &t->ticket);
	record_u32(r, &t->version);
	record_flag(r, &t->consumer_pays);
	/* Entries of the same ticket come together, as several consumers may have the message; and
	 * of messages that used a ticket one after the other, the last one comes last. */
	r->order = (uint64_t)t->ticket << 32 | t->version;
}

static int taken_restore(struct broker *b, void *object)
{
	struct taken *t = object;
	struct entry *entry;
	int r;

	(void)b;
	if (!t->claim || t->ticket >= t->claim->producer->channel->shape.in_flight)
		return -EBADMSG;
	r = attach_entry(t->claim, t->ticket, t->version, t->buffer,
			 claim_account(t->claim, !t->consumer_pays), PRICE_ENTRY, &entry);
	if (r == 0)
		entry->record = t->record;
	free(t);
	return r;
}

const struct object_kind taken_kind = OBJECT_KIND(RECORD_ENTRY, "message that was taken over",
						  struct taken, taken_fields, taken_restore);

void entry_note(struct claim *claim, struct entry *entry)
{
	struct taken t = {
	    .claim = claim,
	    .buffer = entry->inherited->buffer,
	    .ticket = entry->inherited->ticket,
	    .version = entry->inherited->version,
	    .record = entry->record,
	    .consumer_pays = entry->referrer.account == claim->consumer->timelines->account,
	};

	object_put(claim->producer->channel->broker->journal, &taken_kind, &t);
	entry->record = t.record;
}

/* ------------------------------------------------------------------------------------------- */

int entry_add(struct claim *claim, uint32_t ticket, uint32_t version, struct buffer *buffer,
	      struct account *payer, uint32_t price, struct entry **out)
{
	int r = attach_entry(claim, ticket, version, buffer, payer, price, out);

	if (r == 0)
		entry_note(claim, *out);
	return r;
}

struct entry *claim_add_entry(struct claim *claim, uint32_t ticket, uint32_t version,
			      struct buffer *buffer)
{
	struct entry *entry;

	return entry_add(claim, ticket, version, buffer, claim_account(claim, true), 0, &entry) == 0
		   ? entry
		   : NULL;
}

bool entry_is_of(const struct entry *entry, uint32_t ticket, uint32_t version)
{
	return entry->inherited->ticket == ticket && entry->inherited->version == version;
}

void entry_give_up(struct claim *claim, struct entry *entry)
{
	struct broker *b = claim->producer->channel->broker;
	struct buffer *buffer = entry->inherited->buffer;

	TAILQ_REMOVE(&claim->entries, entry, link);
	pay_back(claim, entry);
	claim->n--;
	claim->consumer->as_consumer.n_paid -=
	    entry->referrer.account == claim->consumer->timelines->account;
	b->channels->n_steps++;
	journal_drop(b->journal, &entry->record);
	if (--entry->inherited->n_entries == 0)
		let_go(claim->producer, entry->inherited);
	if (buffer)
		referrer_detach(b, buffer, &entry->referrer);
	free(entry);
}
