/* SPDX-License-Identifier: MIT */

/*
 * How channels are made, and how members come. Each has a page that only it writes. The broker only
 * reads it, mostly when somebody goes, and finds in it whatever its owner liked.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "base/system/descriptor.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/keeper/kept.h"
#include "broker/membership/inside.h"
#include "broker/order/order.h"
#include "broker/orphan/orphan.h"
#include "pages/page.h"

static int make_control(struct channel *ch)
{
	void *page;
	int r;

	ch->control_fd = page_create("share-channel", CHANNEL_CONTROL_SIZE);
	if (ch->control_fd < 0)
		return ch->control_fd;
	r = page_map(ch->control_fd, CHANNEL_CONTROL_SIZE, true, &page);
	if (r == 0) {
		ch->control = page;
		/* this comes before the seal, as nobody can map the page for writing afterwards */
		r = kept_keep(&ch->control_fd, &(size_t){CHANNEL_CONTROL_SIZE}, 1);
	}
	if (r == 0)
		r = page_seal(ch->control_fd);
	return r;
}

int channel_new(struct broker *b, const void *name, size_t size, struct pool *pool,
		const struct channel_shape *shape, uint32_t producers, bool service,
		struct channel **out)
{
	struct channel *ch = calloc(1, sizeof(*ch) + size + 1);
	int r;

	if (!ch)
		return -ENOMEM;
	r = make_control(ch);
	if (r < 0) {
		channel_free(ch);
		return r;
	}
	ch->id = ++b->channels->last_channel;
	ch->shape = *shape;
	/* requests and answers of a service end with who has sent them, so there are no copies
	 * of them */
	ch->layout = service ? CHANNEL_WITHOUT_COPIES : CHANNEL_WITH_COPIES;
	ch->service = service;
	ch->producers = producers;
	memcpy(ch->name, name, size);
	ch->size = size;
	channel_attach(b, ch, pool);
	channel_note(ch);
	*out = ch;
	return 0;
}

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

static int make_page(struct member *m)
{
	bool ring = m->role == SHARE_PRODUCER;

	m->page.fd = page_create(ring ? "share-ring" : "share-ledger", m->page.size);
	if (m->page.fd < 0)
		return m->page.fd;
	return page_map(m->page.fd, m->page.size, false, &m->page.memory);
}

static int equip(struct member *m)
{
	int r;

	m->page.size = member_page_size(m->channel, m->role);
	r = member_charge(m);
	if (r == 0)
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

static int try_to_join(struct channel *ch, struct client *client, uint32_t role, uint32_t flags,
		       struct member **out)
{
	struct member *m;
	int r = 0;

	if (role == SHARE_PRODUCER && channel_count(ch, role) >= ch->producers)
		return MEMBER_NO_SLOT;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
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
	m->id = ++ch->broker->channels->last_member;
	member_attach(m);
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
