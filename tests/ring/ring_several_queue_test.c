/* SPDX-License-Identifier: MIT */

/* Messages of several buffers in a queue: whatever lane a message goes through, and whoever had it,
 * its buffers stay together; and who finds a ticket in use finds which of them is a message. */

#include <errno.h>

#include "tests/harness/steps.h"
#include "tests/ring/ring_several.h"

TestSuite(ring_several_queue, .timeout = 30);

static void queue(uint32_t when_full, uint32_t n)
{
	shape.buffers = MOST;
	shape.deliveries = 3;
	rig(CHANNEL_QUEUE, when_full, n);
}

static struct channel_ticket *ticket_of(uint32_t ticket)
{
	return channel_ticket_at(rings[0], &shape, ticket);
}

static struct channel_entry *copy_of(uint32_t ticket)
{
	return channel_copy_at(rings[0], &shape, ticket);
}

/* @retained: bit by bit, those of the further ones that are kept. */
static void rejects_several(uint32_t consumer, unsigned retained)
{
	cr_assert(ring_consumer_give_up(consumers[consumer], message_producer,
					producer_members[message_producer], message.ticket,
					message.version, NULL, false, message.further,
					message.n_further, retained));
}

static void receives_again(uint32_t consumer, uint64_t number, uint32_t n, uint32_t deliveries)
{
	receives_several(consumer, number, n);
	cr_assert_eq(message.deliveries, deliveries);
}

Test(ring_several_queue, each_message_is_one_consumers)
{
	queue(SHARE_FULL_BLOCK, 2);
	for (uint64_t number = 1; number <= 100; number++) {
		uint32_t n = 1 + number % MOST;

		sends_several(number, n);
		receives_nothing(1 - number % 2);
		receives_several(number % 2, number, n);
		nothing_comes_back();
		acks_several(number % 2, 0);
		several_come_back(number, n);
		cr_assert_eq(tickets_in_use(), 0);
		cr_assert_eq(stats().in_flight, 0);
	}
}

Test(ring_several_queue, what_waits_for_a_consumer_is_whole_when_one_comes)
{
	queue(SHARE_FULL_BLOCK, 0);
	sends_several(1, 3);
	sends_several(2, MOST);
	cr_assert_eq(try_send_several(3, 2), -EAGAIN);
	consumer_comes(2, false);
	receives_again(2, 1, 3, 1);
	receives_again(2, 2, MOST, 1);
}

