/* SPDX-License-Identifier: MIT */

/*
 * What the other side's page may say: anything. Whoever writes it harms itself only.
 */

#include <errno.h>
#include <string.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_hostile, .timeout = 30);

static struct channel_entry *entry(uint64_t sequence)
{
	return channel_entry_at(rings[0], &shape, 0, sequence);
}

static struct channel_row *row(uint32_t consumer)
{
	return channel_row_at(ledgers[consumer], &shape, 0);
}

static void one_message(void)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	sends(0);
}

static void is_refused(void)
{
	cr_assert_eq(try_receive(0), -EPROTO);
	cr_assert_eq(message_producer, 0);
	receives_nothing(0);
	cr_assert(ring_consumer_is_empty(consumers[0], 0));
}

Test(ring_hostile, a_ticket_that_is_not_there_is_refused, .init = one_message)
{
	entry(0)->ticket = (uint16_t)shape.in_flight;
	is_refused();
}

Test(ring_hostile, more_data_than_fits_is_refused, .init = one_message)
{
	entry(0)->offset_data_size = CHANNEL_PACK(0, shape.data_max + 1);
	is_refused();
}

Test(ring_hostile, a_timeline_that_is_not_there_is_refused, .init = one_message)
{
	entry(0)->timeline = 256;
	is_refused();
}

Test(ring_hostile, a_version_that_acknowledges_nothing_is_refused, .init = one_message)
{
	entry(0)->version = 0;
	is_refused();
}

Test(ring_hostile, a_size_without_a_buffer_is_refused, .init = one_message)
{
	entry(0)->buffer = 0;
	is_refused();
}

Test(ring_hostile, a_message_never_delivered_is_refused, .init = one_message)
{
	entry(0)->size_deliveries = CHANNEL_PACK(512, 0);
	is_refused();
}

Test(ring_hostile, a_message_from_the_future_is_refused, .init = one_message)
{
	entry(0)->sequence = 2;
	is_refused();
}

Test(ring_hostile, one_that_makes_no_sense_does_not_keep_others_from_being_received,
     .init = one_message)
{
	producer_comes(1);
	cr_assert_eq(try_send(1, 5, 0), 0);
	entry(0)->version = 0;
	cr_assert_eq(try_receive(0), -EPROTO);
	cr_assert_eq(message_producer, 0);
	receives(0, 5);
	cr_assert_eq(message_producer, 1);
}

Test(ring_hostile, a_head_beyond_everything_ends)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_DROP, 1);
	channel_lane_at(rings[0], &shape, 0)->head = UINT64_C(1) << 62;
	receives_nothing(0);
	receives_nothing(0);
	cr_assert_eq(row(0)->taken, UINT64_C(1) << 62);
}

/* ------------------------------------------------------------------------------------------- */

Test(ring_hostile, who_claims_to_have_taken_what_was_not_sent_still_has_to_acknowledge)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	row(0)->taken = UINT64_MAX;
	for (uint64_t i = 0; i < 8; i++)
		sends(i);
	cr_assert_eq(try_send(0, 8, 0), -EAGAIN);
	cr_assert_eq(ring_producer_holdups(producers[0]), 1);
	nothing_comes_back();
}

Test(ring_hostile, to_have_taken_less_than_before_means_nothing, .init = one_message)
{
	receives(0, 0);
	cr_assert(ring_producer_has_moved(producers[0], 0));
	row(0)->taken = 0;
	cr_assert_not(ring_producer_has_moved(producers[0], 0));
	for (uint64_t i = 1; i < 5; i++)
		sends(i);
}

Test(ring_hostile, acknowledging_another_version_is_no_acknowledgement, .init = one_message)
{
	static const uint32_t versions[] = {0, 2, 3, UINT32_MAX};

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		row(0)->acks[0].word = (uint64_t)versions[i] << 32;
		nothing_comes_back();
	}
}

Test(ring_hostile, a_fence_on_no_timeline_is_none, .init = one_message)
{
	row(0)->acks[0].word = UINT64_C(1) << 32 | 256;
	comes_back(0);
	cr_assert_eq(returned.n, 0);
	sends(1);
	row(0)->acks[1].word = UINT64_C(1) << 32 | 0x3fffffff;
	comes_back(1);
	cr_assert_eq(returned.n, 0);
}

Test(ring_hostile, a_row_about_somebody_else_is_not_looked_at)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	row(0)->producer = 1;
	sends(0);
	row(0)->acks[0].word = UINT64_C(1) << 32;
	row(0)->taken = 1;
	nothing_comes_back();
	for (uint64_t i = 1; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
}

/* It could have had it sent again to everybody for ever. */
Test(ring_hostile, to_acknowledge_what_others_were_sent_gives_nothing_back)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	sends(0); /* to consumer 1 */
	row(0)->acks[0].word = UINT64_C(1) << 32;
	nothing_comes_back();
	uses(1, 0);
	comes_back(0);
}

/* A fence that was seen is kept: what is written afterwards is not read. */
Test(ring_hostile, an_acknowledgement_is_read_once)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 2);
	sends(0);
	row(0)->acks[0].value = 50;
	row(0)->acks[0].word = UINT64_C(1) << 32 | 5;
	nothing_comes_back();
	memset(row(0)->acks, 0xff, sizeof(row(0)->acks[0]));
	uses(1, 0);
	comes_back(0);
	cr_assert_eq(returned.n, 1);
	cr_assert_eq(returned.fences[0].fence.slot, 5);
	cr_assert_eq(returned.fences[0].fence.value, 50);
}

Test(ring_hostile, nonsense_about_sleep_rings_for_nobody, .init = one_message)
{
	((struct channel_ledger *)ledgers[0])->sleeping = 0xffffffff;
	cr_assert_eq(ring_producer_wake(producers[0]), 0);
	((struct channel_ring *)rings[0])->waiting = 0xffffffff;
	receives(0, 0);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 0);
}
