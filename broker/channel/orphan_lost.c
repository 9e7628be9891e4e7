/* SPDX-License-Identifier: MIT */

/*
 * Orphans that nobody gets. They wait for an hour without a consumer that may ask for them, and
 * count as their producer's user's: when that has no room for more memberships, its oldest ones go.
 * A channel keeps those of so many producers. What goes is counted and logged, and the next
 * consumer is told.
 *
 * There may be 64 times 8192 of them, so they go in several turns of the loop: each takes its
 * budget along, and what is left then goes in the next one.
 */

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include <share/channel.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/channel/orphan.h"
#include "broker/channel/records.h"
#include "broker/client/account.h"
#include "broker/client/client.h"
#include "broker/config/text.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"
#include "broker/memory/pools.h"
#include "broker/monitor/monitor.h"

#define DESERTED_MS   (60 * 60 * 1000)
#define LOOK_MS       1000
#define PRODUCERS_MAX 64 /* of a channel, that are gone and have any */

void channel_tell_lost(struct channel *ch, uint64_t n, const struct member *producer,
		       const char *why)
{
	const struct access_object pool = pool_object(ch->pool);
	char name[SHARE_NAME_MAX + 1], shown[SHARE_NAME_MAX + 1];
	uid_t uid = producer ? account_uid(producer->timelines->account) : LOG_UID_UNKNOWN;

	if (n == 0 || ch->broker->has_ended)
		return;
	ch->broker->counters.messages_lost += n;
	snprintf(name, sizeof(name), "%.*s", (int)ch->size, ch->name);
	log_warning_of(uid,
		       "channel '%s' loses %" PRIu64 " message%s of producers that are gone: %s",
		       text_printable(name, shown, sizeof(shown)), n, text_plural(n), why);
	if (monitors_any(ch->broker))
		monitors_tell(
		    ch->broker,
		    &(struct notice){.action = "lose-messages",
				     .what = &(struct access_object){.kind = OBJECT_CHANNEL,
								     .name = ch->name,
								     .size = ch->size,
								     .pool = &pool},
				     .uid = producer ? uid : NOTICE_NOBODY,
				     .count = n});
}

/* As many as there is time for; their number. The producer stays, though it may be unused then. */
static uint64_t lose_waiting(struct member *producer, int *budget)
{
	uint64_t n = 0;

	for (; producer->as_producer.n_waiting > 0 && *budget > 0; --*budget, n++)
		orphan_lose(TAILQ_FIRST(&producer->as_producer.waiting));
	return n;
}

/* Of producers that are gone, and of those whom @by (NULL: anybody) answers for. Their number; all,
 * if there was time for them. */
static uint64_t lose_waiting_of(struct channel *ch, const struct client *by, const char *why,
				int *budget)
{
	uint64_t n = 0;
	struct member *m, *next;

	for (m = TAILQ_FIRST(&ch->members); m && *budget > 0; m = next) {
		next = TAILQ_NEXT(m, of_channel);
		if (m->role != SHARE_PRODUCER || m->state != MEMBER_GONE ||
		    (by && !client_answers_for(by, account_uid(m->timelines->account))))
			continue;
		n += lose_waiting(m, budget);
		member_free_if_unused(m);
	}
	channel_tell_lost(ch, n, NULL, why);
	return n;
}

/* Not who has lost its connection or was expelled, nor a program with an older library, which asks
 * for none. */
bool anybody_may_fetch(const struct channel *ch, const struct member *but)
{
	const struct member *m;

	TAILQ_FOREACH (m, &ch->members, of_channel)
		if (m != but && m->role == SHARE_CONSUMER &&
		    (m->state == MEMBER_HERE || m->state == MEMBER_PREPARING) &&
		    m->client->version >= WIRE_VERSION_ORPHANS)
			return true;
	return false;
}

/* There was no time for all. */
static void look_again(struct broker *b)
{
	b->channels->looked_ms = 0;
	b->channels->n_steps++;
	channels_work_soon(b);
}

static void look(struct channel *ch, uint64_t now, int *budget)
{
	orphans_keep_few(ch, budget);
	if (ch->orphans.waiting == 0 || anybody_may_fetch(ch, NULL)) {
		ch->orphans.deserted_ms = 0;
		return;
	}
	if (ch->orphans.deserted_ms == 0)
		ch->orphans.deserted_ms = now;
	if (ch->pool->destroyed)
		lose_waiting_of(ch, NULL, "their pool was destroyed", budget);
	else if (now - ch->orphans.deserted_ms >= DESERTED_MS)
		lose_waiting_of(ch, NULL, "no consumer has come for an hour", budget);
	/* those that come now have an hour of their own */
	if (ch->orphans.waiting == 0)
		ch->orphans.deserted_ms = 0;
	channel_end_if_unused(ch);
}

void orphans_look(struct broker *b, int *budget)
{
	struct channel *ch, *next;
	uint64_t now = clock_ms();

	if (b->channels->n_orphans == 0 || now - b->channels->looked_ms < LOOK_MS)
		return;
	b->channels->looked_ms = now;
	for (ch = TAILQ_FIRST(&b->channels->list); ch && *budget > 0; ch = next) {
		next = TAILQ_NEXT(ch, link);
		look(ch, now, budget);
	}
	if (*budget <= 0)
		look_again(b);
}

