/* SPDX-License-Identifier: MIT */

/*
 * A channel as reports show it: what it is like, who takes part, how far each has got, and what
 * those that have gone left behind.
 *
 * How far somebody has got is read from pages that their owners write as they like, and in which
 * they also count what only they know: it is for people to look at, and nothing here may believe it
 * further than to show it.
 */

#include <jansson.h>
#include <share/channel.h>

#include "broker/channel/inside.h"
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

/* ------------------------------------------------------------------------------------------- */
/* How far they have got                                                                       */

/*
 * Of a producer: messages whose memory is not back, and what it has counted itself. Of a consumer:
 * messages that wait for it, those that it has received and not acknowledged, those that were
 * dropped before it came to them, and how many producers have left it behind.
 */
struct progress {
	uint64_t in_flight, dropped, redelivered, set_aside;
	uint64_t waiting, held, lost;
	uint64_t left_behind;
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
	out->left_behind = count_of(&ring->left_behind);
	if (member_unwritten(producer, lane) == 0)
		out->in_flight = atomic_load_explicit(&lane->in_flight, memory_order_relaxed);
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
	out->held = received > acknowledged ? received - acknowledged : 0;
	out->lost = count_of(&ledger->lost);
}

static void compare(struct member *producer, struct member *consumer, struct progress *out)
{
	const struct channel_shape *shape = &producer->channel->shape;
	uint32_t number = channel_lane_of(shape, consumer->slot);
	const struct channel_lane *lane = channel_lane_at(producer->page.memory, shape, number);
	const struct channel_admission *admission =
	    channel_admission_at(producer->page.memory, shape, consumer->slot);
	const struct channel_row *row =
	    channel_row_at(consumer->page.memory, shape, producer->slot);
	uint64_t start, next, head, tail;

	if (member_unwritten(producer, admission) > 0 || member_unwritten(producer, lane) > 0 ||
	    atomic_load_explicit(&admission->consumer, memory_order_acquire) != consumer->id)
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
	if (tail > head)
		out->waiting += tail - head < shape->depth ? tail - head : shape->depth;
}

uint64_t member_unreceived(struct member *producer, struct member *consumer)
{
	struct progress progress = {0};

	compare(producer, consumer, &progress);
	return progress.waiting;
}

static struct member *taking_part(const struct channel *ch, uint32_t role, uint32_t slot)
{
	struct member *m = ch->slots[role - 1][slot];

	return m && m->state != MEMBER_PREPARING && m->state != MEMBER_GONE ? m : NULL;
}

/* Returns how many places it has looked at. */
static int measure(const struct channel *ch, struct progress out[2][CHANNEL_MEMBERS_MAX])
{
	int looks = 0;

	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		struct member *c = taking_part(ch, SHARE_CONSUMER, i);

		if (!c)
			continue;
		look_at_ledger(c, &out[SHARE_CONSUMER - 1][i]);
		looks++;
		for (uint32_t k = 0; k < CHANNEL_MEMBERS_MAX; k++) {
			struct member *p = taking_part(ch, SHARE_PRODUCER, k);

			if (p)
				compare(p, c, &out[SHARE_CONSUMER - 1][i]);
			looks += p != NULL;
		}
	}
	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		struct member *p = taking_part(ch, SHARE_PRODUCER, i);

		if (p)
			look_at_ring(p, &out[SHARE_PRODUCER - 1][i]);
		looks += p != NULL;
	}
	return looks;
}

/* ------------------------------------------------------------------------------------------- */

/* Whatever its owner has written there. */
static void add_count(json_t *row, const char *key, uint64_t count)
{
	json_object_set_new(row, key,
			    json_integer(count < INT64_MAX ? (json_int_t)count : INT64_MAX));
}

static json_t *member_report(const struct member *m, const struct progress *progress)
{
	bool producer = m->role == SHARE_PRODUCER;
	json_t *row =
	    json_pack("{s:I, s:I, s:s, s:I, s:s, s:b}", "client", (json_int_t)m->client_id, "pid",
		      (json_int_t)m->pid, "role", producer ? "producer" : "consumer", "slot",
		      (json_int_t)m->slot, "state", state_name(m), "writable",
		      (int)(m->as_consumer.writable || producer));

	if (!taking_part(m->channel, m->role, m->slot))
		return row;
	if (producer) {
		add_count(row, "in_flight", progress->in_flight);
		add_count(row, "dropped", progress->dropped);
		add_count(row, "redelivered", progress->redelivered);
		add_count(row, "set_aside", progress->set_aside);
		add_count(row, "left_behind", progress->left_behind);
	} else {
		add_count(row, "waiting", progress->waiting);
		add_count(row, "held", progress->held);
		add_count(row, "lost", progress->lost);
		add_count(row, "left_behind", progress->left_behind);
	}
	return row;
}

/* Those with a slot: of both roles, at most twice CHANNEL_MEMBERS_MAX. */
static json_t *members(const struct channel *ch, int *looks)
{
	struct progress progress[2][CHANNEL_MEMBERS_MAX] = {0};
	json_t *list = json_array();

	*looks -= measure(ch, progress);
	for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
		for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
			const struct member *m = ch->slots[role - 1][i];

			if (m)
				json_array_append_new(list,
						      member_report(m, &progress[role - 1][i]));
		}
	}
	return list;
}

json_t *channel_report(const struct channel *ch, int *looks)
{
	uint64_t buffers = 0, bytes = 0;
	const struct member *m;

	LIST_FOREACH (m, &ch->members, of_channel)
		if (m->as_producer.estate)
			estate_measure(m->as_producer.estate, &buffers, &bytes);
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
			 "estate_bytes", (json_int_t)bytes, "members", members(ch, looks));
}
