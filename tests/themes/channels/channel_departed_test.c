/* SPDX-License-Identifier: MIT */

/*
 * A consumer has closed the channel while its work on two messages is running. When the producer
 * goes, their memory stays until that work is done, however many other consumers there are. All
 * sides are written by hand.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/raw_channel.h"

#define SLOT 5

static share_client *witness;
static struct raw a, b;
static struct party producer, departing, others[CHANNEL_MEMBERS_MAX];

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
	raw_open(&a, "producer");
	raw_open(&b, "consumers");
}

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
}

TestSuite(channel_departed, .init = start, .fini = stop, .timeout = 60);

static void goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

/* One has acknowledged messages behind work of its own and has gone; then its producer goes. */
static void leave_work_running(uint32_t n_others)
{
	party_join(&producer, &a, "c", SHARE_PRODUCER);
	party_join(&departing, &b, "c", SHARE_CONSUMER);
	party_admit(&producer, &departing);
	for (uint32_t ticket = 0; ticket < 2; ticket++) {
		party_put(&producer, ticket, raw_alloc(&a, raw_pool(&a, "default"), 4096), 1);
		party_acknowledge(&departing, &producer, ticket, 1, SLOT, 7);
	}
	party_close(&departing);
	for (uint32_t i = 0; i < n_others; i++) {
		party_join(&others[i], &b, "c", SHARE_CONSUMER);
		party_admit(&producer, &others[i]);
	}
	party_close(&producer);
	goodbye(&a);
}

static void expect_to_wait_for_work(uint32_t n_others)
{
	leave_work_running(n_others);
	for (uint32_t i = 0; i < n_others; i++)
		party_close(&others[i]);
	settle(witness, s.clients == 2 && s.leases == 0);
	for (int i = 0; i < 3; i++) /* turns of the broker's loop */
		raw_ask(&b, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
	settle(witness, s.buffers == 2);
	timeline_signal(b.page, SLOT, 7);
	settle(witness, s.buffers == 0);
	goodbye(&b);
}

Test(channel_departed, work_of_one_that_is_gone_is_waited_for)
{
	expect_to_wait_for_work(1);
}

Test(channel_departed, work_of_one_that_is_gone_is_waited_for_among_as_many_as_there_can_be)
{
	expect_to_wait_for_work(CHANNEL_MEMBERS_MAX);
}
