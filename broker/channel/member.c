/* SPDX-License-Identifier: MIT */

/*
 * Members of channels: how they come, and how they go. Each has a page that only it writes. The
 * broker only reads it, mostly when somebody goes, and finds in it whatever its owner liked.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/channel.h>

#include "base/descriptor.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/channel/orphan.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/memory/pool_object.h"
#include "broker/monitor/monitor.h"
#include "broker/order/fence.h"
#include "broker/order/order.h"
#include "pages/page.h"

/* Gives a consumer a slot. A producer needs none, as what others have of it lies in rows, which its
 * claims own. */
static int take_slot(struct channel *ch, struct member *m)
{
	uint32_t i = 0;

	while (i < ch->shape.consumers && ch->consumers[i])
		i++;
	if (i == ch->shape.consumers)
		return MEMBER_NO_SLOT;
	m->as_consumer.slot = i;
	ch->consumers[i] = m;
	return 0;
}

static void give_slot_back(struct member *m)
{
	struct member **slot = &m->channel->consumers[m->as_consumer.slot];

	if (*slot == m)
		*slot = NULL;
}

size_t member_page_size(const struct channel *ch, uint32_t role)
{
	return role == SHARE_PRODUCER ? channel_ring_size(&ch->shape, ch->layout)
				      : channel_ledger_size(&ch->shape);
}

/* Returns the memory that the broker may keep of a member's messages. It is paid for when a
 * producer comes, as nobody can be refused any more when it goes. A queue's message takes one
 * entry, as one consumer at a time has it. */
uint64_t member_own(const struct channel *ch, uint32_t role)
{
	uint64_t each = PRICE_INHERITED;

	if (channel_has_copies(&ch->shape, ch->layout))
		each += PRICE_ORPHAN + PRICE_ENTRY;
	return role == SHARE_PRODUCER ? OWN_OF_PRICE(ch->shape.in_flight * each) : 0;
}

static int make_page(struct member *m)
{
	bool ring = m->role == SHARE_PRODUCER;

	m->page.size = member_page_size(m->channel, m->role);
	if (!charge_take(&m->charges.bytes, m->client->account, LIMIT_BYTES,
			 m->page.size + CHANNEL_CONTROL_SIZE))
		return MEMBER_BYTES_QUOTA;
	m->page.fd = page_create(ring ? "share-ring" : "share-ledger", m->page.size);
	if (m->page.fd < 0)
		return m->page.fd;
	return page_map(m->page.fd, m->page.size, false, &m->page.memory);
}

static int equip(struct member *m)
{
	int r;

	if (!charge_take_with(&m->charges.membership, m->client->account, LIMIT_CHANNELS, 1,
			      member_own(m->channel, m->role)))
		return MEMBER_QUOTA;
	if (!charge_take(&m->charges.descriptors, m->client->account, LIMIT_DESCRIPTORS,
			 MEMBER_DESCRIPTORS))
		return MEMBER_NO_DESCRIPTORS;
	r = make_page(m);
	if (r != 0)
		return r;
	m->pidfd = fd_dup(m->client->peer.pidfd);
	if (m->pidfd < 0)
		return m->pidfd;
	m->doorbell = doorbell_new();
	if (m->doorbell < 0)
		return m->doorbell;
	return kept_keep((const int[]){m->page.fd, m->pidfd, m->doorbell}, NULL, 3);
}

void member_tell(const struct member *m, const char *action)
{
	const struct channel *ch = m->channel;
	const struct access_object pool = pool_object(ch->pool);

	if (monitors_any(ch->broker))
		monitors_tell(ch->broker,
			      &(struct notice){
				  .action = action,
				  .what = &(struct access_object){.kind = OBJECT_CHANNEL,
								  .name = ch->name,
								  .size = ch->size,
								  .pool = &pool},
				  .client = m->client,
				  .detail = m->role == SHARE_PRODUCER ? "producer" : "consumer"});
}

