/* SPDX-License-Identifier: MIT */

/* Messages of several buffers: sent, received and acknowledged as a whole, by a ticket for each. */

#include <errno.h>

#include "tests/harness/steps.h"
#include "tests/ring/ring_several.h"

TestSuite(ring_several, .timeout = 30);

static void several_rig(uint32_t when_full, uint32_t n)
{
	shape.buffers = MOST;
	rig(CHANNEL_BROADCAST, when_full, n);
}

Test(ring_several, a_message_is_received_and_comes_back_as_a_whole)
{
	several_rig(SHARE_FULL_BLOCK, 2);
	for (uint64_t number = 1; number <= 100; number++) {
		uint32_t n = 1 + number % MOST;

		sends_several(number, n);
		cr_assert_eq(stats().in_flight, n);
		cr_assert_eq(tickets_in_use(), n);
		receives_several(0, number, n);
		acks_several(0, 0);
		nothing_comes_back();
		receives_several(1, number, n);
		acks_several(1, 0);
		several_come_back(number, n);
		nothing_comes_back();
		cr_assert_eq(tickets_in_use(), 0);
		cr_assert_eq(stats().in_flight, 0);
		cr_assert_eq(stats().sent, number);
		cr_assert_eq(stats().done, number);
	}
}

/* A ring that is full of one kind takes the other when there are tickets for all of it. */
Test(ring_several, there_is_room_for_all_of_it_or_for_none)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	sends_several(2, 3);
	cr_assert_eq(try_send_several(3, 3), -EAGAIN);
	cr_assert(ring_producer_lacks_tickets(producers[0]));
	cr_assert_eq(ring_producer_look_for_room(producers[0], 0, 0), -EAGAIN);
	cr_assert_eq(stats().in_flight, 6);
	sends(7);
	cr_assert_eq(stats().in_flight, 7);
	receives_several(0, 1, 3);
	acks_several(0, 0);
	several_come_back(1, 3);
	cr_assert_eq(try_send_several(3, MOST), 0);
	receives_several(0, 2, 3);
	acks_several(0, 0);
	uses(0, 7);
	receives_several(0, 3, MOST);
}

Test(ring_several, others_go_between_them_and_runs_end_at_them)
{
	struct ring_message m[8];
	unsigned char data[8][64];
	struct ring_further further[CHANNEL_BUFFERS_MAX];

	several_rig(SHARE_FULL_BLOCK, 1);
	sends_data(1);
	sends_several(2, 2);
	sends_data(3);
	for (int i = 0; i < 8; i++) {
		m[i].data = data[i];
		m[i].further = further;
	}
	cr_assert_eq(
	    ring_consumer_receive_run(consumers[0], &message_producer, m, 8, &message_lost), 1);
	cr_assert_eq(m[0].buffer, 0);
	receives_several(0, 2, 2);
	cr_assert_eq(
	    ring_consumer_receive_run(consumers[0], &message_producer, m, 8, &message_lost), 1);
	cr_assert_eq(m[0].number, 2);
}

Test(ring_several, each_of_its_buffers_may_be_kept_by_itself)
{
	several_rig(SHARE_FULL_BLOCK, 2);
	sends_several(1, MOST);
	receives_several(0, 1, MOST);
	acks_several(0, 1 << 0);
	receives_several(1, 1, MOST);
	acks_several(1, 1 << 2);
	several_come_back(1, MOST);
	cr_assert_not(returned.retained);
	cr_assert(returned.further_retained[0]);
	cr_assert_not(returned.further_retained[1]);
	cr_assert(returned.further_retained[2]);
	/* that is over with the ticket */
	sends_several(2, MOST);
	receives_several(0, 2, MOST);
	acks_several(0, 0);
	receives_several(1, 2, MOST);
	acks_several(1, 0);
	several_come_back(2, MOST);
	for (int i = 0; i < 3; i++)
		cr_assert_not(returned.further_retained[i]);
}

/* Whoever is left behind with these pays for all of them. */
Test(ring_several, a_consumer_says_how_many_buffers_it_has)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	sends(2);
	receives_several(0, 1, 3);
	has_further(0, 2);
	acks_several(0, 0);
	has_further(0, 0);
	receives(0, 2);
	has_further(0, 0);
	acks(0);
	so_many_come_back(2);
	sends_several(3, MOST);
	sends_several(4, 2);
	receives_several(0, 3, MOST);
	receives_several(0, 4, 2);
	has_further(0, MOST);
	acks_several(0, 1 << 0);
	has_further(0, MOST - 1);
}

Test(ring_several, as_many_go_as_it_takes_where_the_oldest_are_dropped)
{
	several_rig(SHARE_FULL_DROP, 1);
	for (uint64_t number = 1; number <= 50; number++) {
		uint32_t n = number % 5 == 0 ? MOST : 1, turns = 0;

		while (try_send_several(number, n) == -EAGAIN) {
			cr_assert_lt(turns++, 10);
			while (ring_producer_reclaim(producers[0], true, &returned))
				ring_producer_retire(producers[0], returned.ticket);
		}
	}
	cr_assert_eq(try_receive(0), 1);
	cr_assert_gt(message.number, 40);
	cr_assert_gt(message_lost, 40);
}

