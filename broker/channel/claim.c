/* SPDX-License-Identifier: MIT */

/*
 * Claims as they are found: in the lists of their members, and of those that the loop looks at. How
 * they come and go is in claim_life.c.
 */

#include <stdlib.h>

#include <share/channel.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/journal/journal.h"

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

void claim_unfollow(struct claim *claim)
{
	struct channels *channels = claim->producer->channel->broker->channels;

	if (!claim->followed)
		return;
	TAILQ_REMOVE(&channels->claims, claim, link);
	channels->n_followed--;
	claim->followed = false;
}

void claim_free(struct claim *claim)
{
	claim_unfollow(claim);
	account_give_back(claim->consumer->timelines->account, PRICE_CLAIM);
	claim->producer->channel->broker->channels->n_steps++;
	LIST_REMOVE(claim, of_producer);
	LIST_REMOVE(claim, of_consumer);
	claim->consumer->as_consumer.rows &= ~(UINT64_C(1) << claim->row);
	journal_drop(claim->producer->channel->broker->journal, &claim->record);
	free(claim);
}

void claim_attach(struct claim *claim)
{
	claim->consumer->as_consumer.rows |= UINT64_C(1) << claim->row;
	TAILQ_INIT(&claim->entries);
	LIST_INSERT_HEAD(&claim->producer->claims, claim, of_producer);
	LIST_INSERT_HEAD(&claim->consumer->claims, claim, of_consumer);
	account_must_add(claim->consumer->timelines->account, PRICE_CLAIM);
}

void claim_follow(struct claim *claim)
{
	struct broker *b = claim->producer->channel->broker;

	claim_unfollow(claim);
	TAILQ_INSERT_HEAD(&b->channels->claims, claim, link);
	b->channels->n_followed++;
	claim->followed = true;
	channels_work_soon(b);
}