void member_detach(struct member *m)
{
	if (m->client && m->state != MEMBER_PREPARING)
		member_tell(m, "leave");
	if (m->client) {
		LIST_REMOVE(m, of_client);
		m->client->holds.memberships--;
	}
	m->client = NULL;
	if (m->record)
		member_note(m);
}

void *member_table_new(const struct member *producer)
{
	return calloc(producer->channel->shape.in_flight, sizeof(void *));
}

static void member_free(struct member *m)
{
	struct channel *ch = m->channel;

	give_slot_back(m);
	TAILQ_REMOVE(&ch->members, m, of_channel);
	producer_end_orphans(m);
	free(m->as_producer.inherited);
	page_unmap(m->page.memory, m->page.size);
	kept_close(m->page.fd);
	kept_close(m->pidfd);
	kept_close(m->doorbell);
	journal_drop(ch->broker->journal, &m->record);
	timelines_unref(m->timelines);
	charge_return(&m->charges.bytes);
	charge_return(&m->charges.descriptors);
	charge_return(&m->charges.membership);
	ch->broker->channels->n_members--;
	free(m);
}

void member_free_if_unused(struct member *m)
{
	if (m->state == MEMBER_GONE && !claims_first(m) && !producer_has_orphans(m))
		member_free(m);
}

static int try_to_join(struct channel *ch, struct client *client, uint32_t role, uint32_t flags,
		       struct member **out)
{
	struct broker *b = ch->broker;
	struct member *m;
	int r = 0;

	if (role == SHARE_PRODUCER && channel_count(ch, role) >= ch->producers)
		return MEMBER_NO_SLOT;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	b->channels->n_members++;
	m->channel = ch;
	m->client = client;
	m->client_id = client->id;
	m->pid = client->peer.pid;
	m->role = role;
	if (role == SHARE_CONSUMER) {
		m->as_consumer.writable = flags & SHARE_CHANNEL_WRITABLE;
		m->as_consumer.oldest = flags & WIRE_CHANNEL_OLDEST;
		m->as_consumer.latest = flags & SHARE_CHANNEL_LATEST;
	}
	m->page.fd = m->pidfd = m->doorbell = -1;
	m->timelines = timelines_ref(client->order->timelines);
	m->id = ++b->channels->last_member;
	LIST_INIT(&m->claims);
	TAILQ_INSERT_TAIL(&ch->members, m, of_channel);
	LIST_INSERT_HEAD(&client->members, m, of_client);
	client->holds.memberships++;
	if (role == SHARE_CONSUMER)
		r = take_slot(ch, m);
	if (r == 0)
		r = equip(m);
	if (r != 0) {
		member_detach(m);
		member_free(m);
		return r;
	}
	member_note(m);
	*out = m;
	return 0;
}

/* Whether messages of producers that are gone have given way, so that it may be tried again. */
static bool make_room(struct channel *ch, const struct account *a, uint32_t role, int error,
		      int *budget)
{
	switch (error) {
	case MEMBER_QUOTA:
		/* Where the broker's memory is missing, none are lost for that, as others might
		 * take what that gives back. */
		return !account_lacks_memory(a, LIMIT_CHANNELS) &&
		       orphans_give_way(ch, a, LIMIT_CHANNELS, 1, budget);
	case MEMBER_NO_DESCRIPTORS:
		return orphans_give_way(ch, a, LIMIT_DESCRIPTORS, MEMBER_DESCRIPTORS, budget);
	case MEMBER_BYTES_QUOTA:
		return orphans_give_way(ch, a, LIMIT_BYTES,
					member_page_size(ch, role) + CHANNEL_CONTROL_SIZE, budget);
	default:
		return false;
	}
}

/* Messages of producers that are gone give way to who joins. The channel itself stays, though it
 * may have no other member. */
