/* SPDX-License-Identifier: MIT */

/*
 * Messages that are data alone are received in one step. What may happen at the same moment to some
 * of them is played here step by step, with a page set to what the other side would see.
 */

#include <errno.h>
#include <string.h>

#include "tests/ring/ring_rig.h"

#define MOST 6

static struct ring_message run[MOST];
static unsigned char places[MOST][CHANNEL_DATA_NEAR];
static uint64_t lost;

static int try_run(uint32_t n)
{
	for (uint32_t i = 0; i < MOST; i++) {
		memset(places[i], 0xee, sizeof(places[i]));
		run[i] = (struct ring_message){.data = places[i]};
	}
	lost = 0;
	return ring_consumer_receive_run(consumers[0], &message_producer, run, n, &lost);
}

static uint64_t number(uint32_t at)
{
	uint64_t n;

	memcpy(&n, run[at].data, sizeof(n));
	return n;
}

/* So many, from this number on. */
static void receives_run(uint32_t most, int n, uint64_t first)
{
	cr_assert_eq(try_run(most), n);
	for (int i = 0; i < n; i++)
		cr_assert_eq(number((uint32_t)i), first + (uint64_t)i);
}

static void acks_run(uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		acks_this(0, &run[i], 0, false);
}

static uint64_t received(void)
{
	struct ring_consumer_stats s;

	ring_consumer_get_stats(consumers[0], &s);
	return s.received;
}

static struct channel_row *row(void)
{
	return channel_row_at(ledgers[0], &shape, 0);
}

static void sends_so_many(uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		sends_data(i);
}

Test(ring_run, what_is_there_comes_at_once)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	cr_assert_eq(ring_consumer_look(consumers[0], MOST), 0);
	for (uint64_t i = 0; i < 60; i += 3) {
		sends_so_many(i, 3);
		cr_assert_eq(ring_consumer_look(consumers[0], 2), 2);
		cr_assert_eq(ring_consumer_look(consumers[0], MOST), 3);
		receives_run(MOST, 3, i);
		cr_assert_eq(row()->taken, i + 3);
		cr_assert_eq(received(), i + 3);
		cr_assert_eq(ring_consumer_held(consumers[0], 0), 3);
		acks_run(0, 3);
		so_many_come_back(3);
	}
	cr_assert_eq(try_run(MOST), 0);
}

Test(ring_run, no_more_come_than_are_wanted)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_so_many(0, 4);
	receives_run(3, 3, 0);
	receives_run(3, 1, 3);
}

Test(ring_run, what_has_a_buffer_comes_alone)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_data(0);
	sends_data(1);
	sends(2);
	sends_data(3);
	receives_run(MOST, 2, 0);
	cr_assert_eq(row()->taken, 2);
	receives_run(MOST, 1, 2);
	cr_assert_eq(run[0].buffer, 1002);
	receives_run(MOST, 1, 3);
}

Test(ring_run, with_several_producers_they_come_one_by_one_in_turn)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	producer_comes(1);
	sends_so_many(0, 3);
	cr_assert_eq(try_send(1, 7, 0), 0);
	cr_assert_eq(ring_consumer_look(consumers[0], MOST), 1);
	receives_run(MOST, 1, 0);
	receives_run(MOST, 1, 7);
	receives_run(MOST, 1, 1);
}

Test(ring_run, it_ends_before_what_makes_no_sense)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_so_many(0, 4);
	channel_entry_at(rings[0], &shape, 0, 2)->version = 0;
	receives_run(MOST, 2, 0);
	cr_assert_eq(row()->taken, 2);
	cr_assert_eq(try_run(MOST), -EPROTO);
	cr_assert_eq(row()->taken, 2);
}

Test(ring_run, nobody_has_one_ticket_twice_in_it)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_so_many(0, 3);
	channel_entry_at(rings[0], &shape, 0, 1)->ticket = 0;
	receives_run(MOST, 1, 0);
	cr_assert_eq(try_run(MOST), -EPROTO);
	cr_assert_eq(ring_consumer_held(consumers[0], 0), 1);
}

/* The producer has said so, and looks now at what we have taken. */
static void is_left_behind(void)
{
	channel_admission_at(rings[0], &shape, 0)->left_behind = consumer_members[0];
}

