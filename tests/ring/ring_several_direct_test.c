/* SPDX-License-Identifier: MIT */

/* Messages of several buffers to one consumer, of which the producer says which: answers. */

#include <errno.h>

#include "tests/harness/steps.h"
#include "tests/ring/ring_several.h"

TestSuite(ring_several_direct, .timeout = 30);

/* With tickets for a whole lane of each of the consumers that come. */
static void direct(uint32_t when_full, uint32_t n)
{
	shape.buffers = MOST;
	shape.in_flight = MOST * shape.depth * n;
	rig(CHANNEL_DIRECT, when_full, n);
}

static void dies(uint32_t consumer)
{
	ring_producer_dismiss(producers[0], consumer, true);
}

static void sends_several_to(uint64_t number, uint32_t n, uint32_t target)
{
	cr_assert_eq(try_send_several_to(number, n, target), 0, "no room for %lu",
		     (unsigned long)number);
}

Test(ring_several_direct, each_goes_to_whom_it_is_sent_and_comes_back_as_a_whole)
{
	direct(SHARE_FULL_FAIL, 3);
	for (uint64_t number = 1; number <= 100; number++) {
		uint32_t n = 1 + number % MOST, target = number % 3;

		sends_several_to(number, n, target);
		cr_assert_eq(tickets_in_use(), n);
		receives_nothing((target + 1) % 3);
		receives_several(target, number, n);
		nothing_comes_back();
		acks_several(target, 0);
		several_come_back(number, n);
		nothing_comes_back();
		cr_assert_eq(tickets_in_use(), 0);
		cr_assert_eq(stats().in_flight, 0);
		cr_assert_eq(stats().done, number);
	}
	cr_assert_eq(try_send_several_to(1, 2, 3), -ENOENT);
	dies(2);
	cr_assert_eq(try_send_several_to(1, 2, 2), -ENOENT);
}

Test(ring_several_direct, who_acknowledges_none_takes_nobody_elses_tickets)
{
	direct(SHARE_FULL_FAIL, 2);
	for (uint64_t number = 1; number <= shape.depth; number++) {
		sends_several_to(number, MOST, 0);
		receives_several(0, number, MOST);
	}
	cr_assert_eq(try_send_several_to(9, 1, 0), -EAGAIN);
	cr_assert_eq(ring_producer_look_for_room(producers[0], 0, MOST), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1);
	cr_assert_eq(ring_producer_look_for_room(producers[0], 1, MOST), 0);
	for (uint64_t number = 10; number < 10 + shape.depth; number++)
		sends_several_to(number, MOST, 1);
	cr_assert_eq(tickets_in_use(), shape.in_flight);
	for (uint64_t number = 10; number < 10 + shape.depth; number++) {
		receives_several(1, number, MOST);
		acks_several(1, 0);
		several_come_back(number, MOST);
	}
	dies(0);
	so_many_come_back(shape.depth);
	cr_assert_eq(tickets_in_use(), 0);
}

static void acks_behind_work(uint32_t consumer)
{
	static const struct ring_fence work = {5, 1};

	cr_assert(ring_consumer_give_up(
	    consumers[consumer], message_producer, producer_members[message_producer],
	    message.ticket, message.version, &work, false, message.further, message.n_further, 0));
}

/* What can be sent to @consumer is received, acknowledged behind work and comes back, but is not
 * retired. The first of it. */
static uint32_t fills_behind_work(uint32_t consumer)
{
	uint32_t first = 0;

	for (uint64_t number = 1; number <= shape.depth; number++) {
		sends_several_to(number, MOST, consumer);
		receives_several(consumer, number, MOST);
		acks_behind_work(consumer);
		cr_assert(ring_producer_reclaim(producers[0], true, &returned));
		cr_assert_eq(returned.n, 1);
		if (number == 1)
			first = returned.ticket;
	}
	return first;
}

Test(ring_several_direct, what_is_acknowledged_behind_work_takes_nobody_elses_tickets)
{
	uint32_t first;

	direct(SHARE_FULL_FAIL, 2);
	first = fills_behind_work(0);
	cr_assert_eq(try_send_several_to(9, 1, 0), -EAGAIN);
	cr_assert(ring_producer_lacks_tickets(producers[0]));
	for (uint64_t number = 10; number < 10 + shape.depth; number++)
		sends_several_to(number, MOST, 1);
	cr_assert_eq(tickets_in_use(), shape.in_flight);
	ring_producer_retire(producers[0], first);
	sends_several_to(9, MOST, 0);
	cr_assert_eq(try_send_several_to(20, 1, 0), -EAGAIN);
}

Test(ring_several_direct, who_comes_into_the_place_of_another_has_a_load_of_its_own)
{
	uint32_t first;

	direct(SHARE_FULL_FAIL, 2);
	first = fills_behind_work(0);
	dies(0);
	consumer_comes(0, false);
	/* all are received, so that nothing but its load is in the way */
	for (uint64_t number = 10; number < 10 + shape.depth; number++) {
		sends_several_to(number, 1, 0);
		receives_several(0, number, 1);
	}
	cr_assert_eq(try_send_several_to(20, 1, 0), -EAGAIN);
	ring_producer_retire(producers[0], first);
	cr_assert_eq(try_send_several_to(20, 1, 0), -EAGAIN);
	acks_several(0, 0);
	several_come_back(9 + shape.depth, 1);
	sends_several_to(20, 1, 0);
	cr_assert_eq(try_send_several_to(21, 1, 0), -EAGAIN);
}

