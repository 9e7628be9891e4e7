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
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/channel/progress.h"
#include "broker/channel/records.h"

void claim_end(struct claim *claim)
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