Test(ring_run, left_behind_in_the_middle_of_a_broadcast_all_is_acknowledged_unseen)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_so_many(0, 3);
	is_left_behind();
	cr_assert_eq(try_run(MOST), -ESTALE);
	cr_assert_eq(received(), 0);
	cr_assert_eq(ring_consumer_held(consumers[0], 0), 0);
	ring_producer_dismiss(producers[0], 0, false);
	so_many_come_back(3);
}

Test(ring_run, in_a_queue_others_get_it_then)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_so_many(0, 3);
	is_left_behind();
	cr_assert_eq(try_run(MOST), -ESTALE);
	cr_assert_eq(received(), 0);
	ring_producer_dismiss(producers[0], 0, false);
	nothing_comes_back();
	consumer_comes(1, false);
	for (uint64_t i = 0; i < 3; i++) {
		cr_assert_eq(try_receive(1), 1);
		cr_assert_eq(memcmp(message.data, &i, sizeof(i)), 0);
		cr_assert_eq(message.deliveries, 2);
		acks(1);
	}
	so_many_come_back(3);
	cr_assert_eq(stats().rejected, 0, "no program has rejected anything");
}

/* The same, but the producer has looked before that: what is said then is about what others have
 * by now, and that this one does not use it. */
Test(ring_run, others_may_have_it_already)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_data(0);
	row()->taken = 1;
	ring_producer_dismiss(producers[0], 0, false);
	consumer_comes(1, false);
	row()->taken = 0;
	cr_assert_eq(try_run(MOST), -ESTALE);
	cr_assert_eq(row()->acks[0].word, UINT64_C(1) << 32 | CHANNEL_ACK_REJECTED | 1);
	nothing_comes_back();
	cr_assert_eq(try_receive(1), 1);
	acks(1);
	so_many_come_back(1);
	ring_producer_dismiss(producers[0], 0, true);
	nothing_comes_back();
}

Test(ring_run, so_memory_is_back_though_who_was_left_behind_stays)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(0);
	row()->taken = 1;
	ring_producer_dismiss(producers[0], 0, false);
	consumer_comes(1, false);
	row()->taken = 0;
	receives(1, 0);
	acks(1);
	nothing_comes_back(); /* the first one may use it, for all that is known */
	cr_assert_eq(try_receive(0), -ESTALE);
	comes_back(0);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(stats().in_flight, 0);
}

/* The first half of dropping it: who has taken it is looked at next. */
static void drops_below(uint64_t head)
{
	channel_lane_at(rings[0], &shape, 0)->head = head;
}

Test(ring_run, what_was_dropped_at_its_beginning_is_left_out)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	sends_so_many(0, 4);
	drops_below(2);
	receives_run(MOST, 2, 2);
	cr_assert_eq(lost, 2);
	cr_assert_eq(received(), 2);
	cr_assert_eq(row()->taken, 4);
	cr_assert_eq(ring_consumer_held(consumers[0], 0), 2);
	cr_assert_eq(row()->acks[0].word, UINT64_C(1) << 32);
	cr_assert_eq(row()->acks[1].word, UINT64_C(1) << 32);
	cr_assert_eq(row()->acks[2].word, 0);
	acks_run(0, 2);
	so_many_come_back(4);
}

Test(ring_run, where_all_of_it_was_dropped_what_comes_after_that_is_next)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	sends_so_many(0, 3);
	drops_below(2);
	receives_run(2, 1, 2);
	cr_assert_eq(lost, 2);
	drops_below(3);
	cr_assert_eq(try_run(MOST), 0);
	sends_data(3);
	receives_run(MOST, 1, 3);
	cr_assert_eq(lost, 0);
}

/* ------------------------------------------------------------------------------------------- */

Test(ring_run, a_look_finds_what_is_to_be_told)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	cr_assert_eq(ring_consumer_look(consumers[0], 1), 0);
	is_left_behind();
	cr_assert_eq(ring_consumer_look(consumers[0], 1), 1);
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	ring_producer_sends_no_more(producers[0]);
	cr_assert_eq(ring_consumer_look(consumers[0], 1), 1);
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	channel_entry_at(rings[0], &shape, 0, 0)->sequence = 2;
	cr_assert_eq(ring_consumer_look(consumers[0], 1), 1, "that makes no sense");
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	ring_consumer_detach(consumers[0], 0);
	cr_assert_eq(ring_consumer_look(consumers[0], 1), 1, "nobody is there");
}
