/* SPDX-License-Identifier: MIT */

/*
 * A claim is what one consumer may have of one producer. It is made when both are there, before
 * either can know of the other, and owns a row of the consumer's ledger: so nothing that outlives a
 * membership is ever found by a place that another one has by now.
 *
 * It ends when three things are true: it is over, so that the consumer acknowledges nothing more
 * (it has said so, has closed the channel, or is dead); it is quiet, so that no fence in its row is
 * still to be reached; and the broker keeps nothing for it. Only then is its row free. Nobody says
 * that a fence was reached, so claims are looked at every now and then. The claim on a producer
 * that is gone may also end when its row is wanted, and the consumer has nothing more to receive
 * and acknowledges nothing more.
 *
 * A consumer that has no row left when a producer comes is expelled: so many producers are gone of
 * which it has something to receive or to acknowledge. It keeps what it has, gets no more, and may
 * open the channel again.
 */

#include <errno.h>
#include <stdlib.h>

#include <share/channel.h>

#include "base/mutation.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/channel/orphan.h"
#include "broker/channel/records.h"
#include "broker/journal/journal.h"
#include "broker/order/order.h"
#include "broker/order/records.h"
#include "pages/timeline.h"

/* ------------------------------------------------------------------------------------------- */
/* Making and ending                                                                           */

struct claim *claims_first(const struct member *m)
{
	return LIST_FIRST(&m->claims);
}

struct claim *claims_next(const struct member *m, const struct claim *claim)
{
	return m->role == SHARE_PRODUCER ? LIST_NEXT(claim, of_producer)
					 : LIST_NEXT(claim, of_consumer);
}

struct member *claim_other(const struct claim *claim, const struct member *m)
{
	return m == claim->producer ? claim->consumer : claim->producer;
}

struct claim *claim_find(const struct member *m, uint64_t other)
{
	struct claim *claim = claims_first(m);

	while (claim && claim_other(claim, m)->id != other)
		claim = claims_next(m, claim);
	return claim;
}

static void unfollow(struct claim *claim)
{
	struct channels *channels = claim->producer->channel->broker->channels;

	if (!claim->followed)
		return;
	TAILQ_REMOVE(&channels->claims, claim, link);
	channels->n_followed--;
	claim->followed = false;
}

static void claim_free(struct claim *claim)
{
	unfollow(claim);
	account_give_back(claim->consumer->timelines->account, PRICE_CLAIM);
	claim->producer->channel->broker->channels->n_steps++;
	LIST_REMOVE(claim, of_producer);
	LIST_REMOVE(claim, of_consumer);
	claim->consumer->as_consumer.rows &= ~(UINT64_C(1) << claim->row);
	journal_drop(claim->producer->channel->broker->journal, &claim->record);
	free(claim);
}

static void claim_end(struct claim *claim)
{
	struct member *producer = claim->producer, *consumer = claim->consumer;
	struct channel *ch = producer->channel;

	claim_free(claim);
	member_free_if_unused(producer);
	member_free_if_unused(consumer);
	channel_end_if_unused(ch);
}

/* Whether the consumer has received and acknowledged everything of a producer that is gone, though
 * it has not said so, as it may not have looked since. What it holds, it says itself of all
 * producers together. Of a claim for what it fetches nothing else can be left, as each message has
 * an entry. */
static bool owes_nothing(const struct claim *claim)
{
	if (claim->producer->state != MEMBER_GONE || claim->n > 0)
		return false;
	/* in this order, as what it receives meanwhile is held before it is no longer to be
	 * received */
	return claim->for_fetch ||
	       (claim_unreceived(claim) == 0 && member_held(claim->consumer) == 0);
}

/* Ends a claim of which nothing is owed, if there is one, so that its row is free. */
static void free_a_row(struct member *consumer)
{
	struct claim *claim = claims_first(consumer);

	while (claim && !owes_nothing(claim))
		claim = claims_next(consumer, claim);
	if (claim)
		claim_end(claim);
}

static uint64_t free_rows(const struct member *consumer)
{
	uint32_t n = consumer->channel->shape.rows;

	if (MUTATION(give_row_away))
		return 1;

	return ~consumer->as_consumer.rows & (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1);
}

void claim_attach(struct claim *claim)
{
	claim->consumer->as_consumer.rows |= UINT64_C(1) << claim->row;
	TAILQ_INIT(&claim->entries);
	LIST_INSERT_HEAD(&claim->producer->claims, claim, of_producer);
	LIST_INSERT_HEAD(&claim->consumer->claims, claim, of_consumer);
	account_must_add(claim->consumer->timelines->account, PRICE_CLAIM);
}

