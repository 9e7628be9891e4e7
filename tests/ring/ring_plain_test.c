/* SPDX-License-Identifier: MIT */

/*
 * Messages that are data alone, and are acknowledged without a fence, take a shorter way back. What
 * is not so has to be left to the longer one.
 */

#include <string.h>

#include "tests/ring/ring_rig.h"

static void *back[16];

static uint32_t retired(void)
{
	return ring_producer_retire_plain(producers[0], 16, back);
}

static void receives_data(uint32_t consumer, uint64_t number)
{
	uint64_t data;

	cr_assert_eq(try_receive(consumer), 1);
	memcpy(&data, message.data, sizeof(data));
	cr_assert_eq(data, number);
	cr_assert_eq(message.buffer, 0);
}

static void uses_data(uint32_t consumer, uint64_t number)
{
	receives_data(consumer, number);
	acks(consumer);
}

static void is_back(uint32_t at, uint64_t number)
{
	cr_assert_eq((uintptr_t)back[at], number);
}

static void goes_round(uint32_t mode)
{
	rig(mode, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 5 * shape.in_flight; i += 2) {
		sends_data(i);
		sends_data(i + 1);
		cr_assert_eq(stats().in_flight, 2);
		uses_data(0, i);
		uses_data(0, i + 1);
		cr_assert_eq(retired(), 2);
		is_back(0, i);
		is_back(1, i + 1);
		cr_assert_eq(stats().in_flight, 0);
		cr_assert_eq(stats().done, i + 2);
		cr_assert_eq(channel_ticket_at(rings[0], &shape, message.ticket)->buffer, 0);
	}
	cr_assert_eq(retired(), 0);
	nothing_comes_back();
}

Test(ring_plain, what_was_acknowledged_is_back_at_once)
{
	goes_round(CHANNEL_BROADCAST);
	goes_round(CHANNEL_QUEUE);
	goes_round(CHANNEL_DIRECT);
}

Test(ring_plain, no_more_come_back_than_are_wanted)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 3; i++) {
		sends_data(i);
		uses_data(0, i);
	}
	cr_assert_eq(ring_producer_retire_plain(producers[0], 2, back), 2);
	is_back(1, 1);
	sends_data(3);
	cr_assert_eq(retired(), 1);
	is_back(0, 2);
	uses_data(0, 3);
	cr_assert_eq(retired(), 1);
}

Test(ring_plain, all_have_to_acknowledge_a_broadcast)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends_data(1);
	sends_data(2);
	uses_data(0, 1);
	uses_data(0, 2);
	cr_assert_eq(retired(), 0);
	uses_data(1, 1);
	cr_assert_eq(retired(), 1);
	uses_data(1, 2);
	cr_assert_eq(retired(), 1);
}

Test(ring_plain, another_version_acknowledges_nothing)
{
	static const uint32_t versions[] = {2, 3, UINT32_MAX};

	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_data(1);
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		channel_row_at(ledgers[0], &shape, 0)->acks[0].word = (uint64_t)versions[i] << 32;
		cr_assert_eq(retired(), 0);
	}
	channel_row_at(ledgers[0], &shape, 0)->acks[0].word = UINT64_C(1) << 32;
	cr_assert_eq(retired(), 1);
}

Test(ring_plain, a_row_about_somebody_else_is_not_looked_at)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	channel_row_at(ledgers[0], &shape, 0)->producer = 1;
	sends_data(1);
	channel_row_at(ledgers[0], &shape, 0)->acks[0].word = UINT64_C(1) << 32;
	cr_assert_eq(retired(), 0);
}

Test(ring_plain, what_has_a_buffer_or_a_fence_is_not_so)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends(1);
	sends_data(2);
	uses(0, 1);
	uses_data(0, 2);
	cr_assert_eq(retired(), 0);
	comes_back(1);
	cr_assert_eq(retired(), 1);
	is_back(0, 2);
	sends_data(3);
	receives_data(0, 3);
	acks_this(0, &message, 5, false);
	cr_assert_eq(retired(), 0);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
}

/* One of two has left a fence: that is waited for, though the other has left none. */
Test(ring_plain, nor_is_what_another_has_left_a_fence_on)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends_data(1);
	receives_data(0, 1);
	acks_this(0, &message, 5, false);
	(void)ring_producer_has_moved(producers[0], 0); /* sees it */
	uses_data(1, 1);
	cr_assert_eq(retired(), 0);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq(returned.n, 1);
}

Test(ring_plain, what_was_rejected_goes_to_others)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_data(1);
	receives_data(0, 1);
	consumer_comes(1, false);
	cr_assert(ring_consumer_reject(consumers[0], 0, producer_members[0], message.ticket,
				       message.version, false));
	cr_assert_eq(retired(), 0);
	nothing_comes_back();
	uses_data(1, 1);
	cr_assert_eq(retired(), 1);
}

/* Whoever was left behind with it may still have it, or have acknowledged it. */
Test(ring_plain, what_two_have_had_of_a_queue_is_not_so)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_data(1);
	receives_data(0, 1);
	consumer_comes(1, false);
	ring_producer_dismiss(producers[0], 0, false);
	uses_data(1, 1);
	cr_assert_eq(retired(), 0);
	nothing_comes_back();
	cr_assert_eq(stats().in_flight, 1);
	ring_producer_dismiss(producers[0], 0, true);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq((uintptr_t)returned.reference, 1);
}

Test(ring_plain, what_waits_for_who_comes_is_not_so)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	sends_data(1);
	cr_assert_eq(retired(), 0);
	consumer_comes(0, false);
	cr_assert_eq(retired(), 0);
	uses_data(0, 1);
	cr_assert_eq(retired(), 1);
}

Test(ring_plain, nor_is_what_is_kept_for_who_comes)
{
	shape.history = 2;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 3; i++) {
		sends_data(i);
		uses_data(0, i);
	}
	cr_assert_eq(retired(), 0);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq((uintptr_t)returned.reference, 0);
	cr_assert_not(ring_producer_reclaim(producers[0], true, &returned));
}

/* What a consumer had is counted off, so that the next goes to who has least. */
Test(ring_plain, loads_are_as_they_would_be)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	sends_data(1);
	sends_data(2);
	uses_data(0, 2);
	cr_assert_eq(retired(), 1);
	sends_data(3);
	receives_data(0, 3);
	receives_data(1, 1);
}
