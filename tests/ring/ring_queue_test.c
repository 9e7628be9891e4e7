/* SPDX-License-Identifier: MIT */

/*
 * The ring as a queue, where every message goes to one consumer, and to another one when that is
 * gone; and where the sender says to whom (the replies of a service).
 */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_queue, .timeout = 30);

static void queue(uint32_t n)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, n);
}

static void dies(uint32_t consumer)
{
	ring_producer_dismiss(producers[0], consumer, true);
}

Test(ring_queue, every_message_goes_to_one_consumer_in_turn)
{
	queue(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	uses(1, 0);
	uses(1, 2);
	receives_nothing(1);
	uses(0, 1);
	uses(0, 3);
	receives_nothing(0);
	so_many_come_back(4);
}

Test(ring_queue, the_one_with_the_fewest_on_hand_gets_the_next)
{
	queue(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	uses(1, 0);
	uses(1, 2);
	sends(4);
	sends(5);
	uses(1, 4);
	uses(1, 5);
	receives(0, 1);
	sends(6); /* 0 has two, one of them received */
	uses(1, 6);
	receives_nothing(1);
}

Test(ring_queue, one_full_lane_does_not_keep_others_from_getting_more)
{
	queue(2);
	for (uint64_t i = 0; i < 8; i++)
		sends(i);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 3);
	uses(1, 0);
	comes_back(0);
	sends(8);
	cr_assert_eq(try_send(0, 9, 0), -EAGAIN);
	for (uint64_t i = 2; i < 8; i += 2)
		uses(1, i);
	uses(1, 8);
	receives_nothing(1);
}

Test(ring_queue, what_was_sent_to_nobody_waits_for_the_first_who_comes)
{
	queue(0);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert(ring_producer_has_backlog(producers[0]));
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	consumer_comes(2, false);
	cr_assert_not(ring_producer_has_backlog(producers[0]));
	for (uint64_t i = 0; i < 4; i++) {
		uses(2, i);
		cr_assert_eq(message.deliveries, 1);
		cr_assert_eq(message.number, i);
		comes_back(i);
	}
	sends(4);
	uses(2, 4);
}

Test(ring_queue, done_is_up_to_where_every_message_is_done_with)
{
	queue(2);
	cr_assert_eq(stats().done, 0);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	uses(0, 1);
	uses(0, 3);
	so_many_come_back(2);
	cr_assert_eq(stats().done, 0);
	uses(1, 0);
	so_many_come_back(1);
	cr_assert_eq(stats().done, 2, "the third is under way");
	uses(1, 2);
	so_many_come_back(1);
	cr_assert_eq(stats().done, 4);
}

Test(ring_queue, what_a_dead_consumer_had_goes_to_others_marked)
{
	queue(1);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	uses(0, 0);
	receives(0, 1);
	receives(0, 2);
	dies(0);
	consumer_comes(1, false);
	uses(1, 1);
	cr_assert_eq(message.deliveries, 2);
	cr_assert_eq(message.number, 1);
	uses(1, 2);
	cr_assert_eq(message.deliveries, 2);
	uses(1, 3);
	cr_assert_eq(message.deliveries, 1, "it had not received this one");
	receives_nothing(1);
	so_many_come_back(4);
	cr_assert_eq(stats().redelivered, 2);
}

Test(ring_queue, what_goes_to_others_comes_before_what_waits)
{
	queue(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i); /* 0 and 2 to consumer 1 */
	dies(0);
	/* 0, 2, 1, 3: it is full; the next would wait */
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	uses(1, 0);
	uses(1, 2);
	sends(4);
	uses(1, 1);
	uses(1, 3);
	uses(1, 4);
	receives_nothing(1);
}

Test(ring_queue, more_may_have_to_go_to_others_than_they_have_room_for)
{
	queue(2);
	for (uint64_t i = 0; i < 8; i++)
		sends(i);
	receives(0, 1);
	dies(0);
	cr_assert(ring_producer_has_backlog(producers[0]));
	for (uint64_t i = 0; i < 8; i += 2) {
		uses(1, i);
		comes_back(i);
	}
	cr_assert_not(ring_producer_has_backlog(producers[0]));
	for (uint64_t i = 1; i < 8; i += 2) {
		uses(1, i);
		cr_assert_eq(message.deliveries, i == 1 ? 2 : 1);
		comes_back(i);
	}
	nothing_comes_back();
}

Test(ring_queue, a_message_delivered_too_often_is_set_aside)
{
	queue(1);
	sends(1);
	receives(0, 1);
	dies(0);
	consumer_comes(1, false);
	receives(1, 1);
	dies(1);
	consumer_comes(2, false);
	receives_nothing(2);
	cr_assert(ring_producer_reclaim(producers[0], false, &returned));
	cr_assert(returned.set_aside);
	cr_assert_eq(returned.n, 0);
	cr_assert_eq(returned.message->buffer, 1001);
	cr_assert_eq(returned.message->number, 0);
	cr_assert_eq(returned.message->deliveries, 2);
	cr_assert_eq(returned.message->data[0], 1);
	ring_producer_retire(producers[0], returned.ticket);
	nothing_comes_back();
	cr_assert_eq(stats().set_aside, 1);
}

Test(ring_queue, an_acknowledgement_right_before_death_counts)
{
	queue(1);
	sends(1);
	receives(0, 1);
	acks_this(0, &message, 6, false);
	dies(0);
	consumer_comes(1, false);
	receives_nothing(1);
	comes_back(1);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].owner->member, consumer_members[0]);
	cr_assert_eq(returned.fences[0].fence.slot, 6);
}

