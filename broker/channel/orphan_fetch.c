/* SPDX-License-Identifier: MIT */

/*
 * Orphans that wait, and those who fetch them: who has nothing else to receive gets one at a time.
 * That it is its own is in the commit before the answer (R9), and the answer is given again until
 * the consumer counts it among those that it had.
 */

#include <share/channel.h>

#include "base/clock.h"
#include "broker/channel/orphan.h"
#include "broker/channel/progress.h"

#define LEFT_TO_OTHERS_MS 1000

/* What one answer takes. */
struct search {
	int looks;       /* at entries of the consumer and at messages, that are left */
	bool has_others; /* who may get what this one has given back */
};
#define LOOKS 4096 /* about as long as a request */

/* Whether the claim has an entry for another version of one of the orphan's tickets, or for this
 * one, that it has not given up yet: the ticket's one word in the row would be about both. Only who
 * was left behind has such entries, or has given the message back. */
static bool has_ticket(const struct claim *claim, const struct orphan *o, struct search *s)
{
	const struct entry *entry;

	TAILQ_FOREACH (entry, &claim->entries, link) {
		s->looks--;
		if (orphan_find(o->producer, entry->inherited->ticket) == o)
			return true;
	}
	return false;
}

/* Who has given the message back leaves it to others for a while; not for ever, as those may
 * hang. */
static bool is_left_to_others(const struct orphan *o, const struct member *consumer,
			      const struct search *s)
{
	return o->rejected_by == consumer->id && s->has_others &&
	       clock_ms() - o->rejected_ms < LEFT_TO_OTHERS_MS;
}

/* At least the first one is looked at. */
static struct orphan *choose(struct member *producer, const struct member *consumer,
			     const struct claim *claim, struct search *s)
{
	struct orphan *o;

	TAILQ_FOREACH (o, &producer->as_producer.waiting, link) {
		if (is_left_to_others(o, consumer, s))
			s->looks--;
		else if (!claim || !has_ticket(claim, o, s))
			return o;
		if (s->looks <= 0)
			return NULL;
	}
	return NULL;
}

/* One of this producer's; NULL: there is none for it, or no memory or row. A claim that is over has
 * to end before there is another one. */
static struct orphan *fetch_of(struct member *consumer, struct member *producer, struct search *s)
{
	struct claim *claim = claim_find(producer, consumer->id);
	struct orphan *o = claim && claim->over ? NULL : choose(producer, consumer, claim, s);

	if (o && !claim)
		claim = claim_make_for_fetch(producer, consumer);
	if (!o || !claim || !orphan_add_entries(o, claim))
		return NULL;
	orphan_give(o, claim);
	claim_follow(claim);
	return o;
}

struct orphan *orphan_fetch(struct member *consumer, uint32_t had)
{
	struct orphan *o = consumer->as_consumer.fetched_last;
	struct search s = {LOOKS, anybody_may_fetch(consumer->channel, consumer)};
	struct member *m, *next;

	if (o && had != consumer->as_consumer.fetched)
		return o;
	o = NULL;
	/* in the order in which they came */
	for (m = TAILQ_FIRST(&consumer->channel->orphans.producers); m && !o && s.looks > 0;
	     m = next) {
		next = TAILQ_NEXT(m, as_producer.link); /* as the last one that waits may be it */
		o = fetch_of(consumer, m, &s);
	}
	return o;
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
		n += m->role == SHARE_PRODUCER && member_takes_part(m);
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