/* ------------------------------------------------------------------------------------------- */
/* Room for others                                                                             */

/* All that it has left waits, and nobody has anything of it. */
static bool may_go(const struct member *m)
{
	return m->role == SHARE_PRODUCER && m->state == MEMBER_GONE &&
	       m->as_producer.n_waiting > 0 && m->as_producer.n_owned == 0 && !claims_first(m);
}

/* True if it is gone then; false: there was no time for all that it has left. */
static bool go(struct member *m, const char *why, int *budget)
{
	channel_tell_lost(m->channel, lose_waiting(m, budget), m, why);
	if (m->as_producer.n_waiting > 0)
		return false;
	member_free_if_unused(m);
	return true;
}

static bool has_left_some(const struct member *m)
{
	return m->role == SHARE_PRODUCER && m->state == MEMBER_GONE && producer_has_orphans(m);
}

/* Producers of this user. */
static uint32_t have_left_some(const struct channel *ch, const struct account *user)
{
	const struct member *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &ch->members, of_channel)
		n += has_left_some(m) && (!user || m->timelines->account == user);
	return n;
}

/* If there are more than a channel keeps: the oldest one of the user who has most, so that nobody
 * takes their places from others. NULL: there are not, or none may go. */
static struct member *one_too_many(const struct channel *ch)
{
	struct member *m, *found = NULL;
	uint32_t most = 0, n;

	if (have_left_some(ch, NULL) <= PRODUCERS_MAX)
		return NULL;
	TAILQ_FOREACH (m, &ch->members, of_channel) {
		n = may_go(m) ? have_left_some(ch, m->timelines->account) : 0;
		if (n <= most)
			continue;
		found = m;
		most = n;
	}
	return found;
}

void orphans_keep_few(struct channel *ch, int *budget)
{
	struct member *m;

	while ((m = one_too_many(ch)))
		if (!go(m, "more than 64 producers have left some", budget)) {
			look_again(ch->broker);
			return;
		}
}

static struct member *oldest_of(const struct channel *ch, const struct account *account)
{
	struct member *m;

	TAILQ_FOREACH (m, &ch->members, of_channel)
		if (m->timelines->account == account && may_go(m))
			return m;
	return NULL;
}

static uint64_t would_return(const struct member *m, enum limit_kind resource)
{
	switch (resource) {
	case LIMIT_CHANNELS:
		return m->charges.membership.amount;
	case LIMIT_DESCRIPTORS:
		return m->charges.descriptors.amount;
	default:
		return m->charges.bytes.amount + m->as_producer.bytes_kept;
	}
}

/* What nobody gets by it is not lost. */
static bool is_enough(const struct broker *b, const struct account *account,
		      enum limit_kind resource, uint64_t amount)
{
	uint64_t used = account_used(account, resource) + amount, returned = 0;
	const struct channel *ch;
	const struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link)
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (m->timelines->account == account && may_go(m))
				returned += would_return(m, resource);
	return used <= account_limit(account, resource) ||
	       used - account_limit(account, resource) <= returned;
}

bool orphans_give_way(struct channel *joined, const struct account *account,
		      enum limit_kind resource, uint64_t amount, int *budget)
{
	struct member *m = NULL, *other;
	struct channel *ch;
	bool gone;

	if (!is_enough(joined->broker, account, resource, amount))
		return false;
	TAILQ_FOREACH (ch, &joined->broker->channels->list, link) {
		other = oldest_of(ch, account);
		if (other && (!m || other->id < m->id))
			m = other;
	}
	if (!m)
		return false;
	ch = m->channel;
	gone = go(m, "their user has no room for more memberships", budget);
	if (ch != joined)
		channel_end_if_unused(ch);
	return gone;
}

/* ------------------------------------------------------------------------------------------- */

bool channel_drop_messages(struct broker *b, const void *name, size_t size, const struct client *by,
			   uint64_t *n)
{
	struct channel *ch = channel_find(b, name, size);
	int budget = CHANNELS_TURN;
	char why[64];

	*n = 0;
	if (!ch)
		return true;
	snprintf(why, sizeof(why), "user %u has ended them", (unsigned)by->peer.uid);
	*n = lose_waiting_of(ch, by, why, &budget);
	channel_end_if_unused(ch);
	return budget > 0;
}

void orphans_end_all(struct broker *b)
{
	struct channel *ch, *next;
	int budget = INT_MAX;

	for (ch = TAILQ_FIRST(&b->channels->list); ch; ch = next) {
		next = TAILQ_NEXT(ch, link);
		if (ch->orphans.waiting > 0)
			lose_waiting_of(ch, NULL, "", &budget);
		channel_end_if_unused(ch);
	}
}

void orphans_tell_lost(struct member *consumer)
{
	struct channel *ch = consumer->channel;

	if (ch->orphans.untold == 0)
		return;
	consumer->as_consumer.lost += ch->orphans.untold;
	ch->orphans.untold = 0;
	channel_note(ch);
	member_note(consumer);
}
