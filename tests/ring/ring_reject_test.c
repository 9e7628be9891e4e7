/* SPDX-License-Identifier: MIT */

/* A consumer of a queue gives messages back. */

#include <errno.h>

#include "tests/ring/ring_rig.h"

static void queue(uint32_t n)
{
	shape.deliveries = 3;
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, n);
}

static void rejects_this(uint32_t consumer, const struct ring_message *m)
{
	cr_assert(ring_consumer_reject(consumers[consumer], message_producer,
				       producer_members[message_producer], m->ticket, m->version,
				       false));
}

static void rejects(uint32_t consumer)
{
	rejects_this(consumer, &message);
}

/* Each of these has the message once more. */
static void receives_again(uint32_t consumer, uint64_t number, uint32_t deliveries)
{
	receives(consumer, number);
	cr_assert_eq(message.deliveries, deliveries);
}

static struct ring_consumer_stats stats_of(uint32_t consumer)
{
	struct ring_consumer_stats s;

	ring_consumer_get_stats(consumers[consumer], &s);
	return s;
}

Test(ring_reject, another_consumer_gets_it_marked)
{
	queue(1);
	sends(7);
	receives_again(0, 7, 1);
	consumer_comes(1, false);
	rejects(0);
	nothing_comes_back();
	receives_nothing(0);
	receives_again(1, 7, 2);
	acks(1);
	comes_back(7);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(stats().rejected, 1);
	cr_assert_eq(stats().redelivered, 1);
	cr_assert_eq(stats_of(0).rejected, 1);
	cr_assert_eq(stats_of(0).acknowledged, 0);
	cr_assert_eq(stats_of(1).acknowledged, 1);
}

/* What it said of the delivery before is in its row still. */
Test(ring_reject, who_is_alone_gets_it_again_until_it_is_set_aside)
{
	queue(1);
	sends(7);
	for (uint32_t delivery = 1; delivery < 3; delivery++) {
		receives_again(0, 7, delivery);
		nothing_comes_back();
		rejects(0);
		nothing_comes_back();
	}
	receives_again(0, 7, 3);
	nothing_comes_back();
	cr_assert_eq(stats().rejected, 2);
	rejects(0);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert(returned.set_aside);
	cr_assert_eq(returned.message->deliveries, 3);
	cr_assert_eq(returned.message->buffer, 1007);
	ring_producer_retire(producers[0], returned.ticket);
	receives_nothing(0);
	cr_assert_eq(stats().set_aside, 1);
	cr_assert_eq(stats().done, 1);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_reject, it_can_be_acknowledged_the_second_time)
{
	queue(1);
	sends(7);
	receives_again(0, 7, 1);
	rejects(0);
	nothing_comes_back();
	receives_again(0, 7, 2);
	acks_this(0, &message, 5, false);
	comes_back(7);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
	/* the ticket is used again: what was said of it before is not about this */
	sends(8);
	receives_again(0, 8, 1);
	nothing_comes_back();
	acks(0);
	comes_back(8);
}

Test(ring_reject, who_has_rejected_it_gets_it_last)
{
	queue(3);
	for (uint32_t round = 0; round < 3; round++) {
		uint32_t first = RIG_CONSUMERS;

		sends(round);
		for (uint32_t i = 0; i < 3 && first == RIG_CONSUMERS; i++)
			if (try_receive(i) == 1)
				first = i;
		cr_assert_neq(first, RIG_CONSUMERS);
		rejects(first);
		nothing_comes_back();
		receives_nothing(first);
		for (uint32_t i = 0; i < 3; i++)
			if (i != first && try_receive(i) == 1) {
				cr_assert_eq(message.deliveries, 2);
				rejects(i);
				nothing_comes_back();
				receives_nothing(i);
				break;
			}
		receives_nothing(first);
		/* the third of them */
		for (uint32_t i = 0; i < 3; i++)
			if (try_receive(i) == 1) {
				cr_assert_eq(message.deliveries, 3);
				acks(i);
			}
		comes_back(round);
		cr_assert_not(returned.set_aside);
	}
}

Test(ring_reject, it_goes_to_another_though_that_one_has_more_to_do)
{
	queue(2);
	for (uint64_t i = 0; i < 3; i++)
		sends(i); /* 0 and 2 to consumer 1 */
	receives(0, 1);
	rejects(0);
	nothing_comes_back();
	receives_nothing(0);
	uses(1, 0);
	uses(1, 2);
	receives_again(1, 1, 2);
	acks(1);
	so_many_come_back(3);
}

Test(ring_reject, what_is_rejected_waits_for_room_before_what_is_sent_later)
{
	queue(1);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	receives(0, 0);
	sends(4); /* the lane is full again */
	rejects(0);
	nothing_comes_back();
	cr_assert(ring_producer_has_backlog(producers[0]));
	cr_assert_eq(try_send(0, 5, 0), -EAGAIN);
	uses(0, 1);
	cr_assert_eq(try_send(0, 5, 0), -EAGAIN);
	uses(0, 2);
	sends(5);
	uses(0, 3);
	uses(0, 4);
	receives_again(0, 0, 2);
	acks(0);
	uses(0, 5);
	so_many_come_back(6);
}

Test(ring_reject, it_comes_before_what_is_sent_later)
{
	queue(1);
	sends(7);
	receives(0, 7);
	rejects(0);
	sends(8);
	receives_again(0, 7, 2);
	acks(0);
	uses(0, 8);
	so_many_come_back(2);
}