/* Makes a claim; without a row *out is NULL, see claims_expel(). 0 or -ENOMEM. */
static int make_claim(struct member *producer, struct member *consumer, struct claim **out)
{
	struct claim *claim;

	*out = NULL;
	if (!free_rows(consumer))
		free_a_row(consumer);
	if (!free_rows(consumer))
		return 0;
	claim = calloc(1, sizeof(*claim));
	if (!claim)
		return -ENOMEM;
	claim->producer = producer;
	claim->consumer = consumer;
	claim->number = ++producer->channel->broker->channels->last_claim;
	claim->row = (uint32_t)__builtin_ctzll(free_rows(consumer));
	claim_attach(claim);
	claim_note(claim);
	*out = claim;
	return 0;
}

struct claim *claim_make_for_fetch(struct member *producer, struct member *consumer)
{
	struct claim *claim;

	if (make_claim(producer, consumer, &claim) < 0 || !claim)
		return NULL;
	claim->for_fetch = true;
	claim->next_ticket = CLAIM_FOR_FETCH;
	claim->taken = true;
	claim_note(claim);
	return claim;
}

/* Whether @other is to have a claim with @m, which comes. A consumer may still get something from a
 * producer whose connection has ended, but gets nothing new after its own has. */
static bool is_partner(const struct member *m, const struct member *other)
{
	return m->role != other->role &&
	       (other->state == MEMBER_HERE ||
		(other->state == MEMBER_LEFT && other->role == SHARE_PRODUCER)) &&
	       !other->as_producer.closing;
}

int claims_make(struct member *m)
{
	struct member *other;
	struct claim *claim;
	int r = 0;

	TAILQ_FOREACH (other, &m->channel->members, of_channel)
		if (r == 0 && is_partner(m, other))
			r = m->role == SHARE_PRODUCER ? make_claim(m, other, &claim)
						      : make_claim(other, m, &claim);
	return r;
}

void claims_unmake(struct member *m)
{
	while (claims_first(m))
		claim_free(claims_first(m));
}

bool claims_expel(struct member *producer)
{
	struct member *m;
	bool any = false;

	TAILQ_FOREACH (m, &producer->channel->members, of_channel) {
		if (!is_partner(producer, m) || claim_find(producer, m->id))
			continue;
		m->state = MEMBER_LEFT;
		m->as_consumer.expelled = true;
		member_note(m);
		member_tell_left_behind(m,
					"it had yet to receive or to acknowledge something of too "
					"many producers that are gone");
		any = true;
	}
	return any;
}

/* ------------------------------------------------------------------------------------------- */
/* What pages say. Each word is read once, and is whatever its owner liked.                    */

/* Whether the owner's streams can have such a fence. One that they cannot have is reached. */
static bool can_be(const struct timelines *t, uint32_t slot, uint64_t value)
{
	return !t->dead && slot > 0 && slot < TIMELINE_SLOTS && value > 0 &&
	       value < TIMELINE_POISON &&
	       (int64_t)(value - timeline_value(t->page, slot)) <= FENCE_AHEAD_MAX;
}

/* Whether the consumer's work is still to be done behind which it has acknowledged. */
static bool runs(const struct member *consumer, const struct channel_ack *ack, uint64_t word)
{
	struct timelines *t = consumer->timelines;
	struct fence fence = {
	    .timelines = t,
	    .slot = (uint32_t)word & (uint32_t)~CHANNEL_ACK_RETAINED,
	    .value = atomic_load_explicit(&ack->value, memory_order_relaxed),
	};

	if (word & CHANNEL_ACK_REJECTED || !can_be(t, fence.slot, fence.value))
		return false;
	if (timeline_is_by_gpu(t->page, fence.slot))
		order_watch_gpus(consumer->channel->broker);
	return fence_query(&fence) == TIMELINE_PENDING;
}

/* Returns the claim's row; NULL: the consumer has not written it for this producer. */
static const struct channel_row *row_of(const struct claim *claim)
{
	struct member *consumer = claim->consumer;
	const struct channel_row *row =
	    channel_row_at(consumer->page.memory, &consumer->channel->shape, claim->row);

	if (member_unwritten(consumer, row) > 0 ||
	    atomic_load_explicit(&row->producer, memory_order_acquire) != claim->producer->id)
		return NULL;
	return row;
}

enum acknowledgement claim_ask_row(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	const struct channel_row *row = row_of(claim);
	uint64_t word;

	if (!row || member_unwritten(claim->consumer, &row->acks[ticket]) > 0)
		return NOT_ACKNOWLEDGED;
	word = atomic_load_explicit(&row->acks[ticket].word, memory_order_acquire);
	if (word >> 32 != version)
		return NOT_ACKNOWLEDGED;
	/* who has given it back may have got it again, so the entry stays until the consumer is
	 * done with the producer */
	if (word & CHANNEL_ACK_REJECTED && !MUTATION(free_what_was_rejected))
		return NOT_ACKNOWLEDGED;
	return runs(claim->consumer, &row->acks[ticket], word) && !MUTATION(do_not_wait)
		   ? STILL_RUNS
		   : DONE_WITH;
}

uint64_t claim_taken(const struct claim *claim)
{
	const struct channel_row *row = row_of(claim);

	return row ? atomic_load_explicit(&row->taken, memory_order_acquire) : 0;
}

