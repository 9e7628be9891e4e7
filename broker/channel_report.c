/* SPDX-License-Identifier: MIT */

/* A channel as reports show it: what it is like, who takes part, and what those that have gone left
 * behind. */

#include <jansson.h>
#include <share/channel.h>

#include "broker/channel.h"
#include "broker/pool.h"

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
	return m->role == SHARE_CONSUMER || m->closed ? "closed" : "dead";
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

/* Those with a slot: of both roles, at most twice CHANNEL_MEMBERS_MAX. */
static json_t *members(const struct channel *ch)
{
	json_t *list = json_array();

	for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
		for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
			const struct member *m = ch->slots[role - 1][i];

			if (m)
				json_array_append_new(
				    list,
				    json_pack(
					"{s:I, s:I, s:s, s:I, s:s, s:b}", "client",
					(json_int_t)m->client_id, "pid", (json_int_t)m->pid, "role",
					role == SHARE_PRODUCER ? "producer" : "consumer", "slot",
					(json_int_t)i, "state", state_name(m), "writable",
					(int)(m->writable || role == SHARE_PRODUCER)));
		}
	}
	return list;
}

json_t *channel_report(const struct channel *ch)
{
	uint64_t buffers = 0, bytes = 0;
	const struct member *m;

	LIST_FOREACH (m, &ch->members, of_channel)
		if (m->estate)
			estate_measure(m->estate, &buffers, &bytes);
	return json_pack("{s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			 "channel", json_stringn(ch->name, ch->size), "pool", ch->pool->name,
			 "mode", channel_mode_name(ch->shape.mode), "when_full",
			 channel_when_full_name(ch->shape.when_full), "depth",
			 (json_int_t)ch->shape.depth, "in_flight", (json_int_t)ch->shape.in_flight,
			 "data_max", (json_int_t)ch->shape.data_max, "producers",
			 (json_int_t)channel_count(ch, SHARE_PRODUCER), "producers_max",
			 (json_int_t)ch->producers, "consumers",
			 (json_int_t)channel_count(ch, SHARE_CONSUMER), "consumers_max",
			 (json_int_t)ch->shape.consumers, "estate_buffers", (json_int_t)buffers,
			 "estate_bytes", (json_int_t)bytes, "members", members(ch));
}
