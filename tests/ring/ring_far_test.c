/* SPDX-License-Identifier: MIT */

/* Data that are too many for an entry: they lie by the ticket of their message, and get to all who
 * get it, whatever way it takes. */

#include <errno.h>

#include "tests/harness/steps.h"
#include "tests/ring/ring_rig.h"

TestSuite(ring_far, .timeout = 30);

#define DATA_MAX 1000
#define FAR      (CHANNEL_DATA_NEAR + 1)

static unsigned char data[CHANNEL_DATA_MAX];

static void far_rig(uint32_t mode, uint32_t when_full, uint32_t n)
{
	shape.data_max = DATA_MAX;
	rig(mode, when_full, n);
}

static void fill(uint64_t number, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++)
		data[i] = (unsigned char)(number * 7 + i * 3 + i / 256);
}

static int try_send_far(uint64_t number, uint32_t size)
{
	struct ring_message m = {.data_size = size, .data = data};

	fill(number, size);
	return ring_producer_send(producers[0], &m, 0, (void *)(uintptr_t)number);
}

static void sends_far(uint64_t number, uint32_t size)
{
	cr_assert_eq(try_send_far(number, size), 0);
}

static void is_whole(uint64_t number, uint32_t size)
{
	cr_assert_eq(message.data_size, size);
	fill(number, size);
	cr_assert_eq(memcmp(message.data, data, size), 0, "message %lu", (unsigned long)number);
	if (size < CHANNEL_DATA_MAX)
		cr_assert_eq(message.data[size], 0xee, "nothing is written behind it");
}

static void receives_far(uint32_t consumer, uint64_t number, uint32_t size)
{
	cr_assert_eq(try_receive(consumer), 1);
	is_whole(number, size);
}

static void all_come_back(void)
{
	while (ring_producer_reclaim(producers[0], true, &returned))
		ring_producer_retire(producers[0], returned.ticket);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_far, messages_of_all_kinds_have_data_of_any_size)
{
	static const uint32_t sizes[] = {0,   1,   255,  256,  257,   300,   319,
					 320, 321, 4096, 8191, 65534, 65535, 256};

	shape.data_max = CHANNEL_DATA_MAX;
	for (uint32_t mode = CHANNEL_BROADCAST; mode <= CHANNEL_DIRECT; mode++) {
		rig(mode, SHARE_FULL_BLOCK, 1);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			sends_far(i, sizes[i]);
			receives_far(0, i, sizes[i]);
			acks(0);
			all_come_back();
		}
	}
}

/* What is in its entry is read with that, and takes no look elsewhere. */
Test(ring_far, a_lane_is_no_larger_for_it)
{
	struct channel_shape small = {
	    CHANNEL_QUEUE, SHARE_FULL_BLOCK, 4, 8, CHANNEL_DATA_NEAR, 2, 4, 2, 0, 0};
	struct channel_shape large = small;

	large.data_max = CHANNEL_DATA_MAX;
	cr_assert_eq(channel_entry_size(&large), channel_entry_size(&small));
	cr_assert_eq(channel_far_size(&small), 0);
	cr_assert_eq(channel_far_size(&large), 65536);
}

Test(ring_far, more_than_a_message_may_carry_is_not_sent)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	cr_assert_eq(try_send_far(0, DATA_MAX + 1), -EINVAL);
	cr_assert_eq(stats().in_flight, 0);
}

Test(ring_far, each_consumer_of_a_broadcast_has_them_until_it_acknowledges)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	for (uint64_t i = 0; i < 4; i++)
		sends_far(i, FAR + (uint32_t)i);
	for (uint64_t i = 0; i < 4; i++) {
		receives_far(0, i, FAR + (uint32_t)i);
		acks(0);
	}
	/* no ticket is used again before the other has had its message as well */
	for (uint64_t i = 4; i < 8; i++)
		cr_assert_eq(try_send_far(i, FAR), -EAGAIN);
	for (uint64_t i = 0; i < 4; i++)
		receives_far(1, i, FAR + (uint32_t)i);
}

Test(ring_far, who_comes_later_gets_them_of_what_is_kept)
{
	shape.history = 3;
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	for (uint64_t i = 0; i < 20; i++) {
		sends_far(i, 300 + (uint32_t)i);
		receives_far(0, i, 300 + (uint32_t)i);
		acks(0);
		while (ring_producer_reclaim(producers[0], true, &returned))
			ring_producer_retire(producers[0], returned.ticket);
	}
	consumer_comes(1, true);
	for (uint64_t i = 17; i < 20; i++)
		receives_far(1, i, 300 + (uint32_t)i);
}

Test(ring_far, who_gets_the_latest_alone_gets_them_whole)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 0);
	latest_comes(0, false);
	for (uint64_t i = 0; i < 30; i++) {
		if (try_send_far(i, 400) == -EAGAIN) {
			while (ring_producer_reclaim(producers[0], true, &returned))
				ring_producer_retire(producers[0], returned.ticket);
			sends_far(i, 400);
		}
		if (i % 7 == 6) {
			receives_far(0, i, 400);
			acks(0);
		}
	}
}

