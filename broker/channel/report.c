/* SPDX-License-Identifier: MIT */

/*
 * A channel as reports show it: what it is like, who takes part, how far each has got, and what
 * those that have gone left behind; and what the log says of its members.
 *
 * How far somebody has got is read from pages that their owners write as they like, and in which
 * they also count what only they know: it is for people to look at, and nothing here may believe it
 * further than to show it.
 */

#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>
#include <share/channel.h>

#include "base/clock.h"
#include "base/text.h"
#include "broker/broker.h"
#include "broker/channel/orphan.h"
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
/* How far they have got                                                                       */

static bool takes_part(const struct member *m)
{
	return m->state == MEMBER_HERE || m->state == MEMBER_LEFT;
}

/*
 * Of a producer: messages that it has put into its lanes, those whose memory is not back, what it
 * has counted itself, and what it waits for. Of a consumer: messages that wait for it, those that
 * it has received, those of these that it has not acknowledged, those that it has given back, those
 * that were dropped before it came to them, and how many producers have left it behind.
 */
struct awaited {
	uint64_t messages; /* that consumers have yet to receive or to acknowledge */
	uint64_t consumers;
	pid_t slowest; /* of these, the one with most; 0: there is none */
};

struct progress {
	uint64_t sent, in_flight, dropped, redelivered, set_aside, rejected;
	uint64_t waiting, received, held, lost;
	uint64_t left_behind;
	struct awaited awaited;
};

static uint64_t count_of(const _Atomic uint64_t *count)
{
	return atomic_load_explicit(count, memory_order_relaxed);
}

static void look_at_ring(struct member *producer, struct progress *out)
{
	const struct channel_ring *ring = producer->page.memory;
	const struct channel_lane *lane =
	    channel_lane_at(producer->page.memory, &producer->channel->shape, 0);

	if (member_unwritten(producer, ring) > 0)
		return;
	out->dropped = count_of(&ring->dropped);
	out->redelivered = count_of(&ring->redelivered);
	out->set_aside = count_of(&ring->set_aside);
	out->rejected = count_of(&ring->rejected);
	out->left_behind = count_of(&ring->left_behind);
	if (member_unwritten(producer, lane) == 0)
		out->in_flight = atomic_load_explicit(&lane->in_flight, memory_order_relaxed);
	for (uint32_t i = 0; i < channel_lanes(&producer->channel->shape); i++) {
		lane = channel_lane_at(producer->page.memory, &producer->channel->shape, i);
		if (member_unwritten(producer, lane) == 0)
			out->sent += count_of(&lane->tail);
	}
}

static void look_at_ledger(struct member *consumer, struct progress *out)
{
	const struct channel_ledger *ledger = consumer->page.memory;
	uint64_t received, acknowledged;

	if (member_unwritten(consumer, ledger) > 0)
		return;
	/* in this order: it may acknowledge something just now */
	acknowledged = count_of(&ledger->acknowledged);
	received = count_of(&ledger->received);
	out->received = received;
	out->held = received > acknowledged ? received - acknowledged : 0;
	out->lost = count_of(&ledger->lost);
	out->rejected = count_of(&ledger->rejected);
}

/* How far the consumer of a claim has got with its producer. */
static void compare(const struct claim *claim, struct progress *out)
{
	struct member *producer = claim->producer, *consumer = claim->consumer;
	const struct channel_shape *shape = &producer->channel->shape;
	uint32_t slot = consumer->as_consumer.slot;
	const struct channel_lane *lane =
	    channel_lane_at(producer->page.memory, shape, channel_lane_of(shape, slot));
	const struct channel_admission *admission =
	    channel_admission_at(producer->page.memory, shape, slot);
	const struct channel_row *row = channel_row_at(consumer->page.memory, shape, claim->row);
	uint64_t start, next, head, tail;

	if (!claim_is_admitted(claim) || member_unwritten(producer, lane) > 0)
		return;
	if (count_of(&admission->left_behind) == consumer->id) {
		out->left_behind++;
		return;
	}
	start = next = count_of(&admission->start);
	if (member_unwritten(consumer, row) == 0 &&
	    atomic_load_explicit(&row->producer, memory_order_acquire) == producer->id)
		next = atomic_load_explicit(&row->taken, memory_order_acquire);
	tail = atomic_load_explicit(&lane->tail, memory_order_acquire);
	head = count_of(&lane->head);
	if (next < start)
		next = start;
	if (head < next) /* else what is between them was dropped */
		head = next;
	if (consumer->as_consumer.latest)
		out->waiting += tail > head && tail > count_of(&admission->head);
	else if (tail > head)
		out->waiting += tail - head < shape->depth ? tail - head : shape->depth;
}

