/* SPDX-License-Identifier: MIT */

/*
 * A channel as reports show it: what it is like, who takes part, how far each has got, and what
 * those that have gone left behind.
 */

#include <jansson.h>
#include <share/channel.h>

#include "broker/channel/progress.h"
#include "broker/membership/inside.h"
#include "broker/membership/membership.h"
#include "broker/memory/pool.h"

static const char *state_name(const struct member *m)
{
	switch (m->state) {
	case MEMBER_PREPARING:
		return "preparing";
	case MEMBER_HERE:
		return "here";
	case MEMBER_LEFT:
		return "left";
	case MEMBER_GONE:
		break;
	}
	return m->role == SHARE_CONSUMER || m->as_producer.closed ? "closed" : "dead";
}

const char *channel_mode_name(uint32_t mode)
{
	return mode == CHANNEL_BROADCAST ? "broadcast" : mode == CHANNEL_QUEUE ? "queue" : "direct";
}

const char *channel_when_full_name(uint32_t when_full)
{
	return when_full == SHARE_FULL_BLOCK  ? "block"
	       : when_full == SHARE_FULL_FAIL ? "fail"
					      : "drop";
}

/* Adds a count, which may be whatever the page's owner has written there. */
static void add_count(json_t *row, const char *key, uint64_t count)
{
	json_object_set_new(row, key,
			    json_integer(count < INT64_MAX ? (json_int_t)count : INT64_MAX));
}

static json_t *member_report(struct member *m, int *looks)
{
	bool producer = m->role == SHARE_PRODUCER;
	struct progress progress = {0};
	json_t *row = json_pack("{s:I, s:I, s:I, s:s, s:s, s:b}", "member", (json_int_t)m->id,
				"client", (json_int_t)m->client_id, "pid", (json_int_t)m->pid,
				"role", producer ? "producer" : "consumer", "state", state_name(m),
				"writable", (int)(m->as_consumer.writable || producer));

	if (!producer)
		json_object_set_new(row, "latest", json_boolean(m->as_consumer.latest));
	if (producer && m->state == MEMBER_GONE && producer_has_orphans(m)) {
		add_count(row, "waiting", m->as_producer.n_waiting);
		add_count(row, "owned", m->as_producer.n_owned);
	}
	if (!member_takes_part(m))
		return row;
	*looks -= member_measure(m, &progress);
	if (producer) {
		add_count(row, "sent", progress.sent);
		add_count(row, "in_flight", progress.in_flight);
		add_count(row, "awaited", progress.awaited.messages);
		if (progress.awaited.slowest)
			add_count(row, "awaits", (uint64_t)progress.awaited.slowest);
		add_count(row, "dropped", progress.dropped);
		add_count(row, "redelivered", progress.redelivered);
		add_count(row, "set_aside", progress.set_aside);
		add_count(row, "rejected", progress.rejected);
		add_count(row, "left_behind", progress.left_behind);
	} else {
		add_count(row, "waiting", progress.waiting);
		add_count(row, "received", progress.received);
		add_count(row, "held", progress.held);
		add_count(row, "lost", progress.lost);
		add_count(row, "rejected", progress.rejected);
		add_count(row, "left_behind", progress.left_behind);
	}
	return row;
}

static json_t *members(const struct channel *ch, int *looks)
{
	json_t *list = json_array();
	struct member *m;

	for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++)
		TAILQ_FOREACH (m, &ch->members, of_channel)
			if (m->role == role)
				json_array_append_new(list, member_report(m, looks));
	return list;
}

json_t *channel_report(const struct channel *ch, int *looks)
{
	uint64_t buffers = 0, bytes = 0;
	const struct member *m;

	TAILQ_FOREACH (m, &ch->members, of_channel) {
		buffers += m->as_producer.n_inherited;
		bytes += m->as_producer.bytes_inherited;
	}
	return json_pack(
	    "{s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
	    "s:I, s:I, s:o}",
	    "channel", json_stringn(ch->name, ch->size), "pool", ch->pool->name, "mode",
	    channel_mode_name(ch->shape.mode), "when_full",
	    channel_when_full_name(ch->shape.when_full), "depth", (json_int_t)ch->shape.depth,
	    "in_flight", (json_int_t)ch->shape.in_flight, "data_max",
	    (json_int_t)ch->shape.data_max, "buffers", (json_int_t)channel_buffers(&ch->shape),
	    "history", (json_int_t)ch->shape.history, "producers",
	    (json_int_t)channel_count(ch, SHARE_PRODUCER), "producers_max",
	    (json_int_t)ch->producers, "consumers", (json_int_t)channel_count(ch, SHARE_CONSUMER),
	    "consumers_max", (json_int_t)ch->shape.consumers, "kept_buffers", (json_int_t)buffers,
	    "kept_bytes", (json_int_t)bytes, "waiting", (json_int_t)ch->orphans.waiting, "owned",
	    (json_int_t)ch->orphans.owned, "lost", (json_int_t)ch->orphans.lost, "members",
	    members(ch, looks));
}
