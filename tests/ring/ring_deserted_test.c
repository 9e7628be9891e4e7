/* SPDX-License-Identifier: MIT */

/*
 * A broadcast without consumers keeps nobody waiting: the last messages wait for who comes, and the
 * older ones are dropped, of which the next consumer is told. And a producer that does wait for
 * consumers.
 */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_deserted, .timeout = 30);

static const uint32_t whens[] = {SHARE_FULL_BLOCK, SHARE_FULL_FAIL, SHARE_FULL_DROP};
#define WHENS (sizeof(whens) / sizeof(whens[0]))

/* There is room, once the tickets of what is dropped or acknowledged have come back. */
static void goes_out(uint64_t number)
{
	if (try_send(0, number, 0) == 0)
		return;
	cr_assert(ring_producer_lacks_tickets(producers[0]));
	while (ring_producer_reclaim(producers[0], true, &returned))
		ring_producer_retire(producers[0], returned.ticket);
	sends(number);
}

static void leaves(uint32_t consumer)
{
	ring_consumer_receives_no_more(consumers[consumer]);
}

Test(ring_deserted, the_last_messages_wait_and_the_next_consumer_is_told_of_those_before_them)
{
	for (size_t i = 0; i < WHENS; i++) {
		rig(CHANNEL_BROADCAST, whens[i], 0);
		for (uint64_t n = 0; n < 20; n++)
			goes_out(n);
		cr_assert_eq(stats().dropped, 16);
		cr_assert_eq(stats().waiting, 4);
		cr_assert_eq(stats().done, 16);
		consumer_comes(0, false);
		consumer_comes(1, false);
		uses(0, 16);
		cr_assert_eq(message_lost, 16);
		for (uint64_t n = 17; n < 20; n++) {
			uses(0, n);
			cr_assert_eq(message_lost, 0, "it is said once");
		}
		receives_nothing(1);
		goes_out(20);
		uses(1, 20);
		cr_assert_eq(message_lost, 0, "it is said to the first one");
		uses(0, 20);
		cr_assert_eq(stats().waiting, 0);
	}
}

Test(ring_deserted, who_comes_is_told_of_what_was_dropped_since_the_last_one_left)
{
	uint64_t n = 0;

	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	for (uint32_t round = 1; round < 10; round++) {
		struct ring_consumer_stats s;

		for (uint32_t i = 0; i < 4 + round; i++)
			goes_out(n++);
		consumer_comes(0, round % 2);
		uses(0, n - 4);
		cr_assert_eq(message_lost, round);
		goes_out(n++); /* there is room for it: one was received */
		ring_consumer_get_stats(consumers[0], &s);
		cr_assert_eq(s.lost, round);
		if (round % 3 == 0)
			leaves(0);
		else
			ring_producer_dismiss(producers[0], 0, round % 3 == 1);
	}
}

Test(ring_deserted, what_somebody_has_yet_to_receive_stays)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	for (uint64_t n = 0; n < 4; n++) {
		sends(n);
		receives(0, n);
	}
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	ring_producer_dismiss(producers[0], 0, true);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	for (uint64_t n = 0; n < 4; n++) {
		uses(1, n);
		cr_assert_eq(message_lost, 0);
	}
	cr_assert_eq(stats().dropped, 0);
}

Test(ring_deserted, tickets_are_those_of_the_oldest_that_waits)
{
	shape.in_flight = 2;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	sends(0);
	sends(1);
	for (uint64_t n = 2; n < 20; n++) {
		cr_assert_eq(try_send(0, n, 0), -EAGAIN);
		comes_back(n - 2);
		nothing_comes_back();
		sends(n);
	}
	consumer_comes(0, false);
	uses(0, 18);
	cr_assert_eq(message_lost, 18);
	uses(0, 19);
}

/* The one who has left has two of four; two are there for who comes. */
Test(ring_deserted, history_goes_before_what_nobody_has_received)
{
	struct ring_message held[2];

	shape.history = 2;
	shape.in_flight = 5;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t n = 0; n < 2; n++) {
		sends(n);
		receives(0, n);
		held[n] = message;
	}
	for (uint64_t n = 2; n < 4; n++) {
		sends(n);
		uses(0, n);
	}
	leaves(0);
	sends(4);
	comes_back(2);
	sends(5);
	comes_back(3);
	sends(6);
	cr_assert_eq(try_send(0, 7, 0), -EAGAIN);
	comes_back(4);
	sends(7);
	cr_assert_eq(stats().dropped, 1);
	consumer_comes(1, true);
	uses(1, 5);
	cr_assert_eq(message_lost, 1);
	uses(1, 6);
	uses(1, 7);
	acks_this(0, &held[0], 0, false);
	acks_this(0, &held[1], 0, false);
}

Test(ring_deserted, nothing_is_dropped_while_history_that_all_have_had_can_go)
{
	struct ring_message held;

	shape.history = 2;
	shape.in_flight = 3;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t n = 0; n < 3; n++) {
		sends(n);
		receives(0, n);
		held = n == 0 ? message : held;
		if (n > 0)
			acks(0);
	}
	leaves(0);
	cr_assert_eq(try_send(0, 3, 0), -EAGAIN);
	comes_back(1);
	nothing_comes_back();
	sends(3);
	cr_assert_eq(stats().dropped, 0);
	consumer_comes(1, true);
	receives(1, 2);
	cr_assert_eq(message_lost, 0);
	receives(1, 3);
	acks_this(0, &held, 0, false);
}

Test(ring_deserted, who_has_left_with_every_ticket_is_in_the_way)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t n = 0; n < 8; n++) {
		sends(n);
		receives(0, n);
	}
	leaves(0);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	nothing_comes_back();
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1);
	acks(0);
	comes_back(7);
	sends(8);
}

/* ------------------------------------------------------------------------------------------- */
/* A producer that waits for consumers                                                         */

static void finds_too_few(uint64_t number)
{
	cr_assert_eq(try_send(0, number, 0), -EAGAIN);
	cr_assert(ring_producer_lacks_consumers(producers[0]));
	cr_assert_not(ring_producer_lacks_tickets(producers[0]));
	cr_assert_eq(ring_producer_holdups(producers[0]), 0, "who is there is not in the way");
}

static void waits_for_two(uint32_t mode, uint32_t when_full)
{
	rig(mode, when_full, 0);
	ring_producer_wait_for(producers[0], 2);
	finds_too_few(0);
	consumer_comes(0, false);
	finds_too_few(0);
	consumer_comes(1, false);
	sends(0);
	cr_assert_not(ring_producer_lacks_consumers(producers[0]));
	leaves(0);
	finds_too_few(1);
	consumer_comes(2, false);
	sends(1);
	ring_producer_dismiss(producers[0], 1, true);
	finds_too_few(2);
	cr_assert_eq(stats().dropped, 0);
}

Test(ring_deserted, a_producer_waits_for_as_many_as_it_wants)
{
	for (size_t i = 0; i < WHENS; i++) {
		waits_for_two(CHANNEL_BROADCAST, whens[i]);
		waits_for_two(CHANNEL_QUEUE, whens[i]);
	}
}

Test(ring_deserted, each_of_those_who_are_waited_for_gets_every_message)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	ring_producer_wait_for(producers[0], 2);
	consumer_comes(0, false);
	finds_too_few(0);
	consumer_comes(1, false);
	for (uint64_t n = 0; n < 20; n++) {
		sends(n);
		uses(0, n);
		uses(1, n);
		comes_back(n);
	}
}