uint64_t claim_unreceived(const struct claim *claim)
{
	struct progress progress = {0};

	compare(claim, &progress);
	/* that it was left behind it has yet to learn */
	return progress.waiting + progress.left_behind;
}

uint64_t member_held(struct member *consumer)
{
	struct progress progress = {0};

	look_at_ledger(consumer, &progress);
	return progress.held;
}

/* @what ends with "in", as the channel's name follows. */
static void tell(const struct member *m, const char *action, const char *what, const char *why)
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
	tell(consumer, "left-behind", "is left behind in", why);
}

/* Its producer does not wait for the consumer any more, and says so in its ring alone. */
bool claim_is_left_behind(const struct claim *claim)
{
	const struct channel_admission *a =
	    channel_admission_at(claim->producer->page.memory, &claim->producer->channel->shape,
				 claim->consumer->as_consumer.slot);

	return claim_is_admitted(claim) &&
	       atomic_load_explicit(&a->left_behind, memory_order_relaxed) == claim->consumer->id;
}

void claim_tell_left_behind(const struct claim *claim)
{
	/* once: afterwards it is one of these; and producers leave everybody whose connection has
	 * ended */
	if (!claim->taken && !claim->over && claim->consumer->state == MEMBER_HERE &&
	    claim_is_left_behind(claim))
		member_tell_left_behind(claim->consumer, "it kept a producer waiting for too long");
}

/*
 * In a broadcast, of which each has the same yet to come, those are waited for that have most.
 * Otherwise each has its own, and what no lane has room for waits for all of them. Consumers count
 * what they hold of all producers together, so with several of these it may be less.
 *
 * Returns how many places it has looked at.
 */
static int look_at_consumers(const struct member *producer, struct progress *out)
{
	bool broadcast = producer->channel->shape.mode == CHANNEL_BROADCAST, has_room = false;
	struct awaited *a = &out->awaited;
	struct claim *claim;
	uint64_t most = 0;
	int looks = 0;

	for (claim = claims_first(producer); claim; claim = claims_next(producer, claim), looks++) {
		struct progress one = {0};
		uint64_t n;

		if (!takes_part(claim->consumer) || !claim_is_admitted(claim) ||
		    claim->consumer->as_consumer.latest)
			continue;
		compare(claim, &one);
		if (one.left_behind > 0)
			continue;
		has_room |= broadcast || one.waiting < producer->channel->shape.depth;
		n = one.waiting + member_held(claim->consumer);
		a->consumers += n > 0;
		a->messages = !broadcast ? a->messages + n : n > a->messages ? n : a->messages;
		if (n > most)
			a->slowest = claim->consumer->pid;
		most = n > most ? n : most;
	}
	if (!has_room || a->messages > out->in_flight)
		a->messages = out->in_flight;
	return looks;
}

/* Returns how many places it has looked at. */
static int measure(struct member *m, struct progress *out)
{
	struct claim *claim;
	int looks = 1;

	if (m->role == SHARE_PRODUCER) {
		look_at_ring(m, out);
		return looks + look_at_consumers(m, out);
	}
	look_at_ledger(m, out);
	for (claim = claims_first(m); claim; claim = claims_next(m, claim), looks++)
		if (takes_part(claim->producer))
			compare(claim, out);
	return looks;
}

/* That it waits is its word, and who is waited for that of pages: more often than once a second it
 * cannot be true. */
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
	measure(producer, &progress);
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
	tell(producer, "stall", "has waited for more than a second for room in", why);
}

/* ------------------------------------------------------------------------------------------- */

/* Whatever its owner has written there. */
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
	if (!takes_part(m))
		return row;
	*looks -= measure(m, &progress);
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
		buffers += m->as_producer.n_kept;
		bytes += m->as_producer.bytes_kept;
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
