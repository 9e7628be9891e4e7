/* SPDX-License-Identifier: MIT */

/*
 * Consumers that get the latest message alone: what they get, what they are told, and that nobody
 * ever waits for them. What two processes can do at the same moment is played here step by step,
 * with the page of one of them set to what the other would see.
 */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_latest, .timeout = 30);

static struct channel_admission *admission(uint32_t consumer)
{
	return channel_admission_at(rings[0], &shape, consumer);
}

static struct channel_row *row(uint32_t consumer)
{
	return channel_row_at(ledgers[consumer], &shape, 0);
}

/* One that gets all, slot 0, and one that gets the latest, slot 1. */
static void two_come(uint32_t when_full)
{
	rig(CHANNEL_BROADCAST, when_full, 1);
	latest_comes(1, false);
}

/* As programs do: what is back makes room. */
static void sends_anyhow(uint64_t number)
{
	for (int i = 0; i < 3; i++) {
		int r;

		while (ring_producer_reclaim(producers[0], true, &returned))
			ring_producer_retire(producers[0], returned.ticket);
		r = try_send(0, number, 0);
		if (r == 0)
			return;
		cr_assert_eq(r, -EAGAIN);
	}
	cr_assert_fail("no room for %lu", (unsigned long)number);
}

Test(ring_latest, the_latest_comes_and_how_many_were_missed)
{
	two_come(SHARE_FULL_BLOCK);
	sends(0);
	receives(1, 0);
	cr_assert_eq(message_lost, 0);
	acks(1);
	for (uint64_t i = 1; i < 4; i++)
		sends(i);
	receives(1, 3);
	cr_assert_eq(message_lost, 2);
	receives_nothing(1);
	for (uint64_t i = 0; i < 4; i++)
		receives(0, i);
}

Test(ring_latest, nobody_waits_for_who_never_receives)
{
	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 1000; i++) {
		sends_anyhow(i);
		uses(0, i);
	}
	receives(1, 999);
	cr_assert_eq(message_lost, 999);
	cr_assert_eq(stats().dropped, 0, "nobody else has missed anything");
	comes_back(998);
	acks(1);
	comes_back(999);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_latest, nobody_waits_where_nobody_else_is_there)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_FAIL, 0);
	latest_comes(1, false);
	latest_comes(2, false);
	for (uint64_t i = 0; i < 1000; i++) {
		sends_anyhow(i);
		if (i % 7 == 0)
			uses(2, i);
	}
	receives(1, 999);
	receives(2, 999);
	cr_assert_eq(message_lost, 4);
}

Test(ring_latest, data_alone_comes_back_as_well)
{
	void *references[4];
	uint64_t data;

	rig(CHANNEL_BROADCAST, SHARE_FULL_FAIL, 0);
	latest_comes(0, false);
	for (uint64_t i = 0; i < 100; i++) {
		sends_data(i);
		ring_producer_retire_plain(producers[0], 4, references);
	}
	cr_assert_eq(try_receive(0), 1);
	memcpy(&data, message.data, sizeof(data));
	cr_assert_eq(data, 99);
	cr_assert_eq(message_lost, 99);
}

Test(ring_latest, others_are_waited_for_as_ever)
{
	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1 << 0);
	/* nothing was dropped for it in vain */
	receives(1, 3);
	receives(0, 0);
	sends(4);
	receives(1, 4);
}

Test(ring_latest, a_message_comes_back_when_the_others_are_done_with_it)
{
	two_come(SHARE_FULL_BLOCK);
	sends(0);
	uses(0, 0);
	nothing_comes_back(); /* it is the latest */
	sends(1);
	comes_back(0);
	receives(1, 1);
	cr_assert_eq(message_lost, 1);
	uses(0, 1);
	sends(2);
	uses(0, 2);
	nothing_comes_back(); /* 1 is its own */
	acks_this(1, &(struct ring_message){.ticket = 1, .version = 1}, 0, false);
	comes_back(1);
}

