/* SPDX-License-Identifier: MIT */

/*
 * Channels that drop the oldest. What two processes can do at the same moment is played here step
 * by step, with the page of one of them set to what the other would see.
 */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_drop, .timeout = 30);

Test(ring_drop, the_oldest_makes_room_for_the_newest)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	for (uint64_t i = 0; i < 7; i++)
		sends(i);
	cr_assert_eq(stats().dropped, 3);
	so_many_come_back(3);
	receives(0, 3);
	cr_assert_eq(message_lost, 3);
	cr_assert_eq(message.number, 3);
	for (uint64_t i = 4; i < 7; i++) {
		receives(0, i);
		cr_assert_eq(message_lost, 0);
	}
	receives_nothing(0);
}

Test(ring_drop, it_is_dropped_only_for_those_who_had_not_taken_it)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 2);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		receives(0, i);
	}
	sends(4);
	nothing_comes_back(); /* consumer 0 has number 0 */
	receives(1, 1);
	cr_assert_eq(message_lost, 1);
	receives(0, 4);
	cr_assert_eq(message_lost, 0);
	cr_assert_eq(stats().dropped, 1);
}

Test(ring_drop, a_channel_that_nobody_receives_keeps_the_newest)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 0);
	for (uint64_t i = 0; i < 100; i++) {
		sends(i);
		if (i >= 4)
			comes_back(i - 4);
	}
	consumer_comes(0, false);
	for (uint64_t i = 96; i < 100; i++) {
		uses(0, i);
		comes_back(i);
	}
	receives_nothing(0);
	cr_assert_eq(stats().dropped, 96);
}

Test(ring_drop, when_all_tickets_are_in_use_the_oldest_gives_its_own)
{
	shape.in_flight = 3;
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	for (uint64_t i = 0; i < 3; i++)
		sends(i);
	receives(0, 0);
	cr_assert_eq(try_send(0, 3, 0), -EAGAIN);
	cr_assert_eq(try_send(0, 3, 0), -EAGAIN, "one at a time");
	comes_back(1);
	sends(3);
	receives(0, 2);
	cr_assert_eq(message_lost, 1);
	receives(0, 3);
	cr_assert_eq(stats().dropped, 1);
}

Test(ring_drop, nothing_is_dropped_in_vain)
{
	shape.in_flight = 4;
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 2);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		receives(0, i); /* and keeps it */
	}
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	nothing_comes_back();
	cr_assert_eq(stats().dropped, 0);
	for (uint64_t i = 0; i < 4; i++)
		receives(1, i);
	cr_assert_eq(ring_producer_holdups(producers[0]), 3);
}

Test(ring_drop, a_queue_drops_the_oldest_of_the_one_it_would_have_gone_to)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_DROP, 1);
	for (uint64_t i = 0; i < 6; i++)
		sends(i);
	so_many_come_back(2);
	uses(0, 2);
	cr_assert_eq(message_lost, 2);
	uses(0, 3);
	sends(6);
	sends(7);
	uses(0, 4);
	cr_assert_eq(message_lost, 0);
	cr_assert_eq(stats().dropped, 2);
}

Test(ring_drop, a_queue_that_nobody_receives_keeps_the_newest)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_DROP, 0);
	for (uint64_t i = 0; i < 10; i++) {
		sends(i);
		if (i >= 4)
			comes_back(i - 4);
	}
	consumer_comes(0, false);
	for (uint64_t i = 6; i < 10; i++)
		uses(0, i);
	receives_nothing(0);
}

Test(ring_drop, a_queue_whose_tickets_are_in_use_drops_the_oldest_of_all)
{
	shape.in_flight = 4;
	rig(CHANNEL_QUEUE, SHARE_FULL_DROP, 2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i); /* 0 and 2 to consumer 1 */
	receives(1, 0);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	comes_back(1);
	sends(4);
	receives(0, 3);
	cr_assert_eq(message_lost, 1);
	receives(0, 4);
	receives(1, 2);
	cr_assert_eq(message_lost, 0);
}

/* It is seen only when tickets are reclaimed that there is something to drop. */
Test(ring_drop, what_was_given_back_meanwhile_is_not_dropped_in_vain)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_DROP, 1);
	for (uint64_t number = 1; number <= 8; number++) {
		sends(number);
		receives(0, number);
	}
	cr_assert(ring_consumer_reject(consumers[0], 0, producer_members[0], message.ticket,
				       message.version, false));
	cr_assert_eq(try_send(0, 9, 0), -EAGAIN);
	cr_assert_not(ring_producer_has_made_way(producers[0]));
	nothing_comes_back();
	cr_assert_eq(try_send(0, 9, 0), -EAGAIN);
	cr_assert_eq(stats().dropped, 1);
	cr_assert(ring_producer_has_made_way(producers[0]));
	so_many_come_back(1);
	sends(9);
	cr_assert_eq(stats().dropped, 1);
}

/* Whoever has as many as it may have is in the way of its next one, and not what others have not
 * taken. Nor does anything go for who is not there. */
Test(ring_drop, nothing_is_dropped_of_others_for_one_that_gets_no_more)
{
	rig(CHANNEL_DIRECT, SHARE_FULL_DROP, 2);
	for (uint64_t i = 0; i < 4; i++) {
		sends_to(i, 0);
		receives(0, i); /* and keeps it */
		sends_to(10 + i, 1);
	}
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert_eq(try_send(0, 4, 2), -ENOENT);
	nothing_comes_back();
	cr_assert_eq(stats().dropped, 0);
	cr_assert_eq(try_send(0, 14, 1), -EAGAIN);
	comes_back(10);
	sends_to(14, 1);
	receives(1, 11);
	cr_assert_eq(message_lost, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* At the same moment                                                                          */

/* The head was raised when we had taken it, and the producer saw that: it waits for us. */
Test(ring_drop, what_was_dropped_while_it_was_taken_is_acknowledged_unseen)
{
	struct channel_lane *lane;
	struct channel_row *row;

	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	lane = channel_lane_at(rings[0], &shape, 0);
	row = channel_row_at(ledgers[0], &shape, 0);
	sends(0);
	sends(1);
	lane->head = 1; /* the first half of dropping 0 */
	receives(0, 1);
	cr_assert_eq(message_lost, 1);
	cr_assert_eq(row->taken, 2);
	cr_assert_eq(row->acks[0].word, UINT64_C(1) << 32);
	cr_assert_eq(row->acks[1].word, 0);
	cr_assert_eq(ring_consumer_held(consumers[0], 0), 1);
	comes_back(0);
}

/* What is being written has no number, or that of a later one. */
Test(ring_drop, what_was_overwritten_is_skipped_and_not_acknowledged)
{
	struct channel_row *row;

	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	row = channel_row_at(ledgers[0], &shape, 0);
	sends(0);
	sends(1);
	channel_lane_at(rings[0], &shape, 0)->head = 1;
	channel_entry_at(rings[0], &shape, 0, 0)->sequence = 0;
	receives(0, 1);
	cr_assert_eq(message_lost, 1);
	cr_assert_eq(row->acks[0].word, 0);
}

Test(ring_drop, far_too_late_is_one_step)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	for (uint64_t i = 0; i < 1000; i++) {
		sends(i);
		if (i >= 4)
			comes_back(i - 4);
	}
	cr_assert_not(ring_consumer_is_empty(consumers[0], 0));
	receives(0, 996);
	cr_assert_eq(message_lost, 996);
	cr_assert_eq(stats().dropped, 996);
}
