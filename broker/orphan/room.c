/* SPDX-License-Identifier: MIT */

/*
 * Orphans that give way, as their channel does not keep them (producers.c), or to who joins. A
 * producer that is gone counts as a membership of its user's: when the user has no room for more,
 * the oldest producers go of which nothing is left but messages that wait.
 */

#include <stdlib.h>

#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/orphan/inside.h"

/* Loses a producer's messages that wait, and perhaps the producer with them. False: there was no
 * time for all of them. */
static bool lose(struct member *m, const char *why, int *budget)
{
	channel_tell_lost(m->channel, orphans_lose_waiting(m, budget), m, why);
	if (m->as_producer.n_waiting > 0)
		return false;
	*budget -= MEMBER_COST;
	member_free_if_unused(m);
	return true;
}

void orphans_leave(struct broker *b, int *budget)
{
	struct member *m;
	struct channel *ch;

	while (*budget > 0 && (m = TAILQ_FIRST(&b->channels->leaving))) {
		ch = m->channel;
		if (lose(m, "more than 64 producers have left some", budget))
			channel_end_if_unused(ch);
	}
	if (!TAILQ_EMPTY(&b->channels->leaving))
		b->channels->n_steps++;
}

/* ------------------------------------------------------------------------------------------- */
/* Room for who joins                                                                          */

/* Whether all that is left of a producer is messages that wait: nobody has any of its messages, and
 * no claim keeps it. */
static bool is_nothing_else(const struct member *m)
{
	return m->as_producer.n_owned == 0 && !claims_first(m);
}

static uint64_t would_return(const struct member *m, enum limit_kind resource)
{
	switch (resource) {
	case LIMIT_CHANNELS:
		return m->charges.membership.amount;
	case LIMIT_DESCRIPTORS:
		return m->charges.descriptors.amount;
	default:
		return m->charges.bytes.amount + m->as_producer.bytes_inherited;
	}
}

/* The producers of an account of which nothing else is left, the oldest first. */
struct candidates {
	const struct account *account;
	struct member **all;
	size_t n, room;
};

/* Adds those of a list. False without memory. */
static bool add(struct candidates *c, const struct member_list *list)
{
	struct member *m, **grown;

	TAILQ_FOREACH (m, list, as_producer.link) {
		if (m->timelines->account != c->account || !is_nothing_else(m))
			continue;
		if (c->n == c->room) {
			c->room = c->room ? 2 * c->room : PRODUCERS_MAX;
			grown = reallocarray(c->all, c->room, sizeof(struct member *));
			if (!grown)
				return false;
			c->all = grown;
		}
		c->all[c->n++] = m;
	}
	return true;
}

static int compare_members(const void *left, const void *right)
{
	const struct member *a = *(struct member *const *)left, *b = *(struct member *const *)right;

	return (a->id > b->id) - (a->id < b->id);
}

static bool find(struct broker *b, struct candidates *c)
{
	const struct channel *ch;

	if (!add(c, &b->channels->leaving))
		return false;
	TAILQ_FOREACH (ch, &b->channels->list, link)
		if (!add(c, &ch->orphans.producers))
			return false;
	if (c->n > 0)
		qsort(c->all, c->n, sizeof(struct member *), compare_members);
	return true;
}

/* Whether there would be enough room without all of them. If not, none is lost, as that would help
 * nobody. */
static bool is_enough(const struct candidates *c, enum limit_kind resource, uint64_t amount)
{
	uint64_t used = account_used(c->account, resource) + amount, returned = 0;

	for (size_t i = 0; i < c->n; i++)
		returned += would_return(c->all[i], resource);
	return used <= account_limit(c->account, resource) ||
	       used - account_limit(c->account, resource) <= returned;
}

bool orphans_give_way(struct channel *joined, const struct account *account,
		      enum limit_kind resource, uint64_t amount, int *budget)
{
	struct candidates c = {.account = account};
	bool gone = find(joined->broker, &c) && c.n > 0 && is_enough(&c, resource, amount);
	struct channel *ch;

	for (size_t i = 0;
	     gone && i < c.n && (i == 0 || !account_has_room(account, resource, amount)); i++) {
		ch = c.all[i]->channel;
		gone = lose(c.all[i], "their user has no room for more memberships", budget);
		if (ch != joined)
			channel_end_if_unused(ch);
	}
	free(c.all);
	return gone;
}
