/* SPDX-License-Identifier: MIT */

/* Channels whose messages carry more than 256 bytes (`data_max`): all that a message may live
 * through, it lives through with them. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"
#include "tests/support/raw_channel.h"
#include "wire/messages.h"

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

TestSuite(channel_data, .init = start, .fini = stop, .timeout = 60);

#define MUCH SHARE_CHANNEL_DATA_MAX

static unsigned char bytes[MUCH];

static const unsigned char *content(int value, size_t size)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)((size_t)value * 31 + i + i / 256 * 5);
	return bytes;
}

static share_channel_options much(uint32_t mode, uint32_t when_full)
{
	share_channel_options o = options(mode, when_full);

	o.data_max = MUCH;
	return o;
}

/* With memory, which is filled with the same value. */
static void send_much(share_channel *p, share_pool *of, int value, size_t size)
{
	check_ok(share_give(p, filled_buffer(of, value), content(value, size), size, NULL));
}

static void check_much(const share_message *m, int value, size_t size)
{
	check_eq(m->data_size, size);
	check(memcmp(m->data, content(value, size), size) == 0);
	expect_filled(share_ptr(m->buffer), value, 4096);
}

static void expect_much(share_channel *c, int value, size_t size, uint32_t deliveries)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_much(&m, value, size);
	check_eq(m.deliveries, deliveries);
	check_ok(share_ack(&m, NULL));
}

Test(channel_data, go_with_messages_of_both_modes_in_any_size)
{
	static const size_t sizes[] = {0, 1, 256, 257, 1000, 4096, 65000, MUCH};

	for (uint32_t mode = SHARE_BROADCAST; mode <= SHARE_QUEUE; mode++) {
		share_channel_options o = much(mode, SHARE_FULL_BLOCK);
		share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
		share_channel *c = open_channel(other, SHARE_CONSUMER, &o);

		for (int turn = 0; turn < 100; turn++)
			for (int i = 0; i < 8; i++) {
				send_much(p, pool, turn + i, sizes[i]);
				expect_much(c, turn + i, sizes[i], 1);
			}
		check_error(share_send(p, NULL, bytes, MUCH + 1, NULL), SHARE_EINVAL);
		share_channel_close(c);
		share_channel_close(p);
	}
}

/* Each has its own, until it is given up. */
Test(channel_data, messages_that_were_received_together_have_their_own)
{
	share_channel_options o = much(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	share_message m[20];
	int n = 0;

	for (int i = 0; i < 20; i++) {
		m[i] = (share_message)SHARE_MESSAGE_INIT;
		check_ok(share_send(p, NULL, content(i, 300 + (size_t)i), 300 + (size_t)i, NULL));
	}
	while (n < 20) {
		int r = share_recv_many(c, HARNESS_LIMIT_MS, NULL, m + n, 20 - (size_t)n);

		check(r > 0);
		n += r;
	}
	for (int i = 0; i < 20; i++) {
		check_eq(m[i].data_size, 300 + (size_t)i);
		check(memcmp(m[i].data, content(i, m[i].data_size), m[i].data_size) == 0);
	}
	check_ok(share_ack_many(m, 20, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_data, who_comes_later_and_who_gets_the_latest_alone_get_them)
{
	share_channel_options o = much(SHARE_BROADCAST, SHARE_FULL_BLOCK), late = o;
	share_channel *p, *viewer, *c;

	o.history = late.history = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	o.flags = SHARE_CHANNEL_LATEST;
	viewer = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 5; i++)
		send_much(p, pool, i, 5000);
	expect_much(viewer, 4, 5000, 1);
	late.from = SHARE_FROM_OLDEST;
	c = open_channel(other, SHARE_CONSUMER, &late);
	until(channel_stats(p).consumers == 2);
	send_much(p, pool, 5, 5001);
	for (int i = 3; i < 5; i++)
		expect_much(c, i, 5000, 1);
	expect_much(c, 5, 5001, 1);
	share_channel_close(c);
	share_channel_close(viewer);
	share_channel_close(p);
}

Test(channel_data, what_is_dropped_is_no_mixture_with_what_comes)
{
	share_channel_options o = much(SHARE_BROADCAST, SHARE_FULL_DROP);
	share_channel *p, *c;
	share_message m = SHARE_MESSAGE_INIT;

	o.depth = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 200; i++) {
		send_much(p, pool, i, 3000);
		if (i % 9 != 8)
			continue;
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_much(&m, (int)m.number, 3000);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Who dies                                                                                    */

#define SIZE 20000

static void receive_one(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *ch = open_channel(c, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "open");
	check_ok(share_recv(ch, -1, NULL, &m));
	child_point(self, "received");
}

static struct child *open_one(void)
{
	struct child *child = child_start(receive_one, NULL);

	child_wait(child, "open");
	return child;
}

static void let_it_die_with_one(struct child *child)
{
	child_go(child);
	child_wait(child, "received");
	child_kill(child);
}

Test(channel_data, what_a_dead_consumer_had_comes_with_them_to_another)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	struct child *child = open_one();

	send_much(p, pool, 1, SIZE);
	send_much(p, pool, 2, SIZE + 1);
	let_it_die_with_one(child);
	c = open_channel(other, SHARE_CONSUMER, &o);
	expect_much(c, 1, SIZE, 2);
	expect_much(c, 2, SIZE + 1, 1);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_data, what_is_rejected_comes_with_them_again)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	share_message m = SHARE_MESSAGE_INIT;

	send_much(p, pool, 1, SIZE);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_reject(&m, NULL));
	expect_much(c, 1, SIZE, 2);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_data, what_was_delivered_too_often_comes_back_with_them)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_message m = SHARE_MESSAGE_INIT;
	struct child *child;
	share_channel *p;

	o.deliveries = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = open_one();
	send_much(p, pool, 3, SIZE);
	let_it_die_with_one(child);
	until(share_channel_take_back(p, &m) == 0);
	check_much(&m, 3, SIZE);
	check_ok(share_ack(&m, NULL));
	share_channel_close(p);
}

