/* SPDX-License-Identifier: MIT */

/*
 * A consumer that says itself that it receives no more, and has yet to acknowledge what it has:
 * that stays its own, and the rest is for others at once.
 */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_leaving, .timeout = 30);

static uint64_t leaves(uint32_t consumer)
{
	return ring_consumer_receives_no_more(consumers[consumer]);
}

Test(ring_leaving, others_get_what_it_has_not_taken_unmarked)
{
	struct ring_message held;

	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i); /* 0 and 2 to consumer 1 */
	receives(1, 0);
	held = message;
	cr_assert_eq(leaves(1), 1, "its producer is to be told");
	nothing_comes_back();
	uses(0, 1);
	uses(0, 3);
	uses(0, 2);
	cr_assert_eq(message.deliveries, 1);
	receives_nothing(0);
	so_many_come_back(3);
	acks_this(1, &held, 5, false);
	comes_back(0);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].owner->member, consumer_members[1]);
	cr_assert_eq(stats().redelivered, 0);
}

Test(ring_leaving, what_is_sent_to_it_before_that_is_seen_goes_on_to_another)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	sends(0);
	receives(1, 0);
	leaves(1);
	sends(1);
	sends(2); /* to 1, as far as the loads go */
	ring_producer_wake(producers[0]);
	uses(0, 1);
	uses(0, 2);
	cr_assert_eq(message.deliveries, 1);
	for (uint64_t i = 3; i < 20; i++) {
		sends(i);
		ring_producer_wake(producers[0]);
		uses(0, i);
		comes_back(i - 2);
	}
}

Test(ring_leaving, a_sender_that_finds_no_room_sees_it)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	for (uint64_t i = 0; i < 8; i++)
		sends(i);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	leaves(1);
	for (uint64_t i = 1; i < 8; i += 2)
		uses(0, i);
	comes_back(1);
	for (uint64_t i = 0; i < 8; i += 2)
		uses(0, i);
	so_many_come_back(7);
	sends(8);
	uses(0, 8);
}

Test(ring_leaving, when_all_leave_what_they_have_not_taken_waits_for_the_next)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	receives(1, 0);
	leaves(0);
	leaves(1);
	nothing_comes_back();
	cr_assert(ring_producer_has_backlog(producers[0]));
	consumer_comes(2, false);
	for (uint64_t i = 1; i < 4; i++) {
		try_receive(2);
		cr_assert_eq(message.deliveries, 1);
		acks(2);
	}
	receives_nothing(2);
	so_many_come_back(3);
}

Test(ring_leaving, in_a_broadcast_nobody_waits_for_it)
{
	struct ring_message held;

	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends(0);
	sends(1);
	receives(1, 0);
	held = message;
	leaves(1);
	uses(0, 0);
	uses(0, 1);
	comes_back(1);
	for (uint64_t i = 2; i < 30; i++) {
		sends(i);
		uses(0, i);
		comes_back(i);
	}
	acks_this(1, &held, 0, false);
	comes_back(0);
}

Test(ring_leaving, what_it_holds_is_delivered_again_when_it_dies)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	sends(0);
	receives(1, 0);
	leaves(1);
	nothing_comes_back();
	receives_nothing(0);
	ring_producer_dismiss(producers[0], 1, true);
	uses(0, 0);
	cr_assert_eq(message.deliveries, 2);
	comes_back(0);
}

Test(ring_leaving, it_may_be_left_behind_for_the_tickets_it_has)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 8; i++) {
		sends(i);
		receives(0, i);
	}
	leaves(0);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	nothing_comes_back();
	cr_assert_eq(ring_producer_holdups(producers[0]), 1);
	(void)ring_producer_has_moved(producers[0], 0);
	cr_assert_not(ring_producer_has_moved(producers[0], 0));
	acks(0);
	cr_assert(ring_producer_has_moved(producers[0], 0));
	comes_back(7);
	ring_producer_dismiss(producers[0], 0, false);
	cr_assert_eq(ring_producer_holdups(producers[0]), 0);
	consumer_comes(1, false);
	uses(1, 0);
	cr_assert_eq(message.deliveries, 2);
}

Test(ring_leaving, who_is_sent_to_by_name_is_not_there_any_more)
{
	rig(CHANNEL_DIRECT, SHARE_FULL_FAIL, 2);
	sends_to(0, 1);
	sends_to(1, 1);
	receives(1, 0);
	leaves(1);
	comes_back(1);
	cr_assert_eq(try_send(0, 2, 1), -ENOENT);
	sends_to(3, 0);
	uses(0, 3);
}