Test(ring_several_direct, nobody_is_waited_for_who_is_not_there)
{
	direct(SHARE_FULL_FAIL, 2);
	for (uint64_t number = 1; number <= shape.depth; number++) {
		sends_several_to(number, MOST, 0);
		sends_several_to(number, MOST, 1);
	}
	cr_assert_eq(try_send_several_to(9, 1, 2), -ENOENT);
	cr_assert_eq(try_send_several_to(9, 1, 99), -ENOENT);
	cr_assert_eq(ring_producer_look_for_room(producers[0], 2, MOST), -ENOENT);
	cr_assert_eq(try_send_several_to(9, 1, 1), -EAGAIN);
}

Test(ring_several_direct, each_of_its_buffers_may_be_kept_by_itself)
{
	direct(SHARE_FULL_FAIL, 1);
	sends_several_to(1, MOST, 0);
	receives_several(0, 1, MOST);
	acks_several(0, 1 << 1);
	several_come_back(1, MOST);
	cr_assert_not(returned.retained);
	for (uint32_t i = 0; i < MOST - 1; i++)
		cr_assert_eq(returned.further_retained[i], i == 1);
}

Test(ring_several_direct, what_a_dead_consumer_had_or_was_to_have_goes_to_nobody)
{
	direct(SHARE_FULL_FAIL, 2);
	sends_several_to(1, 3, 0);
	sends_several_to(2, MOST, 0);
	receives_several(0, 1, 3);
	dies(0);
	several_come_back(2, MOST);
	cr_assert_not(returned.retained || returned.further_retained[0]);
	several_come_back(1, 3);
	/* it may have sent them on, to who has them still */
	cr_assert(returned.retained && returned.further_retained[0] &&
		  returned.further_retained[1]);
	receives_nothing(1);
	cr_assert_eq(tickets_in_use(), 0);
	cr_assert_eq(stats().redelivered, 0);
}

Test(ring_several_direct, what_is_left_to_the_broker_is_all_of_it)
{
	unsigned char bits[8] = {0};

	direct(SHARE_FULL_FAIL, 1);
	sends_several_to(1, 3, 0);
	receives_several(0, 1, 3);
	ring_producer_dismiss(producers[0], 0, false);
	ring_producer_find_held(producers[0], 0, consumer_members[0], bits);
	cr_assert_eq(bits[0], 7);
	ring_producer_abandon(producers[0], 0);
	several_come_back(1, 3);
	cr_assert(returned.retained && returned.further_retained[0] &&
		  returned.further_retained[1]);
}

/* Nobody else gets it, so it is acknowledged, and all of it is. */
Test(ring_several_direct, what_is_taken_and_left_behind_with_is_acknowledged_unseen)
{
	const struct channel_ack *acks;

	direct(SHARE_FULL_FAIL, 1);
	sends_several_to(1, 3, 0);
	channel_admission_at(rings[0], &shape, 0)->left_behind = consumer_members[0];
	cr_assert_eq(try_receive(0), -ESTALE);
	acks = channel_row_at(ledgers[0], &shape, 0)->acks;
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert_eq(acks[i].word,
			     (uint64_t)channel_ticket_at(rings[0], &shape, i)->version << 32);
		cr_assert_eq(ring_consumer_holds(consumers[0], 0, i), 0);
	}
}

Test(ring_several_direct, as_many_go_as_it_takes_where_the_oldest_are_dropped)
{
	direct(SHARE_FULL_DROP, 1);
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
}

/* ------------------------------------------------------------------------------------------- */
/* Death at every step                                                                         */

static uint32_t looks_at_used, looks_at_half;

/* The ticket of the message is in use when all of it is there. */
static void look_at_first(void)
{
	const struct channel_further *f =
	    (void *)channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, 2);

	if (channel_ticket_at(rings[0], &shape, 2)->version == 0)
		return;
	looks_at_used++;
	for (uint32_t i = 0; i < 2; i++)
		looks_at_half += f[i].buffer != 1001 + i ||
				 channel_ticket_at(rings[0], &shape, i)->buffer != 1001 + i;
}

Test(ring_several_direct, a_producer_may_be_killed_at_any_step_of_sending_one)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	direct(SHARE_FULL_FAIL, 2);
	steps_begin(look_at_first);
	sends_several_to(1, 3, 1);
	steps_end();
	cr_assert_gt(looks_at_used, 10);
	cr_assert_eq(looks_at_half, 0);
	receives_several(1, 1, 3);
}

static uint32_t looks_at_acknowledged, looks_at_late;

static void look_at_acks(void)
{
	const struct channel_ack *acks = channel_row_at(ledgers[1], &shape, 0)->acks;

	if (acks[2].word == 0)
		return;
	looks_at_acknowledged++;
	looks_at_late += acks[0].word == 0 || acks[1].word == 0;
}

Test(ring_several_direct, a_consumer_may_be_killed_at_any_step_of_acknowledging_one)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	direct(SHARE_FULL_FAIL, 2);
	sends_several_to(1, 3, 1);
	receives_several(1, 1, 3);
	cr_assert_eq(message.ticket, 2);
	steps_begin(look_at_acks);
	acks_several(1, 1 << 0);
	steps_end();
	cr_assert_gt(looks_at_acknowledged, 5);
	cr_assert_eq(looks_at_late, 0);
}
