/* SPDX-License-Identifier: MIT */

/*
 * A broadcast without consumers, which keeps nobody waiting; and a producer that waits for
 * consumers, because it says so.
 */

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_deserted, .init = start, .fini = stop, .timeout = 60);

#define DEPTH 8u

static share_channel_options so(uint32_t mode, uint32_t when_full, uint32_t wait_for)
{
	share_channel_options o = options(mode, when_full);

	o.depth = DEPTH;
	o.wait_for = wait_for;
	return o;
}

static void expect_with_lost(share_channel *c, uint64_t number, uint64_t lost)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.number, number);
	check_eq(m.lost, lost);
	check_ok(share_ack(&m, NULL));
}

/* ------------------------------------------------------------------------------------------- */

/* More than there is memory for, if it did not come back. */
Test(channel_deserted, a_broadcast_without_consumers_keeps_nobody_waiting)
{
	for (uint32_t when = SHARE_FULL_BLOCK; when <= SHARE_FULL_DROP; when++) {
		share_channel_options o = so(SHARE_BROADCAST, when, 0);
		share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

		for (int i = 0; i < 2000; i++)
			send_filled(p, pool, i);
		check_eq(channel_stats(p).waiting, DEPTH);
		check_eq(channel_stats(p).dropped, 2000 - DEPTH);
		check_eq(in_flight(p), DEPTH);
		check_error(share_channel_flush(p, 0), SHARE_EAGAIN);
		check_detail("messages wait for a consumer, and the channel has none");
		c = open_channel(other, SHARE_CONSUMER, &o);
		expect_with_lost(c, 2000 - DEPTH, 2000 - DEPTH);
		check_eq(channel_stats(c).dropped, 2000 - DEPTH);
		for (uint32_t i = 2001 - DEPTH; i < 2000; i++)
			expect_with_lost(c, i, 0);
		expect_nothing(c);
		check_ok(share_channel_flush(p, 0));
		until(in_flight(p) == 0);
		share_channel_close(c);
		share_channel_close(p);
	}
}

