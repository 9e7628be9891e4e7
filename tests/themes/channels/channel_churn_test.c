/* SPDX-License-Identifier: MIT */

/*
 * Members that come and go while one message is held. Whoever leaves nothing behind is not
 * remembered, so that what a producer remembers does not grow with their number.
 */

#include "libshare/sender/inside.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define COMINGS 300

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("those who come and go");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_churn, .init = start, .fini = stop, .timeout = 120);

/* How many consumers that are gone the producer still knows. */
static uint32_t remembered(share_channel *p)
{
	const struct channel_owner *owner;
	uint32_t n = 0;

	p = channel_of(p);
	LIST_FOREACH (owner, &sender_lock(p)->owners, link)
		n += owner->gone;
	channel_unlock(p);
	return n;
}

static share_message hold_one(share_channel *p, share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 1);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	return m;
}

Test(channel_churn, consumers_that_leave_nothing_are_not_remembered)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *c;
	share_channel *keeper = open_channel(other, SHARE_CONSUMER, NULL);
	share_message held = hold_one(p, keeper);

	for (uint32_t i = 0; i < COMINGS; i++) {
		c = open_channel(other, SHARE_CONSUMER, NULL);
		until(channel_stats(p).consumers == 2);
		share_channel_close(c);
		until(channel_stats(p).consumers == 1);
	}
	check_eq(remembered(p), 0);
	check_ok(share_ack(&held, NULL));
	share_channel_close(keeper);
	share_channel_close(p);
}

/* The first one leaves a fence, those who come after it nothing. */
Test(channel_churn, one_that_leaves_a_fence_is_remembered_until_it_is_reached)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *c;
	share_channel *keeper = open_channel(other, SHARE_CONSUMER, NULL);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(other, &stream));
	c = open_channel(other, SHARE_CONSUMER, NULL);
	until(channel_stats(p).consumers == 2);
	held = hold_one(p, keeper);
	gate_hold(gate, stream);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, stream));
	share_channel_close(c);
	until(channel_stats(p).consumers == 1);
	check_eq(remembered(p), 1);
	check_ok(share_ack(&held, NULL));
	for (uint32_t i = 0; i < COMINGS; i++) {
		c = open_channel(other, SHARE_CONSUMER, NULL);
		until(channel_stats(p).consumers == 2);
		share_channel_close(c);
		until(channel_stats(p).consumers == 1);
	}
	check_eq(remembered(p), 1);
	check_eq(in_flight(p), 1);
	gate_open(gate);
	until(in_flight(p) == 0);
	share_host_stream_destroy(stream);
	gate_free(gate);
	share_channel_close(keeper);
	share_channel_close(p);
}