Test(ring_several_queue, what_a_dead_consumer_had_goes_to_another_as_a_whole)
{
	queue(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	sends_several(2, 2);
	receives_several(0, 1, 3);
	consumer_comes(1, false);
	ring_producer_dismiss(producers[0], 0, true);
	receives_again(1, 1, 3, 2);
	acks_several(1, 1 << 1);
	several_come_back(1, 3);
	/* whoever is dead may have sent on each of those that it had */
	cr_assert(returned.retained);
	cr_assert(returned.further_retained[0] && returned.further_retained[1]);
	receives_again(1, 2, 2, 1);
	acks_several(1, 0);
	several_come_back(2, 2);
	cr_assert(!returned.retained && !returned.further_retained[0]);
}

Test(ring_several_queue, what_is_given_back_goes_to_another_and_then_it_is_set_aside)
{
	queue(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	receives_again(0, 1, 3, 1);
	has_further(0, 2);
	rejects_several(0, 0);
	has_further(0, 0);
	consumer_comes(1, false);
	nothing_comes_back();
	receives_again(1, 1, 3, 2);
	rejects_several(1, 1 << 0);
	nothing_comes_back();
	receives_again(0, 1, 3, 3);
	rejects_several(0, 0);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert(returned.set_aside);
	cr_assert_eq(returned.n_further, 2);
	cr_assert(returned.further_retained[0] && !returned.further_retained[1]);
	cr_assert_eq(returned.message->n_further, 2);
	cr_assert_eq(returned.message->fence.slot, 3);
	ring_producer_retire(producers[0], returned.ticket);
	cr_assert_eq(tickets_in_use(), 0);
}

/* By whoever was left behind with it, and that somebody else has it by then changes nothing. */
Test(ring_several_queue, who_is_left_behind_may_acknowledge_it)
{
	queue(SHARE_FULL_BLOCK, 2);
	sends_several(1, 3);
	receives_several(1, 1, 3);
	ring_producer_dismiss(producers[0], 1, false);
	acks_several(1, 1 << 0);
	cr_assert_eq(try_receive(0), 1);
	cr_assert_eq(message.deliveries, 2);
	acks_several(0, 0);
	several_come_back(1, 3);
	cr_assert(returned.further_retained[0]);
}

/* It says of all of it that it has not had it. */
Test(ring_several_queue, what_is_taken_and_left_behind_with_is_given_back_unseen)
{
	struct channel_ack *acks;

	queue(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	channel_admission_at(rings[0], &shape, 0)->left_behind = consumer_members[0];
	cr_assert_eq(try_receive(0), -ESTALE);
	has_further(0, 0);
	acks = channel_row_at(ledgers[0], &shape, 0)->acks;
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(acks[i].word >> 32, ticket_of(i)->version);
		cr_assert(acks[i].word & CHANNEL_ACK_REJECTED);
		cr_assert_eq(ring_consumer_holds(consumers[0], 0, i), 0);
	}
}

Test(ring_several_queue, as_many_go_as_it_takes_where_the_oldest_are_dropped)
{
	queue(SHARE_FULL_DROP, 1);
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
	cr_assert_gt(stats().dropped, 40);
}

/* What its consumer holds is in the way of it, and does not go. */
Test(ring_several_queue, nothing_is_dropped_for_what_finds_no_room_nevertheless)
{
	struct ring_message held[5];

	queue(SHARE_FULL_DROP, 1);
	for (uint64_t number = 1; number <= 5; number++) {
		sends(number);
		receives(0, number);
		held[number - 1] = message;
	}
	for (uint64_t number = 6; number <= 8; number++)
		sends(number);
	for (int turn = 0; turn < 10; turn++) {
		cr_assert_eq(try_send_several(9, MOST), -EAGAIN);
		cr_assert_not(ring_producer_has_made_way(producers[0]));
		nothing_comes_back();
	}
	cr_assert_eq(stats().dropped, 0);
	/* with the one that comes back now they suffice, and all go in one step */
	acks_this(0, &held[0], 0, false);
	so_many_come_back(1);
	cr_assert_eq(try_send_several(9, MOST), -EAGAIN);
	cr_assert(ring_producer_has_made_way(producers[0]));
	so_many_come_back(3);
	sends_several(9, MOST);
	cr_assert_eq(stats().dropped, 3);
	receives_several(0, 9, MOST);
	cr_assert_eq(message_lost, 3);
}

/* The same of what waits for a consumer; what one who was left behind may use is in the way. */
Test(ring_several_queue, what_waits_is_not_dropped_in_vain)
{
	queue(SHARE_FULL_DROP, 1);
	for (uint64_t number = 1; number <= 2; number++) {
		sends_several(number, 4 - (uint32_t)number);
		receives_several(0, number, 4 - (uint32_t)number);
	}
	ring_producer_dismiss(producers[0], 0, false);
	sends_several(3, 2);
	sends_several(4, 1);
	for (int turn = 0; turn < 10; turn++) {
		cr_assert_eq(try_send_several(5, MOST), -EAGAIN);
		nothing_comes_back();
	}
	cr_assert_eq(stats().dropped, 0);
	cr_assert_eq(try_send_several(5, 3), -EAGAIN);
	so_many_come_back(2);
	sends_several(5, 3);
	cr_assert_eq(stats().dropped, 2);
	consumer_comes(1, false);
	receives_again(1, 1, 3, 2);
	receives_again(1, 2, 2, 2);
	receives_again(1, 5, 3, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* From its copy, when the producer is gone                                                    */

Test(ring_several_queue, is_fetched_from_its_copy_and_acknowledged_as_a_whole)
{
	const struct channel_ack *acks;
	uint32_t ticket = 2, version;

	queue(SHARE_FULL_BLOCK, 0);
	sends_several(1, 3);
	version = ticket_of(ticket)->version;
	consumer_comes(0, false);
	ring_consumer_detach(consumers[0], 0);
	ring_consumer_attach(consumers[0], 0, producer_members[0], rings[0], false);
	message.data = message_data;
	message.further = message_further;
	cr_assert(ring_consumer_fetch(consumers[0], 0, ticket, version, 2, &message));
	cr_assert_eq(message.n_further, 2);
	cr_assert_eq(message.buffer, 1000);
	cr_assert_eq(message.further[0].buffer, 1001);
	cr_assert_eq(message.further[1].buffer, 1002);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(ring_consumer_holds(consumers[0], 0, i), ticket_of(i)->version);
	message_producer = 0;
	rejects_several(0, 0);
	acks = channel_row_at(ledgers[0], &shape, 0)->acks;
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(acks[i].word,
			     (uint64_t)ticket_of(i)->version << 32 | CHANNEL_ACK_REJECTED | 2);
	/* it may have the same again */
	cr_assert(ring_consumer_fetch(consumers[0], 0, ticket, version, 3, &message));
	acks_several(0, 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(acks[i].word, (uint64_t)ticket_of(i)->version << 32);
}

/* Sent in these tickets, the last of which is the first buffer's, and fetched when its producer has
 * written something else there after the broker had looked: all of it is done with. */
static void is_acknowledged_as_a_whole(uint32_t from, void (*spoil)(uint32_t))
{
	const struct channel_ack *acks = channel_row_at(ledgers[0], &shape, 0)->acks;
	uint32_t ticket = from + 2, version = ticket_of(ticket)->version;

	spoil(ticket);
	cr_assert_not(ring_consumer_fetch(consumers[0], 0, ticket, version, 2, &message));
	for (uint32_t i = from; i <= ticket; i++) {
		cr_assert_eq(ring_consumer_holds(consumers[0], 0, i), 0);
		cr_assert_eq(acks[i].word, (uint64_t)ticket_of(i)->version << 32);
	}
	has_further(0, 0);
}

static struct channel_further *further_of(uint32_t ticket)
{
	return (void *)channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, ticket);
}

static void forgets_a_buffer(uint32_t ticket)
{
	further_of(ticket)[0].buffer = 0;
}

static void is_beyond_any_segment(uint32_t ticket)
{
	further_of(ticket)[1].offset = UINT64_MAX;
}

static void has_too_much_data(uint32_t ticket)
{
	copy_of(ticket)->offset_data_size = CHANNEL_PACK(0, UINT16_MAX);
}

static void is_another_ones(uint32_t ticket)
{
	copy_of(ticket)->version++;
}

Test(ring_several_queue, what_makes_no_sense_when_it_is_fetched_is_acknowledged_as_a_whole)
{
	shape.in_flight = 16;
	queue(SHARE_FULL_BLOCK, 0);
	for (uint64_t number = 1; number <= 4; number++)
		sends_several(number, 3);
	consumer_comes(0, false);
	ring_consumer_detach(consumers[0], 0);
	ring_consumer_attach(consumers[0], 0, producer_members[0], rings[0], false);
	message.data = message_data;
	message.further = message_further;
	is_acknowledged_as_a_whole(0, forgets_a_buffer);
	is_acknowledged_as_a_whole(3, is_beyond_any_segment);
	is_acknowledged_as_a_whole(6, has_too_much_data);
	is_acknowledged_as_a_whole(9, is_another_ones);
}

static uint32_t looks_at_used, looks_at_half;

/* Who finds a ticket in use finds its copy, that of the first one alone stands for a message, and
 * by then all of it is there. */
static void look_at_tickets(void)
{
	const struct channel_further *f =
	    (void *)channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, 2);

	for (uint32_t i = 0; i < 3; i++) {
		if (ticket_of(i)->version == 0)
			continue;
		looks_at_used++;
		looks_at_half += copy_of(i)->version != ticket_of(i)->version ||
				 (i < 2) != (copy_of(i)->sequence == CHANNEL_COPY_FINISHED);
	}
	for (uint32_t i = 0; i < 2 && ticket_of(2)->version != 0; i++)
		looks_at_half += f[i].buffer != 1001 + i || CHANNEL_MORE(copy_of(2)->timeline) != 2;
}

Test(ring_several_queue, a_producer_may_be_killed_at_any_step_of_sending_one)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	queue(SHARE_FULL_BLOCK, 1);
	steps_begin(look_at_tickets);
	sends_several(1, 3);
	steps_end();
	cr_assert_gt(looks_at_used, 10);
	cr_assert_eq(looks_at_half, 0);
	receives_several(0, 1, 3);
}

static uint32_t looks_at_rejected, looks_at_late;

static void look_at_acks(void)
{
	struct channel_ack *acks = channel_row_at(ledgers[0], &shape, 0)->acks;

	if (acks[2].word == 0)
		return;
	looks_at_rejected++;
	looks_at_late += acks[0].word == 0 || acks[1].word == 0;
}

Test(ring_several_queue, a_consumer_may_be_killed_at_any_step_of_giving_one_back)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	queue(SHARE_FULL_BLOCK, 1);
	sends_several(1, 3);
	receives_several(0, 1, 3);
	cr_assert_eq(message.ticket, 2);
	steps_begin(look_at_acks);
	rejects_several(0, 0);
	steps_end();
	cr_assert_gt(looks_at_rejected, 5);
	cr_assert_eq(looks_at_late, 0);
}
