/* SPDX-License-Identifier: MIT */

/*
 * A queue's ring has a copy of each message in flight, which says in whose lane the message is: so
 * that it can be received from there when its producer is gone.
 */

#include "tests/harness/steps.h"
#include "tests/ring/ring_rig.h"

static struct channel_ticket *ticket_of(uint32_t ticket)
{
	return channel_ticket_at(rings[0], &shape, ticket);
}

static struct channel_entry *copy_of(uint32_t ticket)
{
	return channel_copy_at(rings[0], &shape, ticket);
}

/* Of the message with this number, which is in flight. */
static struct channel_entry *find(uint64_t number)
{
	for (uint32_t i = 0; i < shape.in_flight; i++)
		if (ticket_of(i)->buffer != 0 && copy_of(i)->version == ticket_of(i)->version &&
		    *(uint64_t *)(void *)copy_of(i)->data == number)
			return copy_of(i);
	cr_assert_fail("there is no copy of %lu", (unsigned long)number);
	return NULL;
}

static void is_in_lane(uint64_t number, uint16_t consumer, uint64_t position)
{
	cr_assert_eq(find(number)->sequence, position + 1);
	cr_assert_eq(find(number)->ticket, consumer);
}

static uint32_t deliveries_of(uint64_t number)
{
	return CHANNEL_SMALL(find(number)->size_deliveries);
}

Test(ring_copies, each_message_in_flight_has_one_that_says_whose_it_is)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	sends(1);
	sends(2);
	sends(3);
	is_in_lane(1, 1, 0);
	is_in_lane(2, 0, 0);
	is_in_lane(3, 1, 1);
	cr_assert_eq(find(1)->buffer, 1001);
	cr_assert_eq(find(3)->number, 2);
	cr_assert_eq(CHANNEL_SMALL(find(1)->offset_data_size), sizeof(uint64_t));
	cr_assert_eq(deliveries_of(1), 1);
}

Test(ring_copies, what_nobody_has_room_for_is_in_no_lane)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 0);
	sends(1);
	cr_assert_eq(find(1)->sequence, CHANNEL_COPY_WAITS);
	consumer_comes(2, false);
	is_in_lane(1, 2, 0);
	uses(2, 1);
}

Test(ring_copies, what_a_dead_consumer_had_is_marked_and_in_the_lane_of_another)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(1);
	sends(2);
	receives(0, 1);
	ring_producer_dismiss(producers[0], 0, true);
	cr_assert_eq(find(1)->sequence, CHANNEL_COPY_RETURNED | 2);
	cr_assert_eq(find(2)->sequence, CHANNEL_COPY_WAITS);
	cr_assert_eq(deliveries_of(1), 2);
	cr_assert_eq(deliveries_of(2), 1);
	consumer_comes(1, false);
	is_in_lane(1, 1, 0);
	is_in_lane(2, 1, 1);
	receives(1, 1);
	cr_assert_eq(message.deliveries, 2);
	cr_assert_eq(message.buffer, 1001);
}

static const struct channel_entry *copy_looked_at;
static uint32_t looks, looks_at_first, others_than_expected;

/* As which delivery it would come, if its producer were killed now: who has it had it. */
static void look_at_copy(void)
{
	uint64_t sequence = copy_looked_at->sequence;
	uint32_t deliveries = sequence & CHANNEL_COPY_RETURNED
				  ? (uint32_t)sequence
				  : CHANNEL_SMALL(copy_looked_at->size_deliveries);
	bool is_firsts = sequence != CHANNEL_COPY_WAITS && !(sequence & CHANNEL_COPY_RETURNED) &&
			 copy_looked_at->ticket == 0;

	looks++;
	looks_at_first += is_firsts;
	others_than_expected += deliveries != (is_firsts ? 1 : 2);
}

Test(ring_copies, a_producer_may_be_killed_at_any_step_of_giving_it_to_another_consumer)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(1);
	receives(0, 1);
	consumer_comes(1, false);
	copy_looked_at = find(1);
	steps_begin(look_at_copy);
	ring_producer_dismiss(producers[0], 0, true);
	steps_end();
	is_in_lane(1, 1, 0);
	cr_assert_gt(looks_at_first, 10);
	cr_assert_gt(looks, looks_at_first + 10);
	cr_assert_eq(others_than_expected, 0);
}

/* By the time that its ticket is free again, who has acknowledged it may be gone. */
Test(ring_copies, what_was_acknowledged_is_finished_before_its_ticket_is_free)
{
	struct channel_entry *copy;

	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(1);
	copy = find(1);
	uses(0, 1);
	cr_assert_eq(copy->sequence, 1);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert_eq(copy->sequence, CHANNEL_COPY_FINISHED);
	cr_assert_eq(ticket_of(returned.ticket)->buffer, 1001);
	ring_producer_retire(producers[0], returned.ticket);
	cr_assert_eq(ticket_of(returned.ticket)->buffer, 0);
}

Test(ring_copies, what_is_set_aside_is_finished_and_comes_back_whole)
{
	struct channel_entry *copy;

	shape.deliveries = 1;
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends(7);
	copy = find(7);
	receives(0, 7);
	ring_producer_dismiss(producers[0], 0, true);
	cr_assert_eq(copy->sequence, CHANNEL_COPY_FINISHED);
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert(returned.set_aside);
	cr_assert_eq(*(uint64_t *)(void *)returned.message->data, 7);
	cr_assert_eq(returned.message->buffer, 1007);
	cr_assert_eq(returned.message->deliveries, 1);
}

Test(ring_copies, a_message_without_a_buffer_has_a_ticket_in_use)
{
	unsigned char data[8] = {9};
	const struct ring_message m = {.data_size = 8, .data = data};

	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	cr_assert_eq(ring_producer_send(producers[0], &m, 0, NULL), 0);
	cr_assert_eq(ticket_of(0)->buffer, CHANNEL_NO_BUFFER);
	cr_assert_eq(find(9)->buffer, 0);
	cr_assert_eq(try_receive(0), 1);
	cr_assert_eq(message.buffer, 0);
}

/* As in a channel that a broker before this one has made. */
Test(ring_copies, without_copies_in_the_ring_a_queue_goes_on_as_it_was)
{
	static unsigned char data[8] = {5};
	static const struct ring_message m = {.data_size = 8, .data = data};
	size_t size;
	struct ring_producer *p;
	struct ring_owner owner = {.member = 3};
	unsigned char *ring, *ledger;

	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 0);
	size = channel_ring_size(&shape, CHANNEL_WITHOUT_COPIES);
	ring = aligned_alloc(4096, size);
	ledger = aligned_alloc(4096, channel_ledger_size(&shape));
	cr_assert(ring && ledger);
	memset(ring, 0, size);
	memset(ledger, 0, channel_ledger_size(&shape));
	cr_assert_eq(ring_producer_new(&shape, CHANNEL_WITHOUT_COPIES, ring, &p), 0);
	cr_assert_eq(ring_producer_send(p, &m, 0, NULL), 0);
	cr_assert_eq(channel_ticket_at(ring, &shape, 0)->buffer, 0);
	ring_producer_admit(p, 0, &owner, ledger, 0, false);
	cr_assert_eq(channel_entry_at(ring, &shape, 0, 0)->sequence, 1);
	cr_assert_eq(channel_entry_at(ring, &shape, 0, 0)->data[0], 5);
	ring_producer_free(p);
	free(ring);
	free(ledger);
}