Test(channel_deserted, many_at_once_go_out_as_well)
{
	share_channel_options o = so(SHARE_BROADCAST, SHARE_FULL_FAIL, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	share_outgoing many[100] = {SHARE_OUTGOING_INIT};

	check_eq(share_send_many(p, many, 100, NULL), 100);
	c = open_channel(other, SHARE_CONSUMER, &o);
	expect_with_lost(c, 100 - DEPTH, 100 - DEPTH);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_deserted, a_consumer_that_comes_again_is_told_what_it_has_missed)
{
	share_channel_options o = so(SHARE_BROADCAST, SHARE_FULL_BLOCK, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	uint32_t n = 0;

	for (uint32_t round = 1; round < 20; round++) {
		c = open_channel(other, SHARE_CONSUMER, &o);
		if (n > 0) {
			expect_with_lost(c, n - DEPTH, round - 1);
			for (uint32_t i = n - DEPTH + 1; i < n; i++)
				expect_with_lost(c, i, 0);
		}
		send_number(p, n);
		expect_number(c, n);
		expect_nothing(c);
		share_channel_close(c);
		n++;
		for (uint32_t i = 0; i < DEPTH + round; i++)
			send_number(p, n++);
	}
	share_channel_close(p);
}

Test(channel_deserted, a_queue_keeps_what_waits)
{
	share_channel_options o = so(SHARE_QUEUE, SHARE_FULL_FAIL, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

	for (uint32_t i = 0; i < DEPTH; i++)
		send_number(p, i);
	check_error(share_send(p, NULL, NULL, 0, NULL), SHARE_EAGAIN);
	check_detail(
	    "the channel has no consumer, and no more room for messages that wait for one "
	    "(depth: 8): start one");
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (uint32_t i = 0; i < DEPTH; i++)
		expect_number(c, i);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* A producer that waits                                                                       */

static void *send_all(void *data)
{
	for (uint32_t i = 0; i < 100; i++)
		send_number(data, i);
	return NULL;
}

static void each_of_two_gets_everything(uint32_t mode)
{
	share_channel_options o = so(mode, SHARE_FULL_BLOCK, 2);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c[2];
	pthread_t thread;

	check(pthread_create(&thread, NULL, send_all, p) == 0);
	until(channel_stats(p).sleeps > 0);
	c[0] = open_channel(other, SHARE_CONSUMER, &o);
	until(channel_stats(p).consumers == 1);
	expect_nothing(c[0]);
	c[1] = open_channel(other, SHARE_CONSUMER, &o);
	for (uint32_t i = 0; i < 100; i++)
		for (uint32_t j = 0; j < 2; j++)
			if (mode == SHARE_BROADCAST || i % 2 == j)
				(void)receive_number(c[j]);
	check(pthread_join(thread, NULL) == 0);
	until(in_flight(p) == 0);
	check_eq(channel_stats(p).dropped, 0);
	check_eq(channel_stats(p).left_behind, 0);
	share_channel_close(c[0]);
	share_channel_close(c[1]);
	share_channel_close(p);
}

Test(channel_deserted, a_producer_waits_for_as_many_consumers_as_it_says)
{
	each_of_two_gets_everything(SHARE_BROADCAST);
	each_of_two_gets_everything(SHARE_QUEUE);
}

static bool says(const char *part)
{
	return strstr(share_error_detail(), part) != NULL;
}

Test(channel_deserted, what_does_not_wait_says_how_many_are_missing)
{
	for (uint32_t when = SHARE_FULL_BLOCK; when <= SHARE_FULL_DROP; when++) {
		share_channel_options o = so(SHARE_BROADCAST, when, 2);
		int r = when == SHARE_FULL_BLOCK ? SHARE_ETIMEDOUT : SHARE_EAGAIN;
		share_channel *p, *c[2];

		o.send_timeout_ms = 1;
		p = open_channel(client, SHARE_PRODUCER, &o);
		/* with the first message the broker is asked who has come, within that time, too */
		until(
		    share_send(p, NULL, NULL, 0, NULL) == r &&
		    says("this producer waits for 2 consumers (wait_for), and the channel has 0"));
		c[0] = open_channel(other, SHARE_CONSUMER, &o);
		until(
		    share_send(p, NULL, NULL, 0, NULL) == r &&
		    says("this producer waits for 2 consumers (wait_for), and the channel has 1"));
		c[1] = open_channel(other, SHARE_CONSUMER, &o);
		until(share_send(p, NULL, NULL, 0, NULL) == 0);
		share_channel_close(c[1]);
		check_error(share_send(p, NULL, NULL, 0, NULL), r);
		check_eq(channel_stats(p).sent, 1);
		check_ok(share_channel_flush(p, 0));
		share_channel_close(c[0]);
		share_channel_close(p);
	}
}

Test(channel_deserted, an_event_loop_is_told_that_somebody_has_come)
{
	share_channel_options o = so(SHARE_BROADCAST, SHARE_FULL_FAIL, 1);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	struct pollfd in = {.fd = share_channel_get_fd(p), .events = POLLIN};

	until(share_send(p, NULL, NULL, 0, NULL) == SHARE_EAGAIN && poll(&in, 1, 0) == 0);
	c = open_channel(other, SHARE_CONSUMER, &o);
	until(poll(&in, 1, 0) == 1);
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

/* Who is there is not charged for those who are not. */
Test(channel_deserted, nobody_is_left_behind_for_those_who_are_missing)
{
	share_channel_options o = so(SHARE_BROADCAST, SHARE_FULL_FAIL, 2);
	share_channel *p, *c[2];

	o.stall_ms = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c[0] = open_channel(other, SHARE_CONSUMER, &o);
	c[1] = open_channel(other, SHARE_CONSUMER, &o);
	for (uint32_t i = 0; i < DEPTH; i++)
		send_number(p, i);
	share_channel_close(c[1]);
	for (int i = 0; i < 1000; i++)
		check_error(share_send(p, NULL, NULL, 0, NULL), SHARE_EAGAIN);
	check_eq(channel_stats(p).left_behind, 0);
	for (uint32_t i = 0; i < DEPTH; i++)
		expect_number(c[0], i);
	share_channel_close(c[0]);
	share_channel_close(p);
}

Test(channel_deserted, nobody_waits_for_more_than_there_can_be)
{
	share_channel_options o = so(SHARE_BROADCAST, SHARE_FULL_BLOCK, 65);
	share_channel *p;

	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &p), SHARE_EINVAL);
	check_detail("a channel has at most 64 consumers");
	o.consumers = 2;
	o.wait_for = 3;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &p), SHARE_EINVAL);
	check_detail("the channel has at most 2 consumers");
	o.wait_for = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel_close(p);
}
