/* SPDX-License-Identifier: MIT */

/* Who sleeps is woken, by whoever can have what it waits for, and by nobody else. */

#include <errno.h>

#include "tests/ring/ring_rig.h"

TestSuite(ring_bells, .timeout = 30);

static void broadcast(uint32_t n)
{
	rig(CHANNEL_BROADCAST, SHARE_FULL_BLOCK, n);
}

Test(ring_bells, only_those_who_sleep_are_rung_for)
{
	struct ring_sleep sleep;

	broadcast(3);
	(void)ring_producer_wake(producers[0]);
	ring_consumer_sleep(consumers[1], true, &sleep);
	cr_assert_null(sleep.word);
	cr_assert_eq(ring_producer_wake(producers[0]), 0, "nothing was sent");
	sends(1);
	cr_assert_eq(ring_producer_wake(producers[0]), 2);
	ring_consumer_awake(consumers[1]);
	sends(2);
	cr_assert_eq(ring_producer_wake(producers[0]), 0);
}

Test(ring_bells, one_ring_is_enough_for_a_sleep)
{
	struct ring_sleep sleep;
	uint32_t rung;

	broadcast(2);
	(void)ring_producer_wake(producers[0]);
	ring_consumer_sleep(consumers[0], false, &sleep);
	ring_consumer_sleep(consumers[1], true, &(struct ring_sleep){0});
	sends(1);
	cr_assert_eq(ring_producer_wake(producers[0]), 2);
	rung = *sleep.word;
	sends(2);
	cr_assert_eq(ring_producer_wake(producers[0]), 0);
	cr_assert_eq(*sleep.word, rung);
	ring_consumer_awake(consumers[0]);
	ring_consumer_sleep(consumers[0], false, &sleep);
	ring_consumer_sleep(consumers[1], true, &(struct ring_sleep){0});
	sends(3);
	cr_assert_eq(ring_producer_wake(producers[0]), 2, "that is another sleep");
	cr_assert_neq(*sleep.word, sleep.value);
}

/* Its doorbell is drained by who goes on waiting. */
Test(ring_bells, a_producer_on_its_doorbell_is_told_of_everything)
{
	struct ring_sleep sleep;

	broadcast(1);
	sends(1);
	sends(2);
	ring_producer_sleep(producers[0], true, &sleep);
	receives(0, 1);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 1);
	acks(0);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 1);
	ring_producer_awake(producers[0]);
	uses(0, 2);
	cr_assert_eq(ring_consumer_wake(consumers[0]), 0);
}

static bool may_sleep(const _Atomic uint32_t *word)
{
	return *word & CHANNEL_MAY_SLEEP;
}

Test(ring_bells, who_has_not_slept_for_long_says_so)
{
	const struct channel_ledger *ledger;
	const struct channel_ring *ring;
	struct ring_sleep sleep;

	broadcast(1);
	ledger = ledgers[0];
	ring = rings[0];
	if (may_sleep(&ledger->sleeping))
		cr_skip_test("this system has no barrier for others");
	ring_consumer_sleep(consumers[0], false, &sleep);
	ring_producer_sleep(producers[0], true, &sleep);
	ring_consumer_awake(consumers[0]);
	cr_assert(may_sleep(&ledger->sleeping));
	cr_assert(may_sleep(&ring->waiting));
	for (uint64_t i = 0; i < 2000; i++) {
		sends(i);
		uses(0, i);
		comes_back(i);
	}
	cr_assert_not(may_sleep(&ledger->sleeping));
	cr_assert(may_sleep(&ring->waiting), "it still waits");
	ring_producer_awake(producers[0]);
	for (uint64_t i = 0; i < 2000; i++) {
		sends(i);
		uses(0, i);
		comes_back(i);
	}
	cr_assert_not(may_sleep(&ring->waiting));
}

Test(ring_bells, a_sleeper_on_the_futex_sees_its_word_change)
{
	struct ring_sleep sleep;

	broadcast(1);
	ring_consumer_sleep(consumers[0], false, &sleep);
	cr_assert_not_null(sleep.word);
	cr_assert_eq(*sleep.word, sleep.value);
	sends(1);
	cr_assert_eq(ring_producer_wake(producers[0]), 0);
	cr_assert_neq(*sleep.word, sleep.value);
	ring_consumer_awake(consumers[0]);
	producer_comes(1);
	ring_consumer_sleep(consumers[0], false, &sleep);
	cr_assert_null(sleep.word, "two producers have two bells");
}

Test(ring_bells, a_producer_sleeps_on_the_futex_of_the_one_that_holds_it_up)
{
	struct ring_sleep sleep;

	broadcast(2);
	for (uint64_t i = 0; i < 4; i++) {
		sends(i);
		uses(0, i);
	}
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	ring_producer_sleep(producers[0], false, &sleep);
	cr_assert_eq(sleep.word, &((const struct channel_ledger *)ledgers[1])->bell);
	(void)ring_consumer_wake(consumers[0]);
	cr_assert_eq(*sleep.word, sleep.value, "the other one's bell is its own");
	receives(1, 0);
	cr_assert_eq(ring_consumer_wake(consumers[1]), 0);
	cr_assert_neq(*sleep.word, sleep.value);
	ring_producer_awake(producers[0]);
	acks(1);
	sleep.value = *sleep.word;
	cr_assert_eq(ring_consumer_wake(consumers[1]), 0);
	cr_assert_eq(*sleep.word, sleep.value, "nobody sleeps");
}

Test(ring_bells, a_producer_that_several_hold_up_waits_for_its_doorbell)
{
	struct ring_sleep sleep;

	broadcast(2);
	for (uint64_t i = 0; i < 4; i++)
		sends(i);
	cr_assert_eq(try_send(0, 4, 0), -EAGAIN);
	ring_producer_sleep(producers[0], false, &sleep);
	cr_assert_null(sleep.word);
	cr_assert_eq(ring_consumer_wake(consumers[1]), 0, "it has done nothing");
	receives(1, 0);
	cr_assert_eq(ring_consumer_wake(consumers[1]), 1);
}
