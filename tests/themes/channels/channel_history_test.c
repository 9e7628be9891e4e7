/* SPDX-License-Identifier: MIT */

/*
 * Consumers that come late get the last messages of each producer, though those who were there have
 * acknowledged them. They keep memory, and no more than that; it goes with the producer.
 */

#include <string.h>

#include "tests/harness/child.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define BLOCK (40u << 20) /* more than half of the pool */

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
	check_ok(share_pool_set_cache(pool, 0));
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_history, .init = start, .fini = stop, .timeout = 100);

static share_channel_options keeps(uint32_t history)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);

	o.depth = 4;
	o.history = history;
	o.from = SHARE_FROM_OLDEST;
	return o;
}

Test(channel_history, who_comes_late_gets_the_last_messages)
{
	share_channel_options o = keeps(3), newest = keeps(3);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *late, *later;
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);

	for (int i = 0; i < 10; i++) {
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	settle(client, s.buffers == 3);
	check_eq(in_flight(p), 0);
	late = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 7; i < 10; i++)
		expect_message(late, i);
	newest.from = SHARE_FROM_NEWEST;
	later = open_channel(other, SHARE_CONSUMER, &newest);
	send_filled(p, pool, 10);
	expect_message(late, 10);
	expect_message(later, 10);
	expect_message(c, 10);
	settle(client, s.buffers == 3);
	share_channel_close(p);
	settle(client, s.buffers == 0);
	share_channel_close(c);
	share_channel_close(late);
	share_channel_close(later);
}

/* As one sends the state of something, for whoever starts at any time. */
Test(channel_history, one_after_the_other_gets_the_last_one)
{
	share_channel_options o = keeps(1);
	share_channel *p, *c;

	o.consumers = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 42);
	for (int i = 0; i < 20; i++) {
		share_host_stream *s;
		share_message m = SHARE_MESSAGE_INIT;

		until(share_channel_open(other, "channel", SHARE_CONSUMER, &o, &c) == 0);
		check_ok(share_host_stream_create(other, &s));
		check_ok(share_recv(c, HARNESS_LIMIT_MS, s, &m));
		check_ok(share_ack(&m, s));
		share_host_stream_destroy(s);
		share_channel_close(c);
	}
	share_channel_close(p);
	settle(client, s.buffers == 0);
}

/* Those who had it are still waited for when it is history no more. */
Test(channel_history, work_on_it_is_waited_for)
{
	share_channel_options o = keeps(1);
	share_client *third = connect_as("third");
	share_pool *theirs = open_pool(third);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o), *late;
	share_buffer *b = allocate(pool, BLOCK, NULL);
	struct gate *gate = gate_new();
	share_host_stream *reading;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	check_ok(share_host_stream_create(other, &reading));
	memset(share_ptr(b), 5, BLOCK);
	check_ok(share_give(p, b, NULL, 0, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, reading, &m));
	gate_hold(gate, reading);
	gate_expect(gate, reading, share_ptr(m.buffer), 5, BLOCK, 0);
	check_ok(share_ack(&m, reading));
	late = open_channel(other, SHARE_CONSUMER, &o);
	expect_message(late, 5);
	send_number(p, 6);
	expect_number(c, 6);
	expect_number(late, 6);
	check_eq(in_flight(p), 1); /* it is taken back, and waits for the reader */
	r = share_alloc(theirs, BLOCK, NULL, &b);
	if (r == 0) /* then the reader has to be done */
		memset(share_ptr(b), 7, BLOCK);
	else
		check_eq(r, SHARE_ENOMEM);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(reading));
	if (r == 0)
		check_ok(share_release(b, NULL));
	until(in_flight(p) == 0);
	until(share_alloc(theirs, BLOCK, NULL, &b) == 0);
	check_ok(share_release(b, NULL));
	share_channel_close(c);
	share_channel_close(late);
	share_channel_close(p);
	share_host_stream_destroy(reading);
	gate_free(gate);
	share_pool_close(theirs);
	share_disconnect(third);
}

static void sends_and_stays(struct child *self, void *data)
{
	share_client *c = child_connect("producer that dies");
	share_channel_options o = keeps(2);
	share_channel *p = open_channel(c, SHARE_PRODUCER, &o);
	share_pool *own = open_pool(c);

	(void)data;
	check_ok(share_pool_set_cache(own, 0));
	for (int i = 0; i < 4; i++)
		send_filled(p, own, i);
	child_point(self, "sent");
}

Test(channel_history, it_ends_with_its_producer)
{
	share_channel_options o = keeps(2);
	struct child *producer = child_start(sends_and_stays, NULL);
	share_channel *c, *late;
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(producer, "sent");
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 4; i++)
		expect_message(c, i);
	settle(client, s.buffers == 2);
	late = open_channel(other, SHARE_CONSUMER, &o);
	expect_message(late, 2);
	child_kill(producer);
	/* it was admitted, so that this is its own */
	expect_message(late, 3);
	check_error(share_recv(late, HARNESS_LIMIT_MS, NULL, &m), SHARE_EOWNERDEAD);
	settle(client, s.buffers == 0);
	share_channel_close(late);
	share_channel_close(c);
}

static void expect_refused(const share_channel_options *o, int error, const char *why)
{
	share_channel *ch;

	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, o, &ch), error);
	check(strstr(share_error_detail(), why));
}

Test(channel_history, it_is_of_broadcasts_and_leaves_room)
{
	share_channel_options o = keeps(5);
	share_channel *p;

	expect_refused(&o, SHARE_EINVAL, "a history of 5 messages");
	o.history = o.in_flight = 4;
	expect_refused(&o, SHARE_EINVAL, "a history of 4 messages");
	o.in_flight = 5;
	o.mode = SHARE_QUEUE;
	expect_refused(&o, SHARE_EINVAL, "a history of 4 messages");
	o.mode = SHARE_BROADCAST;
	p = open_channel(client, SHARE_PRODUCER, &o);
	o.history = 3;
	expect_refused(&o, SHARE_EEXIST, "history");
	share_channel_close(p);
}
