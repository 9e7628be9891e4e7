/* SPDX-License-Identifier: MIT */

/*
 * A channel as reports show it: what it is like, who takes part, how far each has got, and what
 * those that have gone left behind.
 *
 * How far somebody has got is read from pages that their owners write as they like: it is for
 * people to look at, and nothing here may believe it further than to count.
 */

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

/* ------------------------------------------------------------------------------------------- */
/* How far they have got                                                                       */

/* In several places, each with a system call as often as not. */
#define LOOKS_HELD 4

/* A producer: buffers that are not back. A consumer: messages that wait for it, and those that it
 * has received and not acknowledged, as far as the ring remembers them (the last `depth`). */
struct progress {
	uint64_t in_flight, waiting, held;
};

static void count_in_flight(struct member *producer, struct progress *out, int *looks)
{
	const struct channel_token *t;

	for (uint32_t i = 0; *looks > 0 && (t = member_next_token(producer, &i)); i++, --*looks)
		out->in_flight += atomic_load_explicit(&t->buffer, memory_order_relaxed) != 0;
}

/* Whether the message with this number in the lane is one that the consumer has not acknowledged.
 */
static bool is_held(struct member *producer, struct member *consumer, uint32_t lane,
		    uint64_t sequence)
{
	const struct channel_shape *shape = &producer->channel->shape;
	const struct channel_entry *e = channel_entry_at(producer->page, shape, lane, sequence);
	const struct channel_token *t;
	uint32_t token, version;
	struct fence fence;

	if (member_unwritten(producer, e) > 0 ||
	    atomic_load_explicit(&e->sequence, memory_order_acquire) != sequence + 1)
		return false;
	/* once: it may be another one the next time */
	token = *(const volatile uint16_t *)&e->token;
	version = *(const volatile uint32_t *)&e->version;
	if (token >= shape->in_flight)
		return false;
	t = channel_token_at(producer->page, shape, token);
	return member_unwritten(producer, t) == 0 &&
	       atomic_load_explicit(&t->version, memory_order_acquire) == version &&
	       atomic_load_explicit(&t->buffer, memory_order_relaxed) != 0 &&
	       !member_has_acknowledged(consumer, producer, token, version, &fence);
}

static void compare(struct member *producer, struct member *consumer, struct progress *out,
		    int *looks)
{
	const struct channel_shape *shape = &producer->channel->shape;
	uint32_t number = channel_lane_of(shape, consumer->slot);
	const struct channel_lane *lane = channel_lane_at(producer->page, shape, number);
	const struct channel_admission *admission =
	    channel_admission_at(producer->page, shape, consumer->slot);
	const struct channel_row *row = channel_row_at(consumer->page, shape, producer->slot);
	uint64_t start, next, head, tail;

	--*looks;
	if (member_unwritten(producer, admission) > 0 || member_unwritten(producer, lane) > 0 ||
	    atomic_load_explicit(&admission->consumer, memory_order_acquire) != consumer->id)
		return;
	start = next = atomic_load_explicit(&admission->start, memory_order_relaxed);
	if (member_unwritten(consumer, row) == 0 &&
	    atomic_load_explicit(&row->producer, memory_order_acquire) == producer->id)
		next = atomic_load_explicit(&row->taken, memory_order_acquire);
	tail = atomic_load_explicit(&lane->tail, memory_order_acquire);
	head = atomic_load_explicit(&lane->head, memory_order_relaxed);
	if (next < start)
		next = start;
	if (head < next) /* else what is between them was dropped */
		head = next;
	if (tail > head)
		out->waiting += tail - head < shape->depth ? tail - head : shape->depth;
	for (uint32_t i = 1; i <= shape->depth && next - start >= i && *looks > 0; i++) {
		out->held += is_held(producer, consumer, number, next - i);
		*looks -= LOOKS_HELD;
	}
}

/* False: it would take too long to find out. */
static bool measure(const struct channel *ch, struct progress out[2][CHANNEL_MEMBERS_MAX],
		    int *looks)
{
	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
		struct member *p = ch->slots[SHARE_PRODUCER - 1][i];

		if (!p || p->state == MEMBER_PREPARING || p->state == MEMBER_GONE)
			continue;
		count_in_flight(p, &out[SHARE_PRODUCER - 1][i], looks);
		for (uint32_t k = 0; *looks > 0 && k < CHANNEL_MEMBERS_MAX; k++) {
			struct member *c = ch->slots[SHARE_CONSUMER - 1][k];

			if (c && c->state != MEMBER_PREPARING && c->state != MEMBER_GONE)
				compare(p, c, &out[SHARE_CONSUMER - 1][k], looks);
		}
	}
	return *looks > 0;
}

/* ------------------------------------------------------------------------------------------- */

static json_t *member_report(const struct member *m, const struct progress *progress)
{
	bool producer = m->role == SHARE_PRODUCER;
	json_t *row = json_pack("{s:I, s:I, s:s, s:I, s:s, s:b}", "client",
				(json_int_t)m->client_id, "pid", (json_int_t)m->pid, "role",
				producer ? "producer" : "consumer", "slot", (json_int_t)m->slot,
				"state", state_name(m), "writable", (int)(m->writable || producer));

	if (!progress)
		return row;
	if (producer) {
		json_object_set_new(row, "in_flight",
				    json_integer((json_int_t)progress->in_flight));
	} else {
		json_object_set_new(row, "waiting", json_integer((json_int_t)progress->waiting));
		json_object_set_new(row, "held", json_integer((json_int_t)progress->held));
	}
	return row;
}

/* Those with a slot: of both roles, at most twice CHANNEL_MEMBERS_MAX. */
static json_t *members(const struct channel *ch, int *looks)
{
	struct progress progress[2][CHANNEL_MEMBERS_MAX] = {0};
	bool measured = measure(ch, progress, looks);
	json_t *list = json_array();

	for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
		for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++) {
			const struct member *m = ch->slots[role - 1][i];

			if (m)
				json_array_append_new(
				    list,
				    member_report(m, measured ? &progress[role - 1][i] : NULL));
		}
	}
	return list;
}

json_t *channel_report(const struct channel *ch, int *looks)
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
			 "estate_bytes", (json_int_t)bytes, "members", members(ch, looks));
}
