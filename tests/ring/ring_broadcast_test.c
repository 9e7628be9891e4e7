/* SPDX-License-Identifier: MIT */

/*
 * The ring in broadcast, and what is the same in all modes: messages, acknowledgements, tickets,
 * room, bells.
 */

#include <errno.h>
#include <string.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_broadcast, .timeout = 30);

static void broadcast(uint32_t n)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, n);
}

Test(ring_broadcast, every_consumer_gets_every_message_in_order)
{
	broadcast(3);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	for (uint32_t c = 0; c < 3; c++) {
		for (uint64_t i = 0; i < 4; i++) {
			uses(c, i);
			cr_assert_eq(message.number, i);
			cr_assert_eq(message.deliveries, 1);
			cr_assert_eq(message_lost, 0);
		}
		receives_nothing(c);
	}
}

Test(ring_broadcast, a_message_comes_back_once_all_have_acknowledged_it)
{
	broadcast(2);
	sends(1);
	uses(0, 1);
	nothing_comes_back();
	receives(1, 1);
	nothing_comes_back();
	acks(1);
	comes_back(1);
	cr_assert_eq(returned.n, 0);
	cr_assert_not(returned.retained);
	nothing_comes_back();
}

Test(ring_broadcast, messages_are_acknowledged_in_any_order)
{
	struct ring_message m[4];

	broadcast(1);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		receives(0, i);
		m[i] = message;
	}
	acks_this(0, &m[2], 0, false);
	comes_back(2);
	nothing_comes_back();
	acks_this(0, &m[3], 0, false);
	acks_this(0, &m[0], 0, false);
	so_many_come_back(2);
	acks_this(0, &m[1], 0, false);
	comes_back(1);
}

/* A call looks at little; but whoever goes on calling finds everything. */
Test(ring_broadcast, a_slow_message_does_not_keep_back_those_behind_it)
{
	uint32_t found = 0;

	shape.depth = 64;
	shape.in_flight = 64;
	broadcast(1);
	for (uint64_t i = 0; i < 64; i++) {
		sends(i);
		receives(0, i);
		if (i % 2)
			acks(0);
	}
	for (uint32_t calls = 0; calls < 100; calls++)
		if (ring_producer_reclaim(producers[0], false, &returned)) {
			cr_assert_eq((uintptr_t)returned.reference % 2, 1);
			found++;
		}
	cr_assert_eq(found, 32);
}

Test(ring_broadcast, fences_come_back_with_whose_they_are)
{
	broadcast(3);
	sends(1);
	receives(0, 1);
	acks_this(0, &message, 5, false);
	receives(1, 1);
	acks_this(1, &message, 0, true);
	receives(2, 1);
	acks_this(2, &message, 255, false);
	comes_back(1);
	cr_assert(returned.retained);
	cr_assert_eq(returned.n, 2);
	cr_assert_eq(returned.fences[0].owner->member, consumer_members[0]);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
	cr_assert_eq(returned.fences[0].fence.value, 50);
	cr_assert_eq(returned.fences[1].owner->member, consumer_members[2]);
	cr_assert_eq(returned.fences[1].fence.slot, 255);
}

Test(ring_broadcast, the_fence_of_one_who_has_left_still_counts)
{
	broadcast(2);
	sends(1);
	receives(0, 1);
	acks_this(0, &message, 5, false);
	ring_producer_dismiss(producers[0], 0, true);
	uses(1, 1);
	comes_back(1);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].owner->member, consumer_members[0]);
	cr_assert_eq(returned.fences[0].owner->fences, 1, "its owner is remembered until then");
	cr_assert_eq(returned.fences[0].fence.slot, 5);
}

Test(ring_broadcast, so_it_does_when_somebody_new_in_its_place_acknowledges_the_same_message)
{
	uint64_t gone;

	broadcast(2);
	gone = consumer_members[0];
	sends(1);
	receives(0, 1);
	acks_this(0, &message, 5, false);
	ring_producer_dismiss(producers[0], 0, true);
	consumer_comes(0, true);
	receives(0, 1);
	acks_this(0, &message, 6, false);
	uses(1, 1);
	comes_back(1);
	cr_assert_eq(returned.n, 2);
	cr_assert_eq(returned.fences[0].owner->member, gone);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
	cr_assert_eq(returned.fences[1].owner->member, consumer_members[0]);
	cr_assert_eq(returned.fences[1].fence.slot, 6);
}

/* As many fences fit as there may be consumers: a message that has so many gets no more readers. */
Test(ring_broadcast, however_many_come_one_after_the_other_no_fence_is_lost)
{
	uint64_t gone[RIG_CONSUMERS];
	uint32_t n = 0;

	broadcast(2);
	sends(1);
	for (int i = 0; i < 2 * RIG_CONSUMERS; i++) {
		consumer_comes(0, true);
		if (try_receive(0) == 1) {
			cr_assert_lt(n, RIG_CONSUMERS);
			gone[n++] = consumer_members[0];
			acks_this(0, &message, 5, false);
		}
		ring_producer_dismiss(producers[0], 0, true);
	}
	cr_assert_gt(n, 1);
	receives(1, 1);
	acks_this(1, &message, 7, false);
	comes_back(1);
	cr_assert_eq(returned.n, n + 1);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(returned.fences[i].owner->member, gone[i]);
	cr_assert_eq(returned.fences[n].owner->member, consumer_members[1]);
}

