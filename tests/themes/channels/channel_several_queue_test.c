/* SPDX-License-Identifier: MIT */

/* Messages of several buffers in a queue: they are one consumer's as a whole, and so they are given
 * back, set aside, and left by a producer that is gone. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/several_work.h"

static share_client *client, *other;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	several_pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(several_pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_several_queue, .init = start, .fini = stop, .timeout = 60);

static share_channel *open_queue(share_client *c, int role)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);

	o.buffers = MOST;
	o.data_max = 1000;
	return open_channel(c, role, &o);
}

static void receive_again(share_channel *c, int value, uint32_t n, uint32_t deliveries,
			  share_message *m)
{
	receive_several(c, value, n, m);
	check_eq(m->deliveries, deliveries);
}

static void expect_again(share_channel *c, int value, uint32_t n, uint32_t deliveries)
{
	share_message m = SHARE_MESSAGE_INIT;

	receive_again(c, value, n, deliveries, &m);
	check_ok(share_ack(&m, NULL));
}

Test(channel_several_queue, go_to_one_consumer_each)
{
	share_channel *p = open_queue(client, SHARE_PRODUCER);
	share_channel *a = open_queue(other, SHARE_CONSUMER);
	share_channel *b = open_queue(client, SHARE_CONSUMER);

	for (int turn = 0; turn < 50; turn++) {
		share_message m = SHARE_MESSAGE_INIT, k = SHARE_MESSAGE_INIT;

		give(p, turn, 3);
		give(p, turn, MOST);
		check_ok(share_recv(a, HARNESS_LIMIT_MS, NULL, &m));
		check_ok(share_recv(b, HARNESS_LIMIT_MS, NULL, &k));
		check_several(&m, turn, m.n_buffers);
		check_several(&k, turn, k.n_buffers);
		check_eq(m.n_buffers + k.n_buffers, 3 + MOST);
		check_ok(share_ack(&m, NULL));
		check_ok(share_ack(&k, NULL));
		until(in_flight(p) == 0);
	}
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Given back                                                                                  */

