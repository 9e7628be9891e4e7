/* SPDX-License-Identifier: MIT */

/* Members of a broadcast come and go: what they get, and who is waited for. */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_members, .timeout = 30);

static void broadcast(uint32_t n)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, n);
}

Test(ring_members, what_was_sent_to_nobody_waits_for_the_first_who_comes)
{
	broadcast(0);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	nothing_comes_back();
	consumer_comes(1, false);
	consumer_comes(0, false);
	receives_nothing(0);
	for (uint64_t i = 0; i < 4; i++) {
		uses(1, i);
		comes_back(i);
	}
	sends(4);
	uses(0, 4);
	uses(1, 4);
	comes_back(4);
}

Test(ring_members, who_begins_at_the_oldest_gets_what_is_still_there)
{
	broadcast(1);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	uses(0, 0);
	uses(0, 1);
	comes_back(0);
	receives(0, 2);
	consumer_comes(1, true);
	consumer_comes(2, false);
	receives(1, 1);
	acks(1);
	comes_back(1);
	receives(1, 2);
	receives(1, 3);
	receives_nothing(1);
	receives_nothing(2);
}

Test(ring_members, an_acknowledgement_in_between_ends_what_is_still_there)
{
	struct ring_message m[3];

	broadcast(1);
	for (uint64_t i = 0; i < 3; i++) {
		sends(i);
		receives(0, i);
		m[i] = message;
	}
	acks_this(0, &m[1], 0, false);
	comes_back(1);
	consumer_comes(1, true);
	receives(1, 2);
	receives_nothing(1);
}

Test(ring_members, a_dead_consumer_stops_counting)
{
	broadcast(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	receives(1, 0);
	for (uint64_t i = 0; i < 4; i++)
		uses(0, i);
	cr_assert_eq(try_send(0, 4, 0), 0);
	cr_assert_eq(try_send(0, 5, 0), -EAGAIN);
	ring_producer_dismiss(producers[0], 1, true);
	for (uint64_t i = 0; i < 4; i++)
		comes_back(i);
	sends(5);
	uses(0, 4);
	comes_back(4);
	cr_assert_eq(stats().left_behind, 0);
}

Test(ring_members, one_left_behind_keeps_what_it_has_and_gets_no_more)
{
	struct ring_message m;

	broadcast(2);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		uses(0, i);
	}
	receives(1, 0);
	m = message;
	ring_producer_dismiss(producers[0], 1, false);
	for (uint64_t i = 1; i < 4; i++)
		comes_back(i);
	nothing_comes_back();
	cr_assert_eq(stats().left_behind, 1);
	for (uint64_t i = 4; i < 11; i++) {
		sends(i);
		uses(0, i);
		comes_back(i);
	}
	cr_assert_eq(try_receive(1), -ESTALE);
	cr_assert_eq(message_producer, 0);
	receives_nothing(1);
	cr_assert(ring_consumer_is_empty(consumers[1], 0));
	acks_this(1, &m, 9, false);
	comes_back(0);
	cr_assert_eq(returned.fences[0].fence.slot, 9);
}

Test(ring_members, what_one_left_behind_has_comes_back_when_it_is_gone)
{
	broadcast(1);
	sends(1);
	receives(0, 1);
	ring_producer_dismiss(producers[0], 0, false);
	nothing_comes_back();
	ring_producer_dismiss(producers[0], 0, true);
	comes_back(1);
}

/* What a consumer may use: bit by ticket. */
static unsigned find_held(uint32_t consumer, uint64_t member)
{
	unsigned char bits[1] = {0};

	ring_producer_find_held(producers[0], consumer, member, bits);
	return bits[0];
}

Test(ring_members, what_is_left_to_somebody_else_comes_back_as_shared)
{
	unsigned held, behind_fence;

	broadcast(2);
	sends(0);
	uses(1, 0);
	receives(0, 0);
	held = 1u << message.ticket;
	sends(1);
	uses(0, 1);
	uses(1, 1);
	comes_back(1);
	cr_assert_not(returned.retained);
	sends(2);
	receives(1, 2);
	receives(0, 2);
	acks_this(0, &message, 9, false);
	behind_fence = 1u << message.ticket;
	nothing_comes_back();
	ring_producer_dismiss(producers[0], 0, false);
	nothing_comes_back();
	cr_assert_eq(find_held(0, consumer_members[0]), held | behind_fence);
	cr_assert_eq(find_held(CHANNEL_MEMBERS_MAX, consumer_members[0]), behind_fence);
	cr_assert_eq(find_held(CHANNEL_MEMBERS_MAX, consumer_members[0] + 100), 0);
	ring_producer_abandon(producers[0], 0);
	comes_back(0);
	cr_assert(returned.retained);
	nothing_comes_back();
	acks(1);
	comes_back(2);
	cr_assert_not(returned.retained);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 9);
}

Test(ring_members, a_slot_serves_one_after_the_other)
{
	broadcast(1);
	for (uint64_t i = 0; i < 100; i += 2) {
		sends(i);
		uses(0, i);
		sends(i + 1);
		receives(0, i + 1);
		ring_producer_dismiss(producers[0], 0, true);
		so_many_come_back(2);
		consumer_comes(0, false);
		receives_nothing(0);
	}
}

Test(ring_members, a_new_producer_in_the_slot_of_an_old_one_starts_from_zero)
{
	struct ring_message m;

	broadcast(1);
	sends(1);
	sends(2);
	uses(0, 1);
	receives(0, 2);
	m = message;
	ring_consumer_detach(consumers[0], 0);
	receives_nothing(0);
	acks_this(0, &m, 0, false); /* its row still is there */
	comes_back(1);
	comes_back(2);
	uint64_t old = producer_members[0];

	producer_comes(0);
	sends(10);
	/* late, and for the one before: the same ticket and version */
	ring_consumer_ack(consumers[0], 0, old, 0, 1, (struct ring_fence){0, 0}, false);
	nothing_comes_back();
	uses(0, 10);
	comes_back(10);
}
