/* SPDX-License-Identifier: MIT */

/* Members of channels as objects: who is told of them, and what is freed with them. How they come
 * is in join.c, and how they go in leave.c. */

#include <stdlib.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/channel/member.h"
#include "broker/channel/records.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "broker/keeper/kept.h"
#include "broker/monitor/monitor.h"
#include "pages/page.h"

void member_give_slot_back(struct member *m)
{
	struct member **slot = &m->channel->consumers[m->as_consumer.slot];

	if (*slot == m)
		*slot = NULL;
}

void member_tell(const struct member *m, const char *action)
{
	const struct channel *ch = m->channel;
	struct access_object pool;
	const struct access_object what = channel_object(ch, &pool);

	if (monitors_any(ch->broker))
		monitors_tell(ch->broker,
			      &(struct notice){.action = action,
					       .what = &what,
					       .client = m->client,
					       .detail = m->role == SHARE_PRODUCER ? "producer"
										   : "consumer"});
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

void member_free(struct member *m)
{
	struct channel *ch = m->channel;

	member_give_slot_back(m);
	TAILQ_REMOVE(&ch->members, m, of_channel);
	free(m->as_producer.orphans);
	producer_forget_acknowledged(m);
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

bool producer_has_orphans(const struct member *producer)
{
	return producer->as_producer.n_waiting + producer->as_producer.n_owned > 0;
}

void member_free_if_unused(struct member *m)
{
	if (m->state == MEMBER_GONE && LIST_EMPTY(&m->claims) && !producer_has_orphans(m))
		member_free(m);
}

struct member *member_find(const struct client *client, uint64_t id)
{
	struct member *m;

	LIST_FOREACH (m, &client->members, of_client)
		if (m->id == id)
			return m;
	return NULL;
}
