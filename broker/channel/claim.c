/* SPDX-License-Identifier: MIT */

/*
 * Claims as they are found: in the lists of their members, and of those that the loop looks at. How
 * they come and go is in claim_life.c. And members, as they come into the lists in which they are
 * found, new or read from their records.
 */

#include <stdlib.h>

#include <share/channel.h>

#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "pages/channel_page.h"

void member_attach(struct member *m)
{
	m->channel->broker->channels->n_members++;
	LIST_INIT(&m->claims);
	TAILQ_INSERT_TAIL(&m->channel->members, m, of_channel);
	if (!m->client)
		return;
	LIST_INSERT_HEAD(&m->client->members, m, of_client);
	m->client->holds.memberships++;
}

/* Returns the memory that the broker may keep of a member's messages. It is paid for when a
 * producer comes, as nobody can be refused any more when it goes. A queue's message takes one
 * entry, as one consumer at a time has it. */
static uint64_t own_memory(const struct member *m)
{
	const struct channel *ch = m->channel;
	uint64_t each = PRICE_INHERITED;

	if (channel_has_copies(&ch->shape, ch->layout))
		each += PRICE_ORPHAN + PRICE_ENTRY;
	return m->role == SHARE_PRODUCER ? OWN_OF_PRICE(ch->shape.in_flight * each) : 0;
}

int member_charge(struct member *m)
{
	struct account *a = m->timelines->account;

	if (!charge_take_with(&m->charges.membership, a, LIMIT_CHANNELS, 1, own_memory(m)))
		return MEMBER_QUOTA;
	if (!charge_take(&m->charges.descriptors, a, LIMIT_DESCRIPTORS, MEMBER_DESCRIPTORS))
		return MEMBER_NO_DESCRIPTORS;
	if (!charge_take(&m->charges.bytes, a, LIMIT_BYTES, m->page.size + CHANNEL_CONTROL_SIZE))
		return MEMBER_BYTES_QUOTA;
	return 0;
}

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