Test(ring_latest, what_it_holds_stays_its_own)
{
	struct ring_message held[2];

	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 2; i++) {
		sends(i);
		uses(0, i);
		receives(1, i);
		held[i] = message;
	}
	for (uint64_t i = 2; i < 1000; i++) {
		sends_anyhow(i);
		uses(0, i);
		cr_assert_geq(stats().in_flight, 3);
	}
	while (ring_producer_reclaim(producers[0], true, &returned))
		ring_producer_retire(producers[0], returned.ticket);
	cr_assert_eq(stats().in_flight, 3, "these two, and the latest");
	for (int i = 0; i < 2; i++) {
		acks_this(1, &held[i], 0, false);
		comes_back((uint64_t)i);
	}
}

Test(ring_latest, with_no_ticket_left_the_latest_makes_room)
{
	shape.in_flight = 3;
	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 2; i++) {
		sends_anyhow(i);
		uses(0, i);
		receives(1, i);
	}
	for (uint64_t i = 2; i < 100; i++) {
		sends_anyhow(i);
		uses(0, i);
	}
	receives(1, 99);
	cr_assert_eq(message_lost, 97);
}

Test(ring_latest, who_has_two_is_in_nobodys_way_and_who_has_more_is)
{
	shape.in_flight = 3;
	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 3; i++) {
		sends_anyhow(i);
		receives(0, i);
		receives(1, i);
		if (i == 1) {
			cr_assert_eq(ring_producer_keepers(producers[0]), 1 << 0);
			cr_assert_eq(stats().done, 0);
		}
	}
	cr_assert_eq(try_send(0, 3, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1 << 0 | 1 << 1);
	acks(1);
	acks(0);
	sends_anyhow(3);
	receives(0, 3);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1 << 0);
}

Test(ring_latest, it_can_begin_at_what_was_sent_before_it_came)
{
	shape.history = 2;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 3; i++) {
		sends(i);
		uses(0, i);
	}
	latest_comes(1, true);
	receives(1, 2);
	receives_nothing(1);
	for (uint64_t i = 3; i < 100; i++) {
		sends_anyhow(i);
		uses(0, i);
	}
}

Test(ring_latest, where_the_oldest_is_dropped_it_gets_the_latest_as_well)
{
	two_come(SHARE_FULL_DROP);
	for (uint64_t i = 0; i < 100; i++)
		sends_anyhow(i);
	receives(1, 99);
	cr_assert_eq(message_lost, 99);
	receives(0, 96);
	cr_assert_eq(message_lost, 96);
}

Test(ring_latest, who_has_got_the_latest_has_nothing_left_at_the_end)
{
	uint32_t who;

	two_come(SHARE_FULL_BLOCK);
	sends(0);
	sends(1);
	ring_producer_sends_no_more(producers[0]);
	cr_assert_not(ring_consumer_end(consumers[1], &who));
	uses(1, 1);
	cr_assert(ring_consumer_end(consumers[1], &who));
}

/* ------------------------------------------------------------------------------------------- */
/* At the same moment                                                                          */

/* It was passed over when we had said that we have taken it, and the producer saw that. */
Test(ring_latest, what_was_passed_over_while_it_was_taken_is_acknowledged_unseen)
{
	two_come(SHARE_FULL_BLOCK);
	sends(0);
	sends(1);
	admission(1)->head = 2; /* and number 2 is on its way */
	receives_nothing(1);
	admission(1)->head = 0;
	channel_lane_at(rings[0], &shape, 0)->tail = 3;
	channel_entry_at(rings[0], &shape, 0, 2)->sequence = 0;
	receives_nothing(1);
	cr_assert_eq(row(1)->taken, 2);
	cr_assert_eq(ring_consumer_held(consumers[1], 0), 0);
}

/* It has raised the head, and sees that we are beyond it before it looks at what we had taken. */
Test(ring_latest, what_is_below_the_head_is_acknowledged_as_well)
{
	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 3; i++)
		sends(i);
	admission(1)->head = 2;
	receives(1, 2);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(row(1)->acks[i].word, UINT64_C(1) << 32);
}

/* Whoever stops there, or dies, keeps nothing that it has not got. */
Test(ring_latest, what_is_left_out_is_acknowledged_before_it_is_said_that_it_was_passed)
{
	struct ring_message m;

	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		uses(0, i);
	}
	receives(1, 3);
	m = message;
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(row(1)->acks[i].word, UINT64_C(1) << 32);
	cr_assert_eq(row(1)->acks[3].word, 0);
	so_many_come_back(3);
	acks_this(1, &m, 0, false);
	comes_back(3);
}

