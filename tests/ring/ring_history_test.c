/* SPDX-License-Identifier: MIT */

/* What a producer keeps for consumers that come later: its last messages, though all who were there
 * have acknowledged them. */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_history, .timeout = 30);

static void broadcast(uint32_t history, uint32_t when_full, uint32_t n)
{
	shape.history = history;
	rig(CHANNEL_BROADCAST, when_full, n);
}

Test(ring_history, the_last_messages_stay_and_those_before_them_come_back)
{
	broadcast(2, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 20; i++) {
		sends(i);
		uses(0, i);
		if (i >= 2)
			comes_back(i - 2);
		nothing_comes_back();
		cr_assert_eq(stats().in_flight, 0, "it is there for who comes, and nobody else");
	}
}

Test(ring_history, who_comes_later_gets_them_if_it_wants_the_oldest)
{
	broadcast(2, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 5; i++) {
		sends(i);
		uses(0, i);
	}
	so_many_come_back(3);
	consumer_comes(1, true);
	consumer_comes(2, false);
	receives_nothing(2);
	receives(1, 3);
	cr_assert_eq(stats().in_flight, 2);
	sends(5);
	/* the third one from the end belongs to who has yet to acknowledge it */
	nothing_comes_back();
	acks(1);
	comes_back(3);
	uses(1, 4);
	uses(1, 5);
	uses(0, 5);
	uses(2, 5);
	nothing_comes_back();
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_history, whoever_comes_one_after_the_other_gets_the_same)
{
	broadcast(3, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		uses(0, i);
	}
	comes_back(0);
	for (int round = 0; round < 100; round++) {
		consumer_comes(1, true);
		for (uint64_t i = 1; i < 4; i++)
			uses(1, i);
		receives_nothing(1);
		nothing_comes_back();
		ring_producer_dismiss(producers[0], 1, true);
	}
}

static bool is_odd(void *data, const struct ring_owned_fence *f)
{
	uint32_t *asked = data;

	++*asked;
	if (f->fence.slot % 2 == 0)
		return false;
	f->owner->fences--;
	return true;
}

/* There is room for as many fences on a message as there may be consumers. */
Test(ring_history, those_who_come_have_room_for_their_fences_once_others_are_reached)
{
	uint32_t asked = 0;

	broadcast(1, SHARE_FULL_BLOCK, 1);
	sends(7);
	uses(0, 7);
	for (uint32_t i = 0; i < RIG_CONSUMERS; i++) {
		consumer_comes(1, true);
		receives(1, 7);
		acks_this(1, &message, 5 + (i == 0), false);
		nothing_comes_back();
		ring_producer_dismiss(producers[0], 1, true);
	}
	consumer_comes(1, true);
	receives_nothing(1);
	ring_producer_dismiss(producers[0], 1, true);

	ring_producer_forget_fences(producers[0], is_odd, &asked);
	cr_assert_eq(asked, RIG_CONSUMERS);
	consumer_comes(1, true);
	receives(1, 7);
	acks_this(1, &message, 9, false);
	/* what was not reached comes back with the message */
	sends(8);
	uses(0, 8);
	uses(1, 8);
	comes_back(7);
	cr_assert_eq(returned.n, 2);
	cr_assert_eq(returned.fences[0].fence.slot, 6);
	cr_assert_eq(returned.fences[1].fence.slot, 9);
}

Test(ring_history, it_leaves_one_ticket_to_others)
{
	shape.in_flight = 5;
	broadcast(4, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		uses(0, i);
	}
	for (uint64_t i = 4; i < 20; i++) {
		sends(i);
		cr_assert_eq(try_send(0, i + 1, 0), -EAGAIN);
		uses(0, i);
		comes_back(i - 4);
	}
}

Test(ring_history, what_is_dropped_for_who_is_slow_is_kept_for_nobody)
{
	broadcast(4, SHARE_FULL_DROP, 1);
	for (uint64_t i = 0; i < 6; i++)
		sends(i);
	so_many_come_back(2);
	consumer_comes(1, true);
	receives(1, 2);
	receives(0, 2);
	cr_assert_eq(message_lost, 2);
}

/* All tickets are in use: the oldest that nobody has taken goes, with all before it. */
Test(ring_history, it_goes_when_tickets_are_wanted)
{
	shape.in_flight = 4;
	broadcast(3, SHARE_FULL_DROP, 1);
	sends(0);
	uses(0, 0);
	for (uint64_t i = 1; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	so_many_come_back(2);
	sends(4);
	consumer_comes(1, true);
	receives(1, 2);
	receives(0, 2);
	cr_assert_eq(message_lost, 1);
}

/* All have received everything, and one holds on to a message: nothing else is to be dropped. */
Test(ring_history, it_goes_when_tickets_are_wanted_and_all_have_received_it)
{
	shape.in_flight = 4;
	broadcast(3, SHARE_FULL_DROP, 2);
	sends(0);
	uses(0, 0);
	receives(1, 0);
	for (uint64_t i = 1; i < 4; i++) {
		sends(i);
		uses(0, i);
		uses(1, i);
	}
	for (uint64_t i = 4; i < 20; i++) {
		cr_assert_eq(try_send(0, i, 0), -EAGAIN);
		comes_back(i - 3);
		nothing_comes_back();
		sends(i);
		uses(0, i);
		uses(1, i);
	}
	cr_assert_eq(stats().dropped, 0);
	consumer_comes(2, true);
	receives(2, 17);
	cr_assert_eq(message_lost, 0);
}

Test(ring_history, nobody_was_there_yet)
{
	broadcast(2, SHARE_FULL_BLOCK, 0);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert_eq(stats().waiting, 4);
	sends(4);
	cr_assert_eq(stats().waiting, 4, "what nobody has had waits as ever");
	consumer_comes(0, false);
	for (uint64_t i = 1; i < 5; i++)
		uses(0, i);
	so_many_come_back(3);
	consumer_comes(1, true);
	receives(1, 3);
}