uint32_t claim_ask_rejected(const struct claim *claim, uint32_t ticket, uint32_t version)
{
	const struct channel_row *row = row_of(claim);
	uint64_t word;

	if (!row || member_unwritten(claim->consumer, &row->acks[ticket]) > 0)
		return 0;
	word = atomic_load_explicit(&row->acks[ticket].word, memory_order_acquire);
	return word >> 32 == version && word & CHANNEL_ACK_REJECTED
		   ? (uint32_t)word & CHANNEL_ACK_DELIVERY
		   : 0;
}

/* Returns the version with which the consumer is done, as the word says. 0: none, as it was given
 * back. */
static uint32_t acknowledged_version(uint64_t word)
{
	return word & CHANNEL_ACK_REJECTED && !MUTATION(note_rejected) ? 0 : (uint32_t)(word >> 32);
}

/* Whether no fence in the row is still to be reached. The row does not change any more, so a fence
 * that was found reached is not looked at again. False also if there was no time or no memory. */
static bool is_quiet(struct claim *claim, int *budget)
{
	const struct channel_shape *shape = &claim->consumer->channel->shape;
	const struct channel_row *row = row_of(claim);
	const struct channel_ack *ack;
	uint64_t word;
	size_t zeros;

	for (; row && claim->next_ack < shape->in_flight; claim->next_ack++, --*budget) {
		if (*budget <= 0) {
			claim->producer->channel->broker->channels->n_steps++;
			return false;
		}
		ack = &row->acks[claim->next_ack];
		zeros = member_unwritten(claim->consumer, ack);
		if (zeros > 0) {
			claim->next_ack += (uint32_t)((zeros - 1) / sizeof(*ack));
			continue;
		}
		word = atomic_load_explicit(&ack->word, memory_order_acquire);
		if (runs(claim->consumer, ack, word))
			return MUTATION(end_too_early);
		if (!orphan_note_acknowledged(claim, claim->next_ack, acknowledged_version(word)))
			return false;
	}
	return true;
}

bool claim_is_admitted(const struct claim *claim)
{
	const struct channel_admission *a =
	    channel_admission_at(claim->producer->page.memory, &claim->producer->channel->shape,
				 claim->consumer->as_consumer.slot);

	return member_unwritten(claim->producer, a) == 0 &&
	       atomic_load_explicit(&a->consumer, memory_order_acquire) == claim->consumer->id;
}

/* ------------------------------------------------------------------------------------------- */
/* Looking at claims                                                                           */

void claim_follow(struct claim *claim)
{
	struct broker *b = claim->producer->channel->broker;

	unfollow(claim);
	TAILQ_INSERT_HEAD(&b->channels->claims, claim, link);
	b->channels->n_followed++;
	claim->followed = true;
	channels_work_soon(b);
}

static bool is_done_with(struct claim *claim, const struct entry *entry)
{
	const struct inherited *inherited = entry->inherited;
	enum acknowledgement acknowledged;

	if (entry->further_of)
		return false;
	acknowledged = claim_ask_row(claim, inherited->ticket, inherited->version);
	if (orphan_look(claim, inherited, acknowledged))
		return true;
	switch (acknowledged) {
	case STILL_RUNS:
		return false;
	case DONE_WITH:
		return true;
	case NOT_ACKNOWLEDGED:
		break;
	}
	return claim->over;
}

/* Looks at each entry once at most; giving up one may give up others of the same message. */
static void look_at_entries(struct claim *claim, int *budget)
{
	struct entry *entry;

	for (uint32_t left = claim->n;
	     left > 0 && *budget > 0 && (entry = TAILQ_FIRST(&claim->entries)); left--, --*budget) {
		if (is_done_with(claim, entry)) {
			entry_give_up(claim, entry);
			continue;
		}
		TAILQ_REMOVE(&claim->entries, entry, link);
		TAILQ_INSERT_TAIL(&claim->entries, entry, link);
	}
}

/* While both take part, the producer itself sees what the consumer acknowledges. */
static bool has_parted(const struct claim *claim)
{
	return claim->producer->state == MEMBER_GONE || claim->consumer->state == MEMBER_GONE;
}

void claim_look(struct claim *claim, int *budget)
{
	bool ends = claim->over && has_parted(claim);

	look_at_entries(claim, budget);
	if (claim->n == 0 && ends && is_quiet(claim, budget)) {
		producer_note_acknowledged(claim->producer);
		claim_end(claim);
	} else if (claim->n == 0 && !ends) {
		unfollow(claim);
	}
}

void claim_is_over(struct claim *claim)
{
	/* Said again, it changes nothing, but each time would cost a look at everything. */
	if (claim->over)
		return;
	claim_tell_left_behind(claim);
	claim->over = true;
	claim_note(claim);
	claim_follow(claim);
}

void claims_are_over(struct member *consumer)
{
	for (struct claim *claim = claims_first(consumer); claim;
	     claim = claims_next(consumer, claim)) {
		claim->over = true;
		claim_note(claim);
		claim_follow(claim);
	}
}
