/* SPDX-License-Identifier: MIT */

/*
 * Orphans that wait, and those who fetch them: who has nothing else to receive gets one at a time.
 * That it is its own is in the commit before the answer (R9), and the answer is given again until
 * the consumer counts it among those that it had.
 */

#include <share/channel.h>

#include "base/clock.h"
#include "broker/channel/orphan.h"

#define LEFT_TO_OTHERS_MS 1000

#define LOOKS 4096 /* at entries of one consumer, for one answer; about as long as a request */

/* Another version of the same ticket, or this one, that it has not given up yet: one word would be
 * about both. Only who was left behind has any, or has given it back. */
static bool has_ticket(const struct claim *claim, uint32_t ticket, int *looks)
{
	const struct entry *entry;

	TAILQ_FOREACH (entry, &claim->entries, link) {
		--*looks;
		if (entry->kept->ticket == ticket)
			return true;
	}
	return false;
}

/* Who has given it back leaves it to others for a while, who may hang. */
static bool is_left_to_others(const struct orphan *o, const struct member *consumer)
{
	return o->rejected_by == consumer->id && clock_ms() - o->rejected_ms < LEFT_TO_OTHERS_MS &&
	       anybody_may_fetch(consumer->channel, consumer);
}

/* At least the first one is looked at. */
static struct orphan *choose(struct member *producer, const struct member *consumer,
			     const struct claim *claim, int *looks)
{
	struct orphan *o;

	TAILQ_FOREACH (o, &producer->as_producer.waiting, link) {
		if (is_left_to_others(o, consumer))
			--*looks;
		else if (!claim || !has_ticket(claim, o->ticket, looks))
			return o;
		if (*looks <= 0)
			return NULL;
	}
	return NULL;
}

/* One of this producer's; NULL: there is none for it, or no memory or row. A claim that is over has
 * to end before there is another one. */
static struct orphan *fetch_of(struct member *consumer, struct member *producer, int *looks)
{
	struct claim *claim = claim_find(producer, consumer->id);
	struct orphan *o = claim && claim->over ? NULL : choose(producer, consumer, claim, looks);

	if (o && !claim)
		claim = claim_make_for_fetch(producer, consumer);
	if (!o || !claim || !claim_keep(claim, o->ticket, o->version, o->buffer))
		return NULL;
	orphan_give(o, claim);
	claim_follow(claim);
	return o;
}

struct orphan *orphan_fetch(struct member *consumer, uint32_t had)
{
	struct orphan *o = consumer->as_consumer.fetched_last;
	int looks = LOOKS;
	struct member *m;

	if (o && had != consumer->as_consumer.fetched)
		return o;
	o = NULL;
	/* in the order in which they came */
	TAILQ_FOREACH (m, &consumer->channel->members, of_channel) {
		if (m->state == MEMBER_GONE && m->as_producer.n_waiting > 0)
			o = fetch_of(consumer, m, &looks);
		if (o || looks <= 0)
			return o;
	}
	return NULL;
}

uint32_t orphans_of_others(const struct member *consumer)
{
	const struct channel *ch = consumer->channel;
	uint64_t n = ch->orphans.owned;
	const struct member *m;
	struct claim *claim;

	for (claim = claims_first(consumer); claim; claim = claims_next(consumer, claim))
		n -= claim->over ? 0 : claim->n_orphans;
	/* whoever believes that these are gone knows it before the broker does */
	TAILQ_FOREACH (m, &ch->members, of_channel)
		n += m->role == SHARE_PRODUCER &&
		     (m->state == MEMBER_HERE || m->state == MEMBER_LEFT);
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
