/* SPDX-License-Identifier: MIT */

/*
 * A channel as reports show it: what it is like, who takes part, how far each has got, and what
 * those that have gone left behind; and what the log says of its members.
 */

#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>
#include <share/channel.h>

#include "base/clock.h"
#include "base/text.h"
#include "broker/broker.h"
#include "broker/channel/orphan.h"
#include "broker/channel/progress.h"
#include "broker/client/client.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"

#define STALL_MS 1000

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

/* ------------------------------------------------------------------------------------------- */
/* What the log says of members                                                                */

/* Logs and tells what happens to a member. @what ends with "in", as the channel's name follows. */
static void tell_and_log(const struct member *m, const char *action, const char *what,
			 const char *why)
{
	const struct channel *ch = m->channel;
	struct log_client who = client_in_log(m->client);
	char name[SHARE_NAME_MAX + 1], shown[SHARE_NAME_MAX + 1];

	snprintf(name, sizeof(name), "%.*s", (int)ch->size, ch->name);
	log_in_channel(&who, what, text_printable(name, shown, sizeof(shown)), why);
	member_tell(m, action);
}

void member_tell_left_behind(struct member *consumer, const char *why)
{
	struct broker *b = consumer->channel->broker;

	if (!consumer->client || b->has_ended)
		return;
	b->counters.left_behind++;
	tell_and_log(consumer, "left-behind", "is left behind in", why);
}

void claim_tell_left_behind(const struct claim *claim)
{
	/* This is said only once, as the claim is taken over or over afterwards. It is not said of
	 * a consumer whose connection has ended, as producers leave each of those behind. */
	if (!claim->taken && !claim->over && claim->consumer->state == MEMBER_HERE &&
	    claim_is_left_behind(claim))
		member_tell_left_behind(claim->consumer, "it kept a producer waiting for too long");
}

/* That the producer waits only it says, and for whom pages say. It can be true once a second at
 * most, as a producer says so when it has waited for a second. */
void member_tell_stalled(struct member *producer)
{
	uint64_t now = clock_ms();
	struct progress progress = {0};
	const struct awaited *a = &progress.awaited;
	char others[64] = "", why[160];

	if (producer->as_producer.stalled_ms && now < producer->as_producer.stalled_ms + STALL_MS)
		return;
	producer->as_producer.stalled_ms = now;
	producer->channel->broker->counters.stalls++;
	member_measure(producer, &progress);
	if (a->consumers > 1)
		snprintf(others, sizeof(others), ", and %" PRIu64 " other%s", a->consumers - 1,
			 a->consumers > 2 ? "s have less" : " has less");
	if (a->slowest)
		snprintf(why, sizeof(why), "process %d has most to receive or to acknowledge%s",
			 (int)a->slowest, others);
	else
		snprintf(why, sizeof(why),
			 channel_count(producer->channel, SHARE_CONSUMER) == 0
			     ? "there is no consumer"
			     : "work on messages that were acknowledged is not done");
	tell_and_log(producer, "stall", "has waited for more than a second for room in", why);
}

/* ------------------------------------------------------------------------------------------- */

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