/* What its consumer holds is in the way of it, and does not go. */
Test(ring_several, nothing_is_dropped_for_what_finds_no_room_nevertheless)
{
	several_rig(SHARE_FULL_DROP, 1);
	for (uint64_t number = 1; number <= 5; number++) {
		sends(number);
		receives(0, number);
	}
	for (uint64_t number = 6; number <= 8; number++)
		sends(number);
	for (int turn = 0; turn < 10; turn++) {
		cr_assert_eq(try_send_several(9, MOST), -EAGAIN);
		cr_assert_not(ring_producer_has_made_way(producers[0]));
		nothing_comes_back();
	}
	receives(0, 6);
	cr_assert_eq(message_lost, 0);
	acks(0);
	uses(0, 7);
	uses(0, 8);
	so_many_come_back(3);
	sends_several(9, 3);
}

/* The latest stays for who gets it alone, as long as something else is in the way all the same. */
Test(ring_several, the_latest_does_not_give_way_in_vain)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	latest_comes(1, false);
	for (uint64_t number = 1; number <= 5; number++) {
		sends(number);
		receives(0, number); /* and keeps it */
	}
	sends_several(6, 2);
	receives_several(0, 6, 2);
	acks_several(0, 0);
	for (int turn = 0; turn < 10; turn++) {
		nothing_comes_back();
		cr_assert_eq(try_send_several(7, MOST), -EAGAIN);
		cr_assert_not(ring_producer_has_made_way(producers[0]));
	}
	cr_assert_not(ring_consumer_is_empty(consumers[1], 0));
	cr_assert_eq(try_send_several(7, 3), -EAGAIN);
	cr_assert(ring_producer_has_made_way(producers[0]));
	several_come_back(6, 2);
	sends_several(7, 3);
	receives_several(1, 7, 3);
}

Test(ring_several, who_comes_later_gets_those_that_are_kept)
{
	shape.history = 1;
	several_rig(SHARE_FULL_BLOCK, 1);
	for (uint64_t number = 1; number <= 20; number++) {
		sends_several(number, MOST);
		receives_several(0, number, MOST);
		acks_several(0, 0);
		if (number > 1)
			several_come_back(number - 1, MOST);
		nothing_comes_back();
		cr_assert_eq(stats().in_flight, 0, "they are there for who comes");
	}
	consumer_comes(1, true);
	receives_several(1, 20, MOST);
}

Test(ring_several, who_gets_the_latest_alone_keeps_nothing_of_others)
{
	several_rig(SHARE_FULL_BLOCK, 0);
	latest_comes(0, false);
	for (uint64_t number = 1; number <= 40; number++) {
		uint32_t turns = 0;

		while (try_send_several(number, 2 + number % 3) == -EAGAIN) {
			cr_assert_lt(turns++, 10);
			while (ring_producer_reclaim(producers[0], true, &returned))
				ring_producer_retire(producers[0], returned.ticket);
		}
		if (number % 7 == 0) {
			receives_several(0, number, 2 + number % 3);
			acks_several(0, 0);
		}
	}
}

/* All of what it leaves out, for the broker, which looks at each ticket by itself. */
Test(ring_several, who_leaves_some_out_acknowledges_all_of_them)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	latest_comes(1, false);
	sends_several(1, 3);
	sends_several(2, 2);
	receives_several(1, 2, 2);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t word = channel_row_at(ledgers[1], &shape, 0)->acks[i].word;

		cr_assert_eq(word >> 32, channel_ticket_at(rings[0], &shape, i)->version);
	}
}

Test(ring_several, what_a_dead_consumer_had_comes_back_as_a_whole)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, MOST);
	receives_several(0, 1, MOST);
	ring_producer_dismiss(producers[0], 0, true);
	several_come_back(1, MOST);
	/* it may have sent them on, to who has them still */
	cr_assert(returned.retained);
	for (uint32_t i = 0; i < MOST - 1; i++)
		cr_assert(returned.further_retained[i]);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_several, what_is_left_to_the_broker_is_all_of_it)
{
	unsigned char bits[1] = {0};

	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	receives_several(0, 1, 3);
	ring_producer_dismiss(producers[0], 0, false);
	ring_producer_find_held(producers[0], 0, consumer_members[0], bits);
	cr_assert_eq(__builtin_popcount(bits[0]), 3);
	ring_producer_abandon(producers[0], 0);
	several_come_back(1, 3);
	cr_assert(returned.retained && returned.further_retained[0] &&
		  returned.further_retained[1]);
}

/* By the time that it is read its tickets are another message's, and its entry is still there. */
Test(ring_several, what_was_dropped_and_overwritten_is_left_out)
{
	several_rig(SHARE_FULL_DROP, 1);
	sends_several(1, MOST);
	sends_several(2, MOST);
	cr_assert_eq(try_send_several(3, MOST), -EAGAIN);
	several_come_back(1, MOST);
	sends_several(3, MOST);
	cr_assert_eq(channel_entry_at(rings[0], &shape, 0, 0)->sequence, 1);
	receives_several(0, 2, MOST);
	cr_assert_eq(message_lost, 1);
	receives_several(0, 3, MOST);
}