/* What is dropped is overwritten, and what is not is whole. */
Test(ring_far, what_is_not_dropped_is_whole)
{
	for (uint32_t mode = CHANNEL_BROADCAST; mode <= CHANNEL_QUEUE; mode++) {
		far_rig(mode, SHARE_FULL_DROP, 1);
		for (uint64_t i = 0; i < 100; i++) {
			while (try_send_far(i, 500) == -EAGAIN)
				while (ring_producer_reclaim(producers[0], true, &returned))
					ring_producer_retire(producers[0], returned.ticket);
			if (i % 10 == 9) {
				cr_assert_eq(try_receive(0), 1);
				is_whole(message.number, 500);
				acks(0);
			}
		}
	}
}

Test(ring_far, who_gets_a_message_after_a_dead_consumer_has_them)
{
	far_rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_far(1, 600);
	sends_far(2, DATA_MAX);
	receives_far(0, 1, 600);
	ring_producer_dismiss(producers[0], 0, true);
	consumer_comes(1, false);
	receives_far(1, 1, 600);
	cr_assert_eq(message.deliveries, 2);
	receives_far(1, 2, DATA_MAX);
	cr_assert_eq(message.deliveries, 1);
}

Test(ring_far, what_is_set_aside_comes_back_with_them)
{
	far_rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	sends_far(1, 700);
	for (uint32_t i = 0; i < shape.deliveries; i++) {
		receives_far(0, 1, 700);
		ring_producer_dismiss(producers[0], 0, true);
		consumer_comes(0, false);
	}
	cr_assert(ring_producer_reclaim(producers[0], true, &returned));
	cr_assert(returned.set_aside);
	cr_assert_eq(returned.message->data_size, 700);
	fill(1, 700);
	cr_assert_eq(memcmp(returned.message->data, data, 700), 0);
}

Test(ring_far, who_fetches_a_message_of_a_dead_producer_has_them)
{
	uint32_t ticket = 0, version = 1;

	far_rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 0);
	sends_far(1, 800);
	consumer_comes(0, false);
	memset(message_data, 0xee, sizeof(message_data));
	message.data = message_data;
	cr_assert(ring_consumer_fetch(consumers[0], 0, ticket, version, 1, &message));
	is_whole(1, 800);
	/* the same where it says that there are more than there is room for */
	acks(0);
	channel_copy_at(rings[0], &shape, ticket)->offset_data_size = CHANNEL_PACK(0, DATA_MAX + 1);
	cr_assert_not(ring_consumer_fetch(consumers[0], 0, ticket, version, 1, &message));
}

static uint32_t looks_at_used, looks_at_half;

/* What somebody would fetch if the producer were killed now. */
static void look_at_ticket(void)
{
	const struct channel_ticket *t = channel_ticket_at(rings[0], &shape, 0);
	const struct channel_entry *copy = channel_copy_at(rings[0], &shape, 0);

	if (t->buffer == 0 || t->version == 0 || copy->version != t->version)
		return;
	looks_at_used++;
	looks_at_half +=
	    memcmp(channel_far_at(rings[0], &shape, CHANNEL_WITH_COPIES, 0), data, 300) != 0;
}

Test(ring_far, a_producer_may_be_killed_at_any_step_of_sending_them)
{
	if (!STEPS_ARE_KNOWN)
		cr_skip("for want of single steps");
	far_rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	fill(1, 300);
	steps_begin(look_at_ticket);
	cr_assert_eq(ring_producer_send(producers[0],
					&(struct ring_message){.data_size = 300, .data = data}, 0,
					NULL),
		     0);
	steps_end();
	cr_assert_gt(looks_at_used, 10);
	cr_assert_eq(looks_at_half, 0);
	receives_far(0, 1, 300);
}

static struct channel_entry *entry(uint64_t sequence)
{
	return channel_entry_at(rings[0], &shape, 0, sequence);
}

Test(ring_far, a_producer_that_says_it_has_more_than_there_may_be_is_refused)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_far(1, 900);
	entry(0)->offset_data_size = CHANNEL_PACK(0, DATA_MAX + 1);
	cr_assert_eq(try_receive(0), -EPROTO);
}

Test(ring_far, a_ticket_that_has_no_place_is_refused)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_far(1, 900);
	entry(0)->ticket = (uint16_t)shape.in_flight;
	cr_assert_eq(try_receive(0), -EPROTO);
}

Test(ring_far, other_nonsense_in_its_entry_is_refused_as_ever)
{
	far_rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_far(1, 900);
	entry(0)->version = 0;
	cr_assert_eq(try_receive(0), -EPROTO);
}

Test(ring_far, where_a_channel_has_none_nobody_can_say_so)
{
	shape.data_max = CHANNEL_DATA_NEAR;
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends_far(1, 10);
	entry(0)->offset_data_size = CHANNEL_PACK(0, CHANNEL_DATA_NEAR + 1);
	cr_assert_eq(try_receive(0), -EPROTO);
}
