/* SPDX-License-Identifier: MIT */

/* What messages were made of is used again: after all who had a message, and after whoever gave the
 * memory away with it. */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define BLOCK (1u << 20)
#define MANY  10

/* With room for one block. */
static const char config[] =
    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"1MiB\", "
    "\"segment_size\": \"1MiB\", \"release_threshold\": 0}]}";

static share_client *client, *other;
static share_pool *pool;
static share_host_stream *giving, *next_use;
static struct gate *gate;

static void start(void)
{
	fixture_start_with(config);
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
	check_ok(share_pool_set_cache(pool, BLOCK));
	check_ok(share_host_stream_create(client, &giving));
	check_ok(share_host_stream_create(client, &next_use));
	gate = gate_new();
}

static void stop(void)
{
	gate_open(gate);
	share_host_stream_destroy(giving);
	share_host_stream_destroy(next_use);
	gate_free(gate);
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_reuse, .init = start, .fini = stop, .timeout = 60);

static share_buffer *small_buffer(int value)
{
	return filled_buffer(pool, value);
}

/* The only block there is, as soon as it is back. */
static share_buffer *allocate_again(void *stream)
{
	share_buffer *b = NULL;

	until(share_alloc(pool, BLOCK, stream, &b) == 0);
	return b;
}

/* Filled with 5 once the gate is open, and given away before. */
static void give_busy_block(share_channel *p)
{
	share_buffer *b = allocate(pool, BLOCK, giving);

	gate_hold(gate, giving);
	gate_fill(gate, giving, share_ptr(b), 5, BLOCK);
	check_ok(share_give(p, b, NULL, 0, giving));
}

/* It comes after the work of the giver, which is held up still. */
static void expect_order_after_giver(void)
{
	share_buffer *b = allocate_again(next_use);

	gate_expect(gate, next_use, share_ptr(b), 5, BLOCK, 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(next_use));
	check_ok(share_release(b, next_use));
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_reuse, what_is_given_goes_back_with_its_acknowledgement)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_pool_set_cache(pool, 0));
	check_ok(share_give(p, small_buffer(3), "text", 5, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	expect_filled(share_ptr(m.buffer), 3, 4096);
	check(strcmp((const char *)m.data, "text") == 0);
	settle(other, s.buffers == 1);
	check_ok(share_ack(&m, NULL));
	settle(other, s.buffers == 0);
	check_eq(in_flight(p), 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_reuse, who_could_not_give_something_away_has_it_still)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *p, *c;
	share_buffer *b;

	o.depth = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (uint32_t i = 0; i < 4; i++)
		send_number(p, i);
	b = small_buffer(4);
	check_error(share_give(p, b, NULL, 0, NULL), SHARE_EAGAIN);
	check_error(share_give(p, b, "", SHARE_MESSAGE_DATA_MAX + 1, NULL), SHARE_EINVAL);
	check_error(share_give(c, b, NULL, 0, NULL), SHARE_EACCES);
	expect_filled(share_ptr(b), 4, 4096);
	expect_number(c, 0);
	check_ok(share_give(p, b, NULL, 0, NULL));
	for (uint32_t i = 1; i < 4; i++)
		expect_number(c, i);
	expect_message(c, 4);
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_reuse, of_a_batch_is_given_what_is_sent)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_outgoing out[6] = {SHARE_OUTGOING_INIT};
	share_channel *p, *c;

	o.depth = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	check_ok(share_pool_set_cache(pool, 0));
	for (int i = 0; i < 6; i++) {
		out[i].buffer = small_buffer(i);
		out[i].flags = SHARE_OUTGOING_GIVE;
	}
	out[1].flags = 0;
	check_eq(share_send_many(p, out, 6, NULL), 4);
	for (int i = 0; i < 4; i++)
		expect_message(c, i);
	settle(other, s.buffers == 3);
	check_ok(share_release(out[1].buffer, NULL));
	check_ok(share_release(out[4].buffer, NULL));
	check_ok(share_release(out[5].buffer, NULL));
	settle(other, s.buffers == 0);
	out[0] = (share_outgoing){.size = sizeof(out[0]), .flags = 2};
	check_error(share_send_many(p, out, 1, NULL), SHARE_EINVAL);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_reuse, what_only_a_message_holds_cannot_be_given_away)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *on, *end;
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_channel_open(other, "further", SHARE_PRODUCER, NULL, &on));
	check_ok(share_channel_open(client, "further", SHARE_CONSUMER, NULL, &end));
	check_ok(share_give(p, small_buffer(8), NULL, 0, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_error(share_give(on, m.buffer, NULL, 0, NULL), SHARE_EINVAL);
	share_retain(m.buffer);
	check_ok(share_give(on, m.buffer, NULL, 0, NULL));
	check_ok(share_ack(&m, NULL));
	expect_message(end, 8);
	until(in_flight(on) == 0 && in_flight(p) == 0);
	share_channel_close(end);
	share_channel_close(on);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_reuse, what_is_retained_is_not_used_again_while_somebody_has_it)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_buffer *kept, *b;
	share_message m = SHARE_MESSAGE_INIT;

	b = allocate(pool, BLOCK, NULL);
	memset(share_ptr(b), 6, BLOCK);
	check_ok(share_give(p, b, NULL, 0, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	check_error(share_alloc(pool, BLOCK, NULL, &b), SHARE_ENOMEM);
	expect_filled(share_ptr(kept), 6, BLOCK);
	check_ok(share_release(kept, NULL));
	check_ok(share_release(allocate_again(NULL), NULL));
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

/* Its stream waits for the giver; the thread that acknowledges has nothing to do with that. */
Test(channel_reuse, an_acknowledgement_does_not_speak_for_whoever_gave_the_memory)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_host_stream *receiving;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(other, &receiving));
	give_busy_block(p);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, receiving, &m));
	check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	expect_order_after_giver();
	share_host_stream_destroy(receiving);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_reuse, what_is_given_and_never_received_comes_after_its_giver)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);

	give_busy_block(p);
	share_channel_close(p);
	expect_order_after_giver();
}

