/* SPDX-License-Identifier: MIT */

/*
 * A producer that says itself that it sends no more: every consumer hears of its end, once, after
 * its last message.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_end, .timeout = 30);

static void ends(uint32_t producer)
{
	ring_producer_sends_no_more(producers[producer]);
}

/* Once. */
static void hears_the_end(uint32_t consumer, uint32_t producer)
{
	uint32_t row = RIG_PRODUCERS;

	cr_assert(ring_consumer_end(consumers[consumer], &row));
	cr_assert_eq(row, producer);
	cr_assert_not(ring_consumer_end(consumers[consumer], &row));
}

static void hears_nothing(uint32_t consumer)
{
	uint32_t row;

	cr_assert_not(ring_consumer_end(consumers[consumer], &row));
}

Test(ring_end, the_end_of_a_producer_comes_after_its_last_message)
{
	for (uint32_t mode = CHANNEL_BROADCAST; mode <= CHANNEL_QUEUE; mode++) {
		rig(mode, SHARE_FULL_BLOCK, 1);
		sends(0);
		uses(0, 0);
		receives_nothing(0);
		hears_nothing(0);
		/* between the look for a message and the look for the end */
		sends(1);
		ends(0);
		hears_nothing(0);
		uses(0, 1);
		hears_the_end(0, 0);
		receives_nothing(0);
	}
}

Test(ring_end, one_producer_ends_and_the_other_goes_on)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	producer_comes(1);
	ends(0);
	receives_nothing(0);
	hears_the_end(0, 0);
	cr_assert_eq(try_send(1, 7, 0), 0);
	uses(0, 7);
	ends(1);
	hears_the_end(0, 1);
}

Test(ring_end, who_was_never_admitted_hears_the_end_as_well)
{
	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 1);
	rings[1] = aligned_alloc(4096, 1 << 20);
	cr_assert(rings[1] && channel_ring_size(&shape, CHANNEL_WITH_COPIES) <= 1 << 20);
	memset(rings[1], 0, 1 << 20);
	cr_assert_eq(ring_producer_new(&shape, CHANNEL_WITH_COPIES, rings[1], &producers[1]), 0);
	ring_consumer_attach(consumers[0], 1, 55, rings[1], true);
	hears_nothing(0);
	ends(1);
	hears_the_end(0, 1);
}

Test(ring_end, who_was_left_behind_hears_of_that_and_not_of_the_end)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, 1);
	ring_producer_dismiss(producers[0], 0, false);
	ends(0);
	hears_nothing(0);
	cr_assert_eq(try_receive(0), -ESTALE);
}

Test(ring_end, whoever_sleeps_is_rung_for_the_end)
{
	struct ring_sleep sleep;

	rig(CHANNEL_QUEUE, SHARE_FULL_BLOCK, 2);
	ring_consumer_sleep(consumers[0], false, &sleep);
	ring_consumer_sleep(consumers[1], true, &(struct ring_sleep){0});
	cr_assert_not_null(sleep.word);
	cr_assert(ring_producer_sends_no_more(producers[0]) & 2, "a doorbell is the caller's");
	cr_assert_neq(atomic_load(sleep.word), sleep.value);
}

/* With one entry, the latest is passed over before it is overwritten. */
Test(ring_end, of_a_producer_that_dies_as_it_overwrites_the_latest_is_told)
{
	uint32_t row;

	shape.depth = 1;
	rig(CHANNEL_BROADCAST, SHARE_FULL_FAIL, 0);
	latest_comes(0, false);
	sends(0);
	cr_assert_not(ring_consumer_is_empty(consumers[0], 0));
	cr_assert_eq(ring_producer_look_for_room(producers[0], 0, 0), 0);
	cr_assert_eq(atomic_load(&channel_admission_at(rings[0], &shape, 0)->head), 1);
	/* its next store, and its last */
	atomic_store(&channel_entry_at(rings[0], &shape, 0, 0)->sequence, 0);
	receives_nothing(0);
	cr_assert(ring_consumer_is_empty(consumers[0], 0));
	ring_producer_sends_no_more(producers[0]);
	cr_assert(ring_consumer_end(consumers[0], &row));
}
