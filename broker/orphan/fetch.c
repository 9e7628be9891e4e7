/* SPDX-License-Identifier: MIT */

/*
 * Orphans that wait, and those who fetch them. A consumer that has nothing else to receive gets one
 * at a time. Whose it is is committed to the journal before the answer (R9), and the answer is
 * given again until the consumer counts it among those that it had.
 */

#include <share/channel.h>

#include "base/clock.h"
#include "broker/channel/progress.h"
#include "broker/orphan/inside.h"

#define LEFT_TO_OTHERS_MS 1000

/* What is known while one request is answered. */
struct search {
	int looks;       /* how many entries and messages may still be looked at */
	bool has_others; /* others may get what this consumer has given back */
};
#define LOOKS 4096 /* about as long as a request */

/* Whether the claim still has an entry for one of the orphan's tickets, of this version or another
 * one: the ticket's one word in the row would be about both messages. Only a consumer has such
 * entries that was left behind or has given the message back. */
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

/* Whether the consumer leaves the message to others, as it has given it back. It does so for a
 * while and not for ever, as those may hang. */
static bool is_left_to_others(const struct orphan *o, const struct member *consumer,
			      const struct search *s)
{
	return o->rejected_by == consumer->id && s->has_others &&
	       clock_ms() - o->rejected_ms < LEFT_TO_OTHERS_MS;
}

/* Finds an orphan of this producer for the consumer. At least the first one is looked at, even when
 * no looks are left. */
static struct orphan *choose_orphan(struct member *producer, const struct member *consumer,
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

/* Gives the consumer an orphan of this producer. NULL: there is none for it, or no memory or row. A
 * claim that is over has to end before there is another one. */
static struct orphan *fetch_of(struct member *consumer, struct member *producer, struct search *s)
{
	struct claim *claim = claim_find(producer, consumer->id);
	struct orphan *o =
	    claim && claim->over ? NULL : choose_orphan(producer, consumer, claim, s);

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
	/* the producer that came first is the first one here */
	for (m = TAILQ_FIRST(&consumer->channel->orphans.producers); m && !o && s.looks > 0;
	     m = next) {
		/* the producer leaves the list with its last orphan that waits */
		next = TAILQ_NEXT(m, as_producer.link);
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
	/* a consumer may know that a producer is gone before the broker does */
	TAILQ_FOREACH (m, &ch->members, of_channel)
		n += m->role == SHARE_PRODUCER && member_takes_part(m);
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* A fence that does not exist counts as not reached: that is left to the consumer that waits for
 * it. */
bool orphan_is_reached(const struct orphan *o)
{
	struct timelines *t = o->producer->timelines;
	struct copy copy;

	if (!copy_ask(o->producer, o->ticket, &copy) || copy.timeline == 0)
		return true;
	return copy.timeline < TIMELINE_SLOTS &&
	       fence_query(&(struct fence){
		   .timelines = t, .slot = copy.timeline, .value = copy.value}) == TIMELINE_REACHED;
}