/* ------------------------------------------------------------------------------------------- */
/* Hostile pages                                                                               */

static void two_messages(void)
{
	two_come(SHARE_FULL_BLOCK);
	sends(0);
	sends(1);
}

Test(ring_latest, a_tail_that_cannot_be_gives_nothing, .init = two_messages)
{
	struct channel_lane *lane = channel_lane_at(rings[0], &shape, 0);

	for (int i = 0; i < 64; i++) {
		lane->tail = UINT64_MAX >> i;
		if (lane->tail > 2)
			receives_nothing(1);
	}
	lane->tail = 2;
	receives(1, 1);
	lane->tail = 0; /* back */
	receives_nothing(1);
	cr_assert(ring_consumer_is_empty(consumers[1], 0));
}

Test(ring_latest, a_head_that_cannot_be_harms_who_says_it, .init = two_messages)
{
	admission(1)->head = UINT64_MAX;
	receives_nothing(1);
	admission(1)->head = 0;
	sends(2);
	receives(1, 2);
}

Test(ring_latest, an_entry_that_makes_no_sense_is_refused, .init = two_messages)
{
	channel_entry_at(rings[0], &shape, 0, 1)->ticket = (uint16_t)shape.in_flight;
	cr_assert_eq(try_receive(1), -EPROTO);
	receives_nothing(1);
}

Test(ring_latest, the_same_ticket_twice_is_refused, .init = two_messages)
{
	receives(1, 1);
	sends(2);
	channel_entry_at(rings[0], &shape, 0, 2)->ticket = 1;
	cr_assert_eq(try_receive(1), -EPROTO);
}

Test(ring_latest, what_is_left_out_may_be_anything, .init = two_messages)
{
	struct channel_entry *e = channel_entry_at(rings[0], &shape, 0, 0);

	e->ticket = UINT16_MAX;
	e->version = 0;
	receives(1, 1);
	for (uint32_t i = 0; i < shape.in_flight; i++)
		cr_assert_eq(row(1)->acks[i].word, 0);
	/* what we hold is not acknowledged by what is said to be older */
	sends(2);
	sends(3);
	e = channel_entry_at(rings[0], &shape, 0, 2);
	e->ticket = 1;
	e->version = 1;
	receives(1, 3);
	cr_assert_eq(row(1)->acks[1].word, 0);
}

Test(ring_latest, a_consumer_that_says_to_have_got_further_harms_itself)
{
	two_come(SHARE_FULL_BLOCK);
	row(1)->taken = UINT64_MAX;
	for (uint64_t i = 0; i < 8; i++) {
		sends_anyhow(i);
		uses(0, i);
	}
	/* it seems to hold them all: it is left behind in the end, as others are */
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1 << 1);
	ring_producer_dismiss(producers[0], 1, false);
	cr_assert_eq(try_receive(1), -ESTALE);
}

/* The one that has all gives the latest back, and keeps the others: nobody rings after that. */
Test(ring_latest, who_is_about_to_sleep_is_told_that_the_latest_gave_way)
{
	struct ring_message held[8];
	struct ring_sleep sleep;

	two_come(SHARE_FULL_BLOCK);
	for (uint64_t i = 0; i < 8; i++) {
		sends(i);
		receives(0, i);
		held[i] = message;
	}
	nothing_comes_back();
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_not(ring_producer_has_made_way(producers[0]));
	acks_this(0, &held[7], 0, false);
	ring_producer_sleep(producers[0], true, &sleep);
	nothing_comes_back();
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert(ring_producer_has_made_way(producers[0]));
	comes_back(7);
	sends(8);
	ring_producer_awake(producers[0]);
	receives(1, 8);
	cr_assert_eq(message_lost, 8);
}

Test(ring_latest, who_dies_gives_back_what_it_had)
{
	two_come(SHARE_FULL_BLOCK);
	sends(0);
	uses(0, 0);
	receives(1, 0);
	sends(1);
	uses(0, 1);
	nothing_comes_back();
	ring_producer_dismiss(producers[0], 1, true);
	so_many_come_back(2);
}