/* How one that receives no more, and has something, is gone for good. */
static void acknowledges_and_goes(uint32_t consumer)
{
	acks(consumer);
	ring_producer_dismiss(producers[0], consumer, true);
}

static void dies(uint32_t consumer)
{
	ring_producer_dismiss(producers[0], consumer, true);
}

static void is_left_behind_and_goes(uint32_t consumer)
{
	ring_producer_dismiss(producers[0], consumer, false);
	acknowledges_and_goes(consumer);
}

static void is_left_to_the_broker(uint32_t consumer)
{
	ring_producer_abandon(producers[0], consumer);
}

static void (*const goings[])(uint32_t consumer) = {
    acknowledges_and_goes,
    dies,
    is_left_behind_and_goes,
    is_left_to_the_broker,
};
#define GOINGS (sizeof(goings) / sizeof(goings[0]))

/* The only consumer has left with message 0, which is the last that was received. */
static void leaves_with_one(uint32_t when_full)
{
	rig(CHANNEL_BROADCAST, when_full, 1);
	sends(0);
	receives(0, 0);
	leaves(0);
}

Test(ring_leaving, a_broadcast_that_is_sent_when_all_have_left_waits_for_the_next)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends(0);
	uses(0, 0);
	leaves(1);
	sends(1);
	uses(0, 1);
	leaves(0);
	sends(2);
	ring_producer_wake(producers[0]);
	so_many_come_back(2);
	cr_assert_eq(stats().waiting, 1);
	consumer_comes(2, false);
	uses(2, 2);
	comes_back(2);
}

Test(ring_leaving, what_is_sent_to_nobody_waits_though_the_last_one_goes_for_good_after_that)
{
	for (size_t how = 0; how < GOINGS; how++) {
		leaves_with_one(SHARE_FULL_BLOCK);
		for (uint64_t i = 1; i < 4; i++)
			sends(i);
		goings[how](0);
		sends(4);
		comes_back(0);
		nothing_comes_back();
		cr_assert_eq(stats().waiting, 4);
		consumer_comes(1, false);
		cr_assert_eq(stats().waiting, 0);
		for (uint64_t i = 1; i < 5; i++)
			uses(1, i);
		receives_nothing(1);
		so_many_come_back(4);
		cr_assert_eq(stats().in_flight, 0);
		cr_assert_eq(stats().done, 5);
	}
}

static void as_much_waits_though_the_last_one_goes_for_good(uint32_t when_full)
{
	for (size_t how = 0; how < GOINGS; how++) {
		leaves_with_one(when_full);
		for (uint64_t i = 1; i < 5; i++)
			sends(i);
		goings[how](0);
		comes_back(0);
		sends(5);
		comes_back(1);
		cr_assert_eq(stats().dropped, 1);
		cr_assert_eq(stats().waiting, 4);
		consumer_comes(1, false);
		uses(1, 2);
		cr_assert_eq(message_lost, 1);
		for (uint64_t i = 3; i < 6; i++)
			uses(1, i);
		so_many_come_back(4);
	}
}

Test(ring_leaving, as_much_waits_though_the_last_one_goes_for_good)
{
	as_much_waits_though_the_last_one_goes_for_good(SHARE_FULL_BLOCK);
	as_much_waits_though_the_last_one_goes_for_good(SHARE_FULL_DROP);
}

Test(ring_leaving, consumers_come_and_go_with_something_in_hand_for_ever)
{
	uint64_t number = 0;

	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	for (uint32_t round = 0; round < 100; round++) {
		uint32_t consumer = round % RIG_CONSUMERS;

		sends(number);
		sends(number + 1);
		consumer_comes(consumer, round % 2);
		receives(consumer, number);
		leaves(consumer); /* the second one goes to nobody */
		comes_back(number + 1);
		sends(number + 2);
		goings[round % GOINGS](consumer);
		comes_back(number);
		consumer = (consumer + 1) % RIG_CONSUMERS;
		consumer_comes(consumer, false);
		uses(consumer, number + 2);
		comes_back(number + 2);
		leaves(consumer);
		ring_producer_dismiss(producers[0], consumer, true);
		cr_assert_eq(stats().in_flight, 0);
		number += 3;
	}
}