static uint32_t looks_at_acknowledged, looks_at_late;

static void look_at_acks(void)
{
	struct channel_ack *acks = channel_row_at(ledgers[0], &shape, 0)->acks;

	if (acks[2].word == 0)
		return;
	looks_at_acknowledged++;
	looks_at_late += acks[0].word == 0 || acks[1].word == 0;
}

Test(ring_several, a_consumer_may_be_killed_at_any_step_of_acknowledging_one)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	receives_several(0, 1, 3);
	cr_assert_eq(message.ticket, 2);
	steps_begin(look_at_acks);
	acks_several(0, 0);
	steps_end();
	cr_assert_gt(looks_at_acknowledged, 5);
	cr_assert_eq(looks_at_late, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Who lies                                                                                    */

static struct channel_entry *entry(uint64_t sequence)
{
	return channel_entry_at(rings[0], &shape, 0, sequence);
}

static struct channel_further *further_of_first(void)
{
	return (void *)channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, entry(0)->ticket);
}

static void one_message(void)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
}

static void is_refused(void)
{
	cr_assert_eq(try_receive(0), -EPROTO);
	receives_nothing(0);
	has_further(0, 0);
	/* it holds none of them, and has said nothing of them */
	for (uint32_t i = 0; i < shape.in_flight; i++) {
		cr_assert_eq(ring_consumer_holds(consumers[0], 0, i), 0);
		cr_assert_eq(channel_row_at(ledgers[0], &shape, 0)->acks[i].word, 0);
	}
}

Test(ring_several, more_buffers_than_there_may_be_are_refused, .init = one_message)
{
	entry(0)->timeline = CHANNEL_TIMELINE(3, MOST);
	is_refused();
}

Test(ring_several, buffers_behind_none_are_refused, .init = one_message)
{
	entry(0)->buffer = entry(0)->segment = entry(0)->size_deliveries = 0;
	entry(0)->offset_data_size = CHANNEL_PACK(0, 8);
	is_refused();
}

Test(ring_several, a_ticket_that_is_not_there_is_refused, .init = one_message)
{
	further_of_first()[1].ticket = CHANNEL_FURTHER(shape.in_flight, entry(0)->version, 1);
	is_refused();
}

Test(ring_several, a_ticket_that_it_has_twice_is_refused, .init = one_message)
{
	further_of_first()[1].ticket = further_of_first()[0].ticket;
	is_refused();
}

Test(ring_several, its_own_ticket_once_more_is_refused, .init = one_message)
{
	further_of_first()[1].ticket =
	    CHANNEL_FURTHER(entry(0)->ticket, entry(0)->version, entry(0)->version);
	is_refused();
}

Test(ring_several, no_buffer_is_refused, .init = one_message)
{
	further_of_first()[0].buffer = 0;
	is_refused();
}

Test(ring_several, buffers_of_another_message_are_refused, .init = one_message)
{
	further_of_first()[0].ticket ^= UINT64_C(1) << 16;
	is_refused();
}

Test(ring_several, where_a_channel_has_none_nobody_can_say_so)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends(1);
	entry(0)->timeline = CHANNEL_TIMELINE(3, 1);
	cr_assert_eq(try_receive(0), -EPROTO);
}

Test(ring_several, what_cannot_be_sent_is_refused)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	cr_assert_eq(try_send_several(1, MOST + 1), -EINVAL);
	shape.buffers = 0;
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	cr_assert_eq(try_send_several(1, 2), -EINVAL);
	cr_assert_eq(stats().in_flight, 0);
}

/* A consumer that acknowledges the first alone: nobody waits for the others. */
Test(ring_several, who_says_nothing_of_the_others_keeps_nobody_waiting)
{
	several_rig(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	receives_several(0, 1, 3);
	acks(0);
	several_come_back(1, 3);
	cr_assert_eq(tickets_in_use(), 0);
}

static uint32_t looks_at_used, looks_at_half;

static void look_at_first(void)
{
	const struct channel_further *f =
	    (void *)channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, 2);
	const struct channel_ticket *t = channel_ticket_at(rings[0], &shape, 2);

	if (t->version == 0)
		return;
	looks_at_used++;
	for (uint32_t i = 0; i < 2; i++)
		looks_at_half += f[i].buffer != 1001 + i ||
				 channel_ticket_at(rings[0], &shape, i)->buffer != 1001 + i;
}

Test(ring_several, a_producer_may_be_killed_at_any_step_of_sending_one)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	several_rig(SHARE_FULL_BLOCK, 1);
	steps_begin(look_at_first);
	sends_several(1, 3);
	steps_end();
	cr_assert_gt(looks_at_used, 10);
	cr_assert_eq(looks_at_half, 0);
	receives_several(0, 1, 3);
}
