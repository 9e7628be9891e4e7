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
#include "broker/membership/inside.h"
#include "broker/memory/memory.h"
#include "broker/memory/segment.h"
#include "broker/pools/supply.h"

bool member_writes(const struct member *m)
{
	return m->as_consumer.writable || m->role == SHARE_PRODUCER;
}

enum access_right member_needs(const struct member *m)
{
	return member_writes(m) ? RIGHT_WRITE : RIGHT_READ;
}

bool member_may_take_part(const struct member *m)
{
	return channel_may(m->channel, m->client, member_needs(m));
}

static bool is_supplied(const struct member *m)
{
	return m->role == SHARE_CONSUMER && m->state == MEMBER_HERE && member_may_take_part(m);
}

int member_supply(struct member *m, bool *more)
{
	int r = is_supplied(m) ? pool_supply(m->channel->pool, m->client, member_writes(m)) : 0;

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
				segment_supply(s, m->client, member_writes(m));
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