Test(ring_reject, so_it_does_though_its_consumer_holds_older_ones)
{
	struct ring_message first;

	queue(1);
	for (uint64_t i = 0; i < 3; i++)
		sends(i);
	receives(0, 0);
	first = message;
	for (uint64_t i = 1; i < 3; i++) {
		receives(0, i);
		rejects(0);
	}
	sends(3);
	for (uint64_t i = 1; i < 3; i++) {
		receives_again(0, i, 2);
		acks(0);
	}
	uses(0, 3);
	acks_this(0, &first, 0, false);
	so_many_come_back(4);
}

Test(ring_reject, so_it_does_though_its_consumer_is_closing_the_channel)
{
	struct ring_message m;

	queue(2);
	sends(7);
	receives(1, 7);
	m = message;
	ring_consumer_receives_no_more(consumers[1]);
	nothing_comes_back();
	rejects_this(1, &m);
	sends(8);
	receives_again(0, 7, 2);
	acks(0);
	uses(0, 8);
	so_many_come_back(2);
}

Test(ring_reject, who_dies_right_after_it_has_had_it_once)
{
	queue(1);
	sends(7);
	receives(0, 7);
	rejects(0);
	ring_producer_dismiss(producers[0], 0, true);
	consumer_comes(1, false);
	receives_again(1, 7, 2);
	acks(1);
	comes_back(7);
	cr_assert_eq(stats().redelivered, 1);
}

Test(ring_reject, who_has_closed_the_channel_may_give_back_what_it_has)
{
	struct ring_message m;

	queue(2);
	sends(7);
	receives(1, 7);
	m = message;
	ring_consumer_receives_no_more(consumers[1]);
	nothing_comes_back();
	rejects_this(1, &m);
	nothing_comes_back();
	receives_again(0, 7, 2);
	acks(0);
	comes_back(7);
}

/* Another one has it by then, and this one may have said so before it got it again. */
Test(ring_reject, what_one_left_behind_rejects_is_kept_until_it_goes)
{
	struct ring_message m;

	queue(1);
	sends(7);
	receives_again(0, 7, 1);
	rejects(0);
	nothing_comes_back();
	receives_again(0, 7, 2);
	m = message;
	ring_producer_dismiss(producers[0], 0, false);
	consumer_comes(1, false);
	receives_again(1, 7, 3);
	acks(1);
	nothing_comes_back(); /* the first one uses it still */
	rejects_this(0, &m);
	nothing_comes_back();
	ring_producer_dismiss(producers[0], 0, true);
	comes_back(7);
	cr_assert_not(returned.set_aside);
	cr_assert_eq(stats().rejected, 1);
}

Test(ring_reject, it_is_given_up_once)
{
	struct ring_message m;

	queue(1);
	sends(7);
	receives(0, 7);
	m = message;
	rejects(0);
	cr_assert_not(
	    ring_consumer_reject(consumers[0], 0, producer_members[0], m.ticket, m.version, false));
	cr_assert_not(ring_consumer_ack(consumers[0], 0, producer_members[0], m.ticket, m.version,
					(struct ring_fence){0, 0}, false));
	nothing_comes_back();
	receives(
	    0, 7); /* a copy of the first one is as good as this: ticket and version are the same */
	acks(0);
	cr_assert_not(
	    ring_consumer_reject(consumers[0], 0, producer_members[0], m.ticket, m.version, false));
	comes_back(7);
}

Test(ring_reject, its_producer_is_rung_for_though_it_waits_for_nothing)
{
	queue(1);
	sends(7);
	receives(0, 7);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 0);
	rejects(0);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 1);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 0);
}

/* One that retains it has a lease of its own, and gives the message back all the same. */
Test(ring_reject, what_was_retained_is_shared)
{
	queue(1);
	sends(7);
	receives(0, 7);
	cr_assert(ring_consumer_reject(consumers[0], 0, producer_members[0], message.ticket,
				       message.version, true));
	nothing_comes_back();
	receives_again(0, 7, 2);
	acks(0);
	comes_back(7);
	cr_assert(returned.retained);
}

Test(ring_reject, a_producer_of_an_older_library_would_not_know_what_it_is)
{
	struct channel_ring *header;

	queue(1);
	header = rings[0];
	cr_assert(ring_consumer_can_reject(consumers[0], 0));
	atomic_store(&header->heeds, 0);
	cr_assert_not(ring_consumer_can_reject(consumers[0], 0));
}

/* By hand, as the library refuses it. */
static void write_rejection(uint32_t consumer, const struct ring_message *m, uint32_t delivery)
{
	struct channel_row *row = channel_row_at(ledgers[consumer], &shape, 0);

	atomic_store(&row->acks[m->ticket].word,
		     (uint64_t)m->version << 32 | CHANNEL_ACK_REJECTED | delivery);
}

Test(ring_reject, nonsense_is_nobodys_acknowledgement)
{
	queue(1);
	sends(7);
	receives(0, 7);
	for (uint32_t delivery = 0; delivery <= CHANNEL_ACK_DELIVERY; delivery++) {
		if (delivery == 1)
			continue;
		write_rejection(0, &message, delivery);
		nothing_comes_back();
	}
	cr_assert_eq(stats().rejected, 0);
	acks(0);
	comes_back(7);
}

Test(ring_reject, in_a_broadcast_it_is_nobodys_acknowledgement)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends(7);
	uses(0, 7);
	receives(1, 7);
	write_rejection(1, &message, 1);
	nothing_comes_back();
	cr_assert_eq(stats().rejected, 0);
	acks(1);
	comes_back(7);
}
