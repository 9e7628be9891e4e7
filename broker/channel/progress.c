/* SPDX-License-Identifier: MIT */

/*
 * How far members have got with each other, as their pages say. Their owners write these pages as
 * they like, and also count there what only they know. So this is for people to look at; and what a
 * consumer says of itself decides about its own claims alone (claim_life.c, take.c). When somebody
 * waits for another one, the log and those who watch the broker are told.
 */

#include "broker/channel/progress.h"

#include <inttypes.h>
#include <stdio.h>

#include <share/channel.h>

#include "base/clock.h"
#include "broker/broker.h"
#include "broker/channel/claim.h"
#include "broker/channel/page.h"
#include "broker/client/client.h"
#include "broker/log/log.h"

#define STALL_MS 1000

bool member_takes_part(const struct member *m)
{
	return m->state == MEMBER_HERE || m->state == MEMBER_LEFT;
}

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
	/* in this order, as it may acknowledge something just now */
	acknowledged = count_of(&ledger->acknowledged);
	received = count_of(&ledger->received);
	out->received = received;
	out->held = received > acknowledged ? received - acknowledged : 0;
	out->held_buffers = out->held + count_of(&ledger->further);
	out->lost = count_of(&ledger->lost);
	out->rejected = count_of(&ledger->rejected);
}

/* Adds how far the consumer of a claim has got with its producer. */
static void claim_measure(const struct claim *claim, struct progress *out)
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
	if (head < next) /* if it is more, what lies between them was dropped */
		head = next;
	if (consumer->as_consumer.latest)
		out->waiting += tail > head && tail > count_of(&admission->head);
	else if (tail > head)
		out->waiting += tail - head < shape->depth ? tail - head : shape->depth;
}

uint64_t claim_unreceived(const struct claim *claim)
{
	struct progress progress = {0};

	claim_measure(claim, &progress);
	/* it has yet to learn that it was left behind */
	return progress.waiting + progress.left_behind;
}

uint64_t member_held(struct member *consumer)
{
	struct progress progress = {0};

	look_at_ledger(consumer, &progress);
	return progress.held;
}

uint64_t member_held_buffers(struct member *consumer)
{
	struct progress progress = {0};

	look_at_ledger(consumer, &progress);
	return progress.held_buffers;
}

bool claim_is_left_behind(const struct claim *claim)
{
	const struct channel_admission *a =
	    channel_admission_at(claim->producer->page.memory, &claim->producer->channel->shape,
				 claim->consumer->as_consumer.slot);

	return claim_is_admitted(claim) &&
	       atomic_load_explicit(&a->left_behind, memory_order_relaxed) == claim->consumer->id;
}

/*
 * Finds out whom a producer waits for. In a broadcast the same messages come to all consumers, so
 * those are waited for that have most of them left. Otherwise each has its own, and what no lane
 * has room for waits for all of them. Consumers count what they hold of all producers together, so
 * with several producers it may be less.
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

		if (!member_takes_part(claim->consumer) || !claim_is_admitted(claim) ||
		    claim->consumer->as_consumer.latest)
			continue;
		claim_measure(claim, &one);
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

int member_measure(struct member *m, struct progress *out)
{
	struct claim *claim;
	int looks = 1;

	if (m->role == SHARE_PRODUCER) {
		look_at_ring(m, out);
		return looks + look_at_consumers(m, out);
	}
	look_at_ledger(m, out);
	for (claim = claims_first(m); claim; claim = claims_next(m, claim), looks++)
		if (member_takes_part(claim->producer))
			claim_measure(claim, out);
	return looks;
}

/* ------------------------------------------------------------------------------------------- */
/* What is said of those that others wait for                                                  */

/* Logs and tells what happens to a member. @what ends with "in", as the channel's name follows. */
static void tell_and_log(const struct member *m, const char *action, const char *what,
			 const char *why)
{
	struct log_client who = client_in_log(m->client);

	log_in_channel(&who, what, m->channel->name, why);
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
