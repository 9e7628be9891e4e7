/* SPDX-License-Identifier: MIT */

/* A producer makes sure that what it has sent can be received when it is gone. */

#include <pthread.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other, *third;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	third = connect_as("another");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(third);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_flush, .init = start, .fini = stop, .timeout = 60);

static void *flushes(void *p)
{
	check_ok(share_channel_flush(p, HARNESS_LIMIT_MS));
	share_channel_close(p);
	return NULL;
}

static pthread_t flush_and_close(share_channel *p)
{
	pthread_t thread;

	check(pthread_create(&thread, NULL, flushes, p) == 0);
	return thread;
}

static void waits_for_the_first(uint32_t mode)
{
	share_channel_options o = options(mode, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	share_message m = SHARE_MESSAGE_INIT;
	pthread_t thread;

	check_ok(share_channel_flush(p, 0));
	for (int i = 1; i < 4; i++)
		send_filled(p, pool, i);
	check_eq(channel_stats(p).waiting, 3);
	check_error(share_channel_flush(p, 0), SHARE_EAGAIN);
	check_error(share_channel_flush(p, 1), SHARE_ETIMEDOUT);
	thread = flush_and_close(p);
	c = open_channel(other, SHARE_CONSUMER, &o);
	check(pthread_join(thread, NULL) == 0);
	for (int i = 1; i < 4; i++)
		expect_message(c, i);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(c);
}

Test(channel_flush, a_queue_waits_for_the_first_who_comes)
{
	waits_for_the_first(SHARE_QUEUE);
}

Test(channel_flush, a_broadcast_waits_for_the_first_who_comes)
{
	waits_for_the_first(SHARE_BROADCAST);
}

Test(channel_flush, a_queue_waits_for_room)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p, *a, *b;
	share_message m = SHARE_MESSAGE_INIT;
	pthread_t thread;
	unsigned seen = 0;

	o.depth = 4;
	o.in_flight = 16;
	p = open_channel(client, SHARE_PRODUCER, &o);
	a = open_channel(other, SHARE_CONSUMER, &o);
	b = open_channel(third, SHARE_CONSUMER, &o);
	for (int i = 0; i < 8; i++)
		send_filled(p, pool, i);
	check_ok(share_channel_flush(p, 0));
	share_channel_close(b); /* what it had not received is for the other one, which is full */
	until(channel_stats(p).waiting == 4);
	thread = flush_and_close(p);
	for (int i = 0; i < 8; i++) {
		check_ok(share_recv(a, HARNESS_LIMIT_MS, NULL, &m));
		seen |= 1u << *(const unsigned char *)share_ptr(m.buffer);
		check_ok(share_ack(&m, NULL));
	}
	check_eq(seen, 255);
	check(pthread_join(thread, NULL) == 0);
	check_error(share_recv(a, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(a);
}

Test(channel_flush, consumers_have_nothing_to_flush)
{
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);

	check_error(share_channel_flush(c, 0), SHARE_EACCES);
	check_error(share_channel_flush(NULL, 0), SHARE_EINVAL);
	share_channel_close(c);
}