Test(ring_broadcast, there_is_room_for_as_many_as_were_not_received)
{
	broadcast(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	for (uint64_t i = 0; i < 4; i++)
		receives(0, i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 2);
	receives(1, 0);
	sends(4);
	cr_assert_eq(try_send(0, 5, 0), -EAGAIN);
}

Test(ring_broadcast, there_is_room_for_as_many_as_were_not_acknowledged)
{
	broadcast(2);
	for (uint64_t i = 0; i < 8; i++) {
		sends(i);
		uses(0, i);
		receives(1, i);
	}
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 2);
	cr_assert_eq(stats().in_flight, 8);
	acks(1);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN, "it was not reclaimed yet");
	comes_back(7);
	sends(8);
}

Test(ring_broadcast, a_ticket_stays_in_use_until_it_is_retired)
{
	struct channel_ticket *ticket;

	shape.in_flight = 1;
	broadcast(1);
	sends(1);
	ticket = channel_ticket_at(rings[0], &shape, 0);
	cr_assert_eq(ticket->buffer, 1001);
	cr_assert_eq(ticket->version, 1);
	uses(0, 1);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq(ticket->buffer, 1001);
	cr_assert_eq(try_send(0, 2, 0), -EAGAIN);
	ring_producer_retire(producers[0], returned.ticket);
	cr_assert_eq(ticket->buffer, 0);
	ring_producer_retire(producers[0], returned.ticket);
	sends(2);
	cr_assert_eq(try_send(0, 3, 0), -EAGAIN, "a ticket is retired once");
	cr_assert_eq(ticket->version, 2);
}

Test(ring_broadcast, goes_round_many_times)
{
	broadcast(2);
	for (uint64_t i = 0; i < 1000; i++) {
		sends(i);
		uses(0, i);
		uses(1, i);
		comes_back(i);
	}
	cr_assert_eq(stats().sent, 1000);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_broadcast, messages_have_data_of_any_size)
{
	unsigned char data[CHANNEL_DATA_NEAR];
	struct ring_message m = {.data = data};

	shape.data_max = CHANNEL_DATA_NEAR - 3;
	broadcast(1);
	for (uint32_t size = 0; size <= shape.data_max; size++) {
		m.data_size = size;
		memset(data, (int)size, sizeof(data));
		cr_assert_eq(ring_producer_send(producers[0], &m, 0, NULL), 0);
		cr_assert_eq(try_receive(0), 1);
		cr_assert_eq(message.data_size, size);
		cr_assert_eq(memcmp(message.data, data, size), 0);
		cr_assert_eq(message.data[size], 0xee, "nothing is written behind it");
		cr_assert_eq(message.buffer, 0);
		acks(0);
		cr_assert(ring_producer_reclaim(producers[0], true, &returned));
		ring_producer_retire(producers[0], returned.ticket);
	}
	m.data_size = shape.data_max + 1;
	cr_assert_eq(ring_producer_send(producers[0], &m, 0, NULL), -EINVAL);
}

/* ------------------------------------------------------------------------------------------- */
/* Several producers, and what a consumer knows                                                */

Test(ring_broadcast, producers_are_received_from_in_turn)
{
	broadcast(1);
	producer_comes(1);
	for (uint64_t i = 0; i < 3; i++) {
		sends(i);
		cr_assert_eq(try_send(1, 100 + i, 0), 0);
	}
	for (uint64_t i = 0; i < 3; i++) {
		receives(0, i);
		cr_assert_eq(message_producer, 0);
		receives(0, 100 + i);
		cr_assert_eq(message_producer, 1);
	}
	cr_assert_eq(ring_consumer_held(consumers[0], 0), 3);
	cr_assert_eq(ring_consumer_held(consumers[0], 1), 3);
	acks(0);
	cr_assert_eq(ring_consumer_held(consumers[0], 1), 2);
	cr_assert(ring_consumer_is_empty(consumers[0], 0));
	sends(4);
	cr_assert_not(ring_consumer_is_empty(consumers[0], 0));
}

Test(ring_broadcast, a_consumer_has_moved_when_it_has_taken_or_acknowledged)
{
	broadcast(1);
	sends(1);
	(void)ring_producer_has_moved(producers[0], 0);
	cr_assert_not(ring_producer_has_moved(producers[0], 0));
	receives(0, 1);
	cr_assert(ring_producer_has_moved(producers[0], 0));
	cr_assert_not(ring_producer_has_moved(producers[0], 0));
	acks(0);
	cr_assert(ring_producer_has_moved(producers[0], 0));
	cr_assert_not(ring_producer_has_moved(producers[0], 0));
	comes_back(1);
}

/* So that the line with its acknowledgement is not pulled to and fro between two processors. */
Test(ring_broadcast, a_ticket_comes_again_when_all_others_have)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 3 * shape.in_flight; i++) {
		sends(i);
		uses(0, i);
		cr_assert_eq(message.ticket, i % shape.in_flight);
		cr_assert_eq(message.version, i / shape.in_flight + 1);
		comes_back(i);
	}
}
