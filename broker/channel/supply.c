/* SPDX-License-Identifier: MIT */

/*
 * Messages are to be received without the broker. So a consumer has the segments of its channel's
 * pool before a message can lie in them. It gets those that there are with its first CHANNEL_SYNC,
 * and each further one as soon as it is made, before anybody gets a buffer in it. As nobody is
 * waited for, only so much is sent as a socket takes that its owner does not read; the rest is left
 * to the next CHANNEL_SYNC, for which the epoch asks.
 */

#include <errno.h>

#include <share/channel.h>

#include "broker/broker.h"
#include "broker/channel/inside.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/memory/adopted.h"
#include "broker/memory/memory.h"
#include "broker/memory/pool.h"
#include "broker/memory/segment.h"

static bool writes(const struct member *m)
{
	return m->as_consumer.writable || m->role == SHARE_PRODUCER;
}

enum access_right member_needs(const struct member *m)
{
	return writes(m) ? RIGHT_WRITE : RIGHT_READ;
}

bool member_may_take_part(const struct member *m)
{
	return channel_may(m->channel, m->client, member_needs(m));
}

int member_grant(struct member *m, struct segment *s, struct wire_message *out, int *fd)
{
	bool writable = writes(m);

	int r = segment_offer(s, m->client, writable, fd);

	if (r < 0)
		return r;
	out->type = WIRE_GRANT;
	out->grant = (struct wire_grant){
	    .segment = segment_id(s),
	    .segment_size = s->memory.recipe.size,
	    .pool = s->pool->id,
	    .mode = writable ? SHARE_RDWR : SHARE_RDONLY,
	    .kind = kind_of_segment(s)->id,
	    .flags = *fd >= 0 ? WIRE_GRANT_SEGMENT : 0u,
	};
	if (*fd >= 0)
		out->grant.recipe =
		    (struct wire_bytes){segment_recipe(s, m->client), sizeof(struct memory_recipe)};
	return 0;
}

/* Sends a member a segment. 0 also when it has the segment, may not have it, or cannot pay for it:
 * it asks for it when a message lies there, and is told then why not. -EAGAIN when it could not be
 * sent now, or -ENOMEM. */
static int offer(struct member *m, struct segment *s)
{
	struct wire_message grant = {.serial = 0};
	int fd, r = member_grant(m, s, &grant, &fd);

	if (r == -EDQUOT || r == -EACCES || (r == 0 && fd < 0))
		return 0;
	if (r < 0)
		return r;
	if (!client_offer(m->client, &grant, &fd, 1))
		return -EAGAIN;
	segment_sent(s, m->client, grant.grant.mode == SHARE_RDWR);
	return 0;
}

static bool is_supplied(const struct member *m)
{
	return m->role == SHARE_CONSUMER && m->state == MEMBER_HERE && member_may_take_part(m);
}

int member_supply(struct member *m, bool *more)
{
	struct segment *s;
	int r = 0;

	if (!is_supplied(m))
		return 0;
	LIST_FOREACH (s, &m->channel->pool->extent.segments, link) {
		if (s->state == SEGMENT_ACTIVE)
			r = offer(m, s);
		if (r < 0)
			break;
	}
	*more |= r == -EAGAIN;
	return r == -EAGAIN ? 0 : r;
}

static void on_segment_added(struct broker *b, struct segment *s)
{
	struct channel *ch;
	struct member *m;

	TAILQ_FOREACH (ch, &b->channels->list, link) {
		if (ch->pool != s->pool)
			continue;
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (is_supplied(m))
				offer(m, s);
		channel_changed(ch, SHARE_PRODUCER);
	}
}

static void on_segment_retired(struct broker *b, const struct segment *s)
{
	struct channel *ch;

	TAILQ_FOREACH (ch, &b->channels->list, link)
		if (ch->pool == s->pool)
			channel_changed(ch, SHARE_PRODUCER);
}

void supply_start(struct memory *memory)
{
	memory->on_segment_added = on_segment_added;
	memory->on_segment_retired = on_segment_retired;
}