/* Its ring stays as long as somebody may want what is in it. */
Test(channel_data, what_a_producer_leaves_when_it_closes_comes_with_them)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

	for (int i = 0; i < 3; i++)
		send_much(p, pool, i, SIZE + (size_t)i);
	share_channel_close(p);
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 3; i++)
		expect_much(c, i, SIZE + (size_t)i, 1);
	share_channel_close(c);
}

Test(channel_data, the_next_broker_has_them_as_the_last_one_had)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

	send_much(p, pool, 1, SIZE);
	share_channel_close(p);
	broker_kill_serving();
	c = open_channel(other, SHARE_CONSUMER, &o);
	expect_much(c, 1, SIZE, 1);
	share_channel_close(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Who does not know them                                                                      */

Test(channel_data, an_older_library_is_told_that_it_cannot_take_part)
{
	share_channel_options o = much(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	struct wire_message m = party_request("channel", SHARE_CONSUMER);
	struct raw r;

	raw_connect(&r);
	r.version = WIRE_VERSION_FAR - 1;
	raw_greet(&r, "old");
	raw_ask_error(&r, &m, SHARE_ENOTSUP);
	m = party_request("channel", SHARE_PRODUCER);
	raw_ask_error(&r, &m, SHARE_ENOTSUP);
	/* nor does it make such a channel */
	m = party_request("another", SHARE_PRODUCER);
	m.channel_open.data_max = 257;
	raw_ask_error(&r, &m, SHARE_ENOTSUP);
	raw_close(&r);
	/* others go on */
	c = open_channel(other, SHARE_CONSUMER, &o);
	send_much(p, pool, 1, MUCH);
	expect_much(c, 1, MUCH, 1);
	share_channel_close(c);
	share_channel_close(p);
}

/* A program that was written when there were no more has room for no more. */
Test(channel_data, a_consumer_that_does_not_say_so_is_sent_no_more_than_ever)
{
	share_channel_options o = much(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel_options silent = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *ch;

	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, NULL, &ch), SHARE_EEXIST);
	check(strstr(share_error_detail(), "data_max"));
	silent.flags = SHARE_CHANNEL_EXISTING;
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &silent, &ch),
		    SHARE_EEXIST);
	check_eq(channel_stats(p).consumers, 0);
	/* who sends needs no room */
	share_channel_close(open_channel(other, SHARE_PRODUCER, NULL));
	ch = open_channel(other, SHARE_CONSUMER, &o);
	send_much(p, pool, 1, MUCH);
	expect_much(ch, 1, MUCH, 1);
	share_channel_close(ch);
	share_channel_close(p);
}

Test(channel_data, what_is_more_than_a_producer_may_have_in_flight_is_refused)
{
	share_channel_options o = much(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *ch;

	o.in_flight = 1025;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &ch), SHARE_EINVAL);
	check(strstr(share_error_detail(), "in flight"));
	o.in_flight = 1024;
	ch = open_channel(client, SHARE_PRODUCER, &o);
	share_channel_close(ch);
	o.data_max = MUCH + 1;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &ch), SHARE_EINVAL);
}