int member_new(struct channel *ch, struct client *client, uint32_t role, uint32_t flags,
	       struct member **out)
{
	int budget = CHANNELS_TURN;
	int r = try_to_join(ch, client, role, flags, out);

	while (make_room(ch, client->account, role, r, &budget))
		r = try_to_join(ch, client, role, flags, out);
	return r != 0 && budget <= 0 ? MEMBER_LATER : r;
}

/* The claims are there before anybody can know of the newcomer, so that whatever is sent from then
 * on is some claim's. */
int member_ready(struct member *m)
{
	int r = claims_make(m);

	if (r == 0)
		r = page_seal(m->page.fd);
	if (r < 0) {
		claims_unmake(m);
		return r;
	}
	m->state = MEMBER_HERE;
	member_note(m);
	member_tell(m, "join");
	channel_changed(m->channel, m->role);
	if (m->role == SHARE_PRODUCER && claims_expel(m))
		channel_changed(m->channel, SHARE_CONSUMER);
	return 0;
}

struct member *member_find(const struct client *client, uint64_t id)
{
	struct member *m;

	LIST_FOREACH (m, &client->members, of_client)
		if (m->id == id)
			return m;
	return NULL;
}

/* ------------------------------------------------------------------------------------------- */

/* Frees a member that was never ready, of which nobody is told. */
static void forget(struct member *m)
{
	struct channel *ch = m->channel;

	member_detach(m);
	member_free(m);
	channel_end_if_unused(ch);
}

static void tell_if_left_behind(struct member *m)
{
	for (struct claim *claim = claims_first(m); claim; claim = claims_next(m, claim))
		claim_tell_left_behind(claim);
}

static void consumer_goes(struct member *m)
{
	struct channel *ch = m->channel;

	tell_if_left_behind(m);
	m->state = MEMBER_GONE;
	member_detach(m);
	give_slot_back(m);
	m->doorbell = kept_close(m->doorbell);
	m->pidfd = kept_close(m->pidfd);
	member_note(m);
	claims_are_over(m);
	channel_changed(ch, SHARE_CONSUMER);
	member_free_if_unused(m);
	channel_end_if_unused(ch);
}

bool member_close(struct member *m, uint32_t serial)
{
	if (m->state == MEMBER_PREPARING) {
		forget(m);
		return true;
	}
	if (m->role == SHARE_CONSUMER) {
		consumer_goes(m);
		return true;
	}
	m->as_producer.closed = true; /* member_take_over_later() notes that, too */
	member_take_over_later(m, serial);
	return false;
}

void members_leave(struct client *c)
{
	struct member *m = LIST_FIRST(&c->members), *next;

	for (; m; m = next) {
		next = LIST_NEXT(m, of_client);
		if (m->state == MEMBER_PREPARING) {
			forget(m);
		} else if (m->state == MEMBER_HERE) {
			if (m->role == SHARE_CONSUMER)
				tell_if_left_behind(m);
			m->state = MEMBER_LEFT;
			member_note(m);
			m->channel->left |= 1u << m->role;
		}
	}
	/* the others hear of it once, however many members of theirs the client was */
	LIST_FOREACH (m, &c->members, of_client) {
		uint32_t role = m->channel->left & 1u << m->role;

		m->channel->left &= ~role;
		if (role)
			channel_changed(m->channel, m->role);
	}
}

bool members_end(struct client *c, int *budget)
{
	struct member *m;

	while ((m = LIST_FIRST(&c->members))) {
		if (*budget <= 0)
			return false;
		if (c->requests.goodbye && !m->as_producer.closed) {
			m->as_producer.closed = true;
			member_note(m);
		}
		if (m->state == MEMBER_PREPARING)
			forget(m);
		else if (m->role == SHARE_CONSUMER)
			consumer_goes(m);
		else if (!member_take_over(m, budget))
			return false;
		*budget -= MEMBER_COST;
	}
	return true;
}