/* Both may use it now: it is back when neither does. */
Test(ring_queue, what_one_left_behind_has_goes_to_another_and_comes_back_from_both)
{
	struct ring_message m;

	queue(1);
	sends(1);
	sends(2);
	receives(0, 1);
	m = message;
	ring_producer_dismiss(producers[0], 0, false);
	consumer_comes(1, false);
	uses(1, 1);
	cr_assert_eq(message.deliveries, 2);
	cr_assert_eq(message.version, m.version);
	cr_assert_eq(message.ticket, m.ticket);
	uses(1, 2);
	cr_assert_eq(message.deliveries, 1);
	comes_back(2);
	nothing_comes_back();
	cr_assert_eq(try_receive(0), -ESTALE);
	acks_this(0, &m, 8, false);
	comes_back(1);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 8);
}

Test(ring_queue, who_was_left_behind_and_dies_keeps_nothing)
{
	queue(2);
	sends(1);
	receives(1, 1);
	ring_producer_dismiss(producers[0], 1, false);
	uses(0, 1);
	nothing_comes_back();
	dies(1);
	comes_back(1);
	nothing_comes_back();
}

/* The one given up acknowledges late, when the message is about to be set aside. */
Test(ring_queue, a_message_that_was_acknowledged_late_is_not_set_aside)
{
	struct ring_message m;

	shape.deliveries = 1;
	queue(1);
	sends(1);
	receives(0, 1);
	m = message;
	ring_producer_dismiss(producers[0], 0, false);
	nothing_comes_back();
	acks_this(0, &m, 0, false);
	comes_back(1);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(stats().set_aside, 0);
}

Test(ring_queue, messages_survive_as_many_deaths_as_they_are_not_received)
{
	queue(1);
	sends(1);
	for (uint32_t i = 0; i < 20; i++) {
		dies(i % 2);
		consumer_comes((i + 1) % 2, false);
	}
	uses(0, 1);
	cr_assert_eq(message.deliveries, 1);
	comes_back(1);
}