Test(channel_several_queue, are_given_back_as_a_whole_and_what_is_kept_of_them_stays)
{
	share_channel *p = open_queue(client, SHARE_PRODUCER);
	share_channel *c = open_queue(other, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	give(p, 10, 4);
	receive_again(c, 10, 4, 1, &m);
	kept = share_retain(m.buffers[2]);
	check(kept);
	check_ok(share_reject(&m, NULL));
	check(!m.channel);
	expect_again(c, 10, 4, 2);
	until(in_flight(p) == 0);
	/* what comes next gets other memory */
	give(p, 50, 4);
	expect_filled(share_ptr(kept), 12, 4096);
	expect_several(c, 50, 4);
	check_ok(share_release(kept, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

static void reject_thrice(share_channel *c, int value, uint32_t n)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (uint32_t deliveries = 1; deliveries <= 3; deliveries++) {
		receive_again(c, value, n, deliveries, &m);
		check_ok(share_reject(&m, NULL));
	}
}

Test(channel_several_queue, that_were_delivered_too_often_are_their_producers_again)
{
	share_channel *p = open_queue(client, SHARE_PRODUCER);
	share_channel *c = open_queue(other, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_buffer *kept;

	give(p, 10, 4);
	reject_thrice(c, 10, 4);
	check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
	check_ok(share_channel_take_back(p, &m));
	check_several(&m, 10, 4);
	check_eq(m.deliveries, 3);
	/* each is the program's, and may be sent and kept */
	out.buffers = m.buffers;
	out.n_buffers = m.n_buffers;
	out.data = m.data;
	out.data_size = m.data_size;
	check_eq(share_send_many(p, &out, 1, NULL), 1);
	kept = share_retain(m.buffers[3]);
	check_ok(share_ack(&m, NULL));
	check(!m.buffers && m.n_buffers == 0);
	expect_again(c, 10, 4, 1);
	expect_filled(share_ptr(kept), 13, 4096);
	check_ok(share_release(kept, NULL));
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

/* Whoever does not take them back has them given back when the channel is closed. */
Test(channel_several_queue, that_nobody_takes_back_are_free_with_the_channel)
{
	share_pool_options small = SHARE_POOL_OPTIONS_INIT;
	share_pool *usual = several_pool;

	small.kind = "host";
	small.limit = 4 << 20;
	check_ok(share_pool_create(client, "small", &small, &several_pool));
	for (int i = 0; i < 70; i++) { /* more than the pool has */
		share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
		share_channel *p, *c;

		o.buffers = MOST;
		o.pool = "small";
		p = open_channel(client, SHARE_PRODUCER, &o);
		c = open_channel(other, SHARE_CONSUMER, &o);
		give(p, 10, MOST);
		reject_thrice(c, 10, MOST);
		check_ok(share_channel_drain(p, HARNESS_LIMIT_MS));
		share_channel_close(c);
		share_channel_close(p);
	}
	share_pool_close(several_pool);
	several_pool = usual;
}

/* ------------------------------------------------------------------------------------------- */
/* Producers that are gone                                                                     */

static void send_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_channel *ch = open_queue(c, SHARE_PRODUCER);

	several_pool = open_pool(c);
	for (int i = 0; i < *(int *)data; i++)
		give(ch, i, 4);
	child_point(self, "sent");
	share_channel_close(ch);
	child_point(self, "closed");
}

static void receive_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_channel *ch = open_queue(c, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "open");
	check_ok(share_recv(ch, -1, NULL, &m));
	check_several(&m, 0, 4);
	child_point(self, "received");
}

static void expect_end(share_channel *c, int error)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_eq(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), error);
}

Test(channel_several_queue, that_nobody_has_received_stay_for_who_comes)
{
	struct child *child = child_start(send_and_die, &(int){3});
	share_channel *c;
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept[4];

	child_wait(child, "sent");
	child_kill(child);
	c = open_queue(other, SHARE_CONSUMER);
	expect_again(c, 0, 4, 1);
	/* each may be kept by itself, and is still there when all of the message is not */
	receive_again(c, 1, 4, 1, &m);
	for (int i = 0; i < 4; i++) {
		kept[i] = share_retain(m.buffers[i]);
		check(kept[i]);
	}
	check_ok(share_ack(&m, NULL));
	expect_again(c, 2, 4, 1);
	expect_end(c, SHARE_EOWNERDEAD);
	for (int i = 0; i < 4; i++) {
		expect_filled(share_ptr(kept[i]), 1 + i, 4096);
		check_ok(share_release(kept[i], NULL));
	}
	share_channel_close(c);
}

Test(channel_several_queue, that_a_dead_consumer_had_go_to_another_though_the_producer_is_gone)
{
	struct child *consumer = child_start(receive_and_die, NULL), *producer;
	share_channel *c;

	child_wait(consumer, "open");
	producer = child_start(send_and_die, &(int){1});
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	child_go(producer);
	child_wait(producer, "closed");
	c = open_queue(other, SHARE_CONSUMER);
	child_kill(consumer);
	expect_again(c, 0, 4, 2);
	expect_end(c, SHARE_EPIPE);
	child_kill(producer);
	share_channel_close(c);
}

/* It may have the same again at once where nobody else is there, and though it has others. */
Test(channel_several_queue, of_a_producer_that_is_gone_may_be_given_back)
{
	struct child *child = child_start(send_and_die, &(int){2});
	share_message first = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;
	/* so that there is no end to be told of while it has some */
	share_channel *p = open_queue(client, SHARE_PRODUCER), *c;

	child_wait(child, "sent");
	child_kill(child);
	c = open_queue(other, SHARE_CONSUMER);
	receive_again(c, 0, 4, 1, &first);
	receive_again(c, 1, 4, 1, &m);
	check_ok(share_reject(&m, NULL));
	receive_again(c, 1, 4, 2, &m);
	check_ok(share_reject(&m, NULL));
	expect_again(c, 1, 4, 3);
	check_ok(share_ack(&first, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several_queue, of_a_producer_that_is_gone_are_known_to_the_next_broker)
{
	struct child *child = child_start(send_and_die, &(int){3});
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *c;
	share_buffer *kept;

	child_wait(child, "sent");
	child_kill(child);
	broker_kill_serving();
	c = open_queue(other, SHARE_CONSUMER);
	expect_again(c, 0, 4, 1);
	receive_again(c, 1, 4, 1, &m);
	broker_kill_serving();
	/* that it has it, and each of its buffers */
	kept = share_retain(m.buffers[3]);
	check_ok(share_ack(&m, NULL));
	broker_kill_serving();
	receive_again(c, 2, 4, 1, &m);
	check_ok(share_reject(&m, NULL));
	broker_kill_serving();
	expect_again(c, 2, 4, 2);
	expect_end(c, SHARE_EOWNERDEAD);
	expect_filled(share_ptr(kept), 4, 4096);
	check_ok(share_release(kept, NULL));
	share_channel_close(c);
}

/* What is sent next would get it, and has to have all of it. */
Test(channel_several_queue, of_producers_that_are_gone_give_all_their_memory_back)
{
	share_pool_options small = SHARE_POOL_OPTIONS_INIT;
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_pool *usual = several_pool;
	share_channel *c;

	small.kind = "host";
	small.limit = 4 << 20;
	check_ok(share_pool_create(client, "small", &small, &several_pool));
	o.buffers = MOST;
	o.pool = "small";
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 70; i++) {
		share_channel *p = open_channel(client, SHARE_PRODUCER, &o);
		share_message m = SHARE_MESSAGE_INIT;

		give(p, i, MOST);
		share_channel_close(p);
		receive_again(c, i, MOST, 1, &m);
		if (i % 3 == 0) {
			check_ok(share_reject(&m, NULL));
			receive_again(c, i, MOST, 2, &m);
		}
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(c);
	share_pool_close(several_pool);
	several_pool = usual;
}