static void take_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("taker");
	share_host_stream *s;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	check_ok(share_recv(ch, -1, s, &m));
	child_point(self, "took it");
}

Test(channel_reuse, what_is_given_and_taken_back_comes_after_its_giver)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	struct child *child;
	share_channel *p;
	share_message m = SHARE_MESSAGE_INIT;

	o.deliveries = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(take_and_die, NULL);
	give_busy_block(p);
	child_wait(child, "took it");
	child_kill(child);
	until(channel_stats(p).set_aside == 1);
	check_ok(share_channel_take_back(p, &m));
	check_ok(share_ack(&m, NULL));
	expect_order_after_giver();
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

static struct gate *gates[MANY];
static int ran;

static void expect_all_open(void *data)
{
	for (int i = 0; i < MANY; i++)
		check(gates[i]->open);
	memset(data, 9, BLOCK);
	ran++;
}

/* More fences than there is room for without asking for memory. The broker takes none of others:
 * what goes there waits here until they are reached. */
Test(channel_reuse, what_many_streams_have_received_comes_after_all_of_them)
{
	share_channel *p, *c[MANY];
	share_buffer *b;
	share_host_stream *streams[MANY];
	share_client *clients[MANY];
	share_message m = SHARE_MESSAGE_INIT;
	const char *magazines = getenv("SHARE_MAGAZINES");

	if (magazines && strcmp(magazines, "0") == 0)
		cr_skip_test("without magazines nothing is used again before it is over");
	for (int i = 0; i < MANY; i++) {
		gates[i] = gate_new();
		clients[i] = connect_as("consumer");
		check_ok(share_host_stream_create(clients[i], &streams[i]));
		c[i] = open_channel(clients[i], SHARE_CONSUMER, NULL);
	}
	p = open_channel(client, SHARE_PRODUCER, NULL);
	b = allocate(pool, BLOCK, NULL);
	memset(share_ptr(b), 6, BLOCK);
	check_ok(share_give(p, b, NULL, 0, NULL));
	for (int i = 0; i < MANY; i++) {
		check_ok(share_recv(c[i], HARNESS_LIMIT_MS, streams[i], &m));
		gate_hold(gates[i], streams[i]);
		gate_expect(gates[i], streams[i], share_ptr(m.buffer), 6, BLOCK, 0);
		check_ok(share_ack(&m, streams[i]));
	}
	/* back by now; and whoever wants other memory, for whom all that is free is given up, does
	 * not get it, nor take it from who can use it */
	check_eq(in_flight(p), 1);
	check_error(share_alloc(pool, 4096, next_use, &b), SHARE_ENOMEM);
	b = allocate_again(next_use);
	check_ok(share_host_stream_launch(next_use, expect_all_open, share_ptr(b)));
	check_eq(in_flight(p), 1);
	for (int i = MANY - 1; i > 0; i--) {
		gate_open(gates[i]);
		check_ok(share_host_stream_synchronize(streams[i]));
		check_eq(ran, 0);
		check_eq(in_flight(p), 1);
	}
	gate_open(gates[0]);
	check_ok(share_host_stream_synchronize(next_use));
	check_eq(ran, 1);
	until(in_flight(p) == 0);
	check_ok(share_release(b, next_use));
	for (int i = 0; i < MANY; i++) {
		share_channel_close(c[i]);
		share_host_stream_destroy(streams[i]);
		share_disconnect(clients[i]);
		gate_free(gates[i]);
	}
	share_channel_close(p);
}