Test(ring_queue, a_producer_with_one_full_consumer_sleeps_on_its_futex)
{
	struct ring_sleep sleep;

	queue(1);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	ring_producer_sleep(producers[0], false, &sleep);
	cr_assert_not_null(sleep.word);
	receives(0, 0);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 0);
	cr_assert_neq(*sleep.word, sleep.value);
}

Test(ring_queue, who_gets_what_another_had_is_woken_for_it)
{
	struct ring_sleep sleep;

	queue(2);
	sends(1);
	(void)ring_producer_wake(producers[0]);
	ring_consumer_sleep(consumers[0], true, &sleep);
	dies(1);
	cr_assert_eq(ring_producer_wake(producers[0]), 1);
	receives(0, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Replies                                                                                     */

static void direct(uint32_t n)
{
	rig(CHANNEL_DIRECT, SHARE_FULL_FAIL, n);
}

Test(ring_queue, a_reply_goes_to_whom_it_is_sent)
{
	direct(3);
	sends_to(1, 2);
	sends_to(2, 0);
	receives_nothing(1);
	uses(2, 1);
	uses(0, 2);
	so_many_come_back(2);
	cr_assert_eq(try_send(0, 3, 3), -ENOENT);
	cr_assert_eq(try_send(0, 3, 99), -ENOENT);
	dies(2);
	cr_assert_eq(try_send(0, 3, 2), -ENOENT);
}

Test(ring_queue, who_acknowledges_no_replies_takes_nobody_elses_tickets)
{
	direct(2);
	for (uint64_t i = 0; i < 4; i++) {
		sends_to(i, 0);
		receives(0, i);
	}
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1);
	for (uint64_t i = 10; i < 14; i++) {
		sends_to(i, 1);
		uses(1, i);
		comes_back(i);
	}
	message_producer = 0;
	dies(0);
	so_many_come_back(4);
}

Test(ring_queue, a_full_target_gets_more_when_what_it_has_acknowledged_is_retired)
{
	struct ring_message m;

	direct(1);
	for (uint64_t i = 0; i < 4; i++) {
		sends_to(i, 0);
		receives(0, i);
	}
	m = message; /* the last of them */
	acks_this(0, &m, 0, false);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert(ring_producer_lacks_tickets(producers[0]));
	so_many_come_back(1);
	sends_to(4, 0);
	cr_assert_eq(try_send(0, 5, 0), -EAGAIN);
}

Test(ring_queue, replies_to_the_dead_go_to_nobody)
{
	direct(2);
	sends_to(1, 0);
	sends_to(2, 0);
	receives(0, 1);
	dies(0);
	so_many_come_back(2);
	receives_nothing(1);
	cr_assert_eq(stats().redelivered, 0);
	cr_assert_eq(stats().set_aside, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Acknowledged by one who was left behind                                                     */

/* The only consumer is left behind with a message, acknowledges it behind its stream, closes the
 * channel, and opens it again. */
static void one_is_left_behind_acknowledges_and_comes_again(void)
{
	struct ring_message held;

	shape.consumers = 1;
	shape.deliveries = 3;
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(0);
	receives(0, 0);
	held = message;
	ring_producer_dismiss(producers[0], 0, false);
	acks_this(0, &held, 5, false);
	ring_producer_dismiss(producers[0], 0, true);
	consumer_comes(0, false);
}

Test(ring_queue, what_one_left_behind_has_acknowledged_goes_to_nobody)
{
	one_is_left_behind_acknowledges_and_comes_again();
	receives_nothing(0);
	comes_back(0);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
}

Test(ring_queue, what_is_acknowledged_while_it_waits_for_others_goes_to_nobody)
{
	struct ring_message held;

	shape.consumers = 2;
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(0);
	receives(0, 0);
	held = message;
	ring_producer_dismiss(producers[0], 0, false);
	acks_this(0, &held, 5, false);
	consumer_comes(1, false);
	receives_nothing(1);
	comes_back(0);
	cr_assert_eq(returned.n, 1);
}
