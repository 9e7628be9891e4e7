/* SPDX-License-Identifier: MIT */

/* Messages of several buffers: whatever becomes of a message becomes of all of them. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/raw_channel.h"
#include "tests/support/several_work.h"
#include "wire/messages.h"

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

TestSuite(channel_several, .init = start, .fini = stop, .timeout = 60);

static share_channel_options several(uint32_t when_full)
{
	share_channel_options o = options(SHARE_BROADCAST, when_full);

	o.buffers = MOST;
	o.data_max = 1000;
	return o;
}

static share_channel *open_several(share_client *c, int role)
{
	share_channel_options o = several(SHARE_FULL_BLOCK);

	return open_channel(c, role, &o);
}

Test(channel_several, come_and_go_together)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	share_channel *a = open_several(other, SHARE_CONSUMER);
	share_channel *b = open_several(client, SHARE_CONSUMER);

	for (int turn = 0; turn < 50; turn++) {
		for (uint32_t n = 1; n <= 3; n++)
			give(p, turn, n);
		give(p, turn, MOST);
		check_eq(channel_stats(p).in_flight, 6 + MOST);
		for (uint32_t n = 1; n <= 3; n++) {
			expect_several(a, turn, n);
			expect_several(b, turn, n);
		}
		expect_several(a, turn, MOST);
		expect_several(b, turn, MOST);
		until(in_flight(p) == 0);
	}
	check_eq(channel_stats(p).sent, 200);
	check_eq(channel_stats(a).received, 200);
	check_eq(channel_stats(a).acknowledged, 200);
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
}

/* The program's references are its own: the message has others. */
Test(channel_several, may_be_sent_and_kept)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	share_channel *c = open_several(other, SHARE_CONSUMER);
	share_buffer *buffers[2] = {filled_buffer(several_pool, 1), filled_buffer(several_pool, 2)};
	share_outgoing m = SHARE_OUTGOING_INIT;
	int value = 1;

	m.buffers = buffers;
	m.n_buffers = 2;
	m.data = &value;
	m.data_size = sizeof(value);
	check_eq(share_send_many(p, &m, 1, NULL), 1);
	check_eq(share_send_many(p, &m, 1, NULL), 1);
	expect_several(c, 1, 2);
	expect_filled(share_ptr(buffers[1]), 2, 4096);
	check_ok(share_release(buffers[0], NULL));
	check_ok(share_release(buffers[1], NULL));
	expect_several(c, 1, 2);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several, each_may_be_kept_by_itself)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	share_channel *c = open_several(other, SHARE_CONSUMER);

	for (uint32_t which = 0; which < 4; which++) {
		share_message m = SHARE_MESSAGE_INIT;
		share_buffer *kept;

		give(p, 10, 4);
		receive_several(c, 10, 4, &m);
		kept = share_retain(m.buffers[which]);
		check(kept);
		check_ok(share_ack(&m, NULL));
		until(in_flight(p) == 0);
		/* what comes next gets other memory */
		give(p, 50, 4);
		expect_filled(share_ptr(kept), 10 + (int)which, 4096);
		expect_several(c, 50, 4);
		check_ok(share_release(kept, NULL));
	}
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several, memory_of_all_comes_back)
{
	share_pool_options small = SHARE_POOL_OPTIONS_INIT;
	share_channel_options o = several(SHARE_FULL_BLOCK);
	share_pool *usual = several_pool;
	share_channel *p, *c;

	small.kind = "host";
	small.limit = 4 << 20;
	check_ok(share_pool_create(client, "small", &small, &several_pool));
	o.pool = "small";
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, &o);
	/* far more than the pool has */
	for (int i = 0; i < 200; i++) {
		give(p, i % 100, MOST);
		expect_several(c, i % 100, MOST);
		until(in_flight(p) == 0);
	}
	share_channel_close(c);
	share_channel_close(p);
	share_pool_close(several_pool);
	several_pool = usual;
}

Test(channel_several, those_without_room_stay_the_callers)
{
	share_channel_options o = several(SHARE_FULL_FAIL);
	share_channel *p, *c;

	o.in_flight = MOST;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, &o);
	give(p, 1, MOST - 1);
	check_eq(try_give(p, 2, 2), SHARE_EAGAIN);
	give(p, 3, 1);
	expect_several(c, 1, MOST - 1);
	expect_several(c, 3, 1);
	until(in_flight(p) == 0);
	give(p, 4, MOST);
	expect_several(c, 4, MOST);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several, a_full_channel_that_drops_makes_room_for_all_of_it)
{
	share_channel_options o = several(SHARE_FULL_DROP);
	share_channel *p, *c;
	share_message m = SHARE_MESSAGE_INIT;

	o.in_flight = MOST;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 40; i++)
		give(p, i, 1);
	give(p, 100, MOST);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_several(&m, 100, MOST);
	check_eq(m.lost, 40);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several, who_gets_the_latest_alone_and_who_comes_later_get_them)
{
	share_channel_options o = several(SHARE_FULL_BLOCK), late;
	share_channel *p, *viewer, *c;

	o.buffers = 4;
	o.history = 2;
	late = o;
	late.from = SHARE_FROM_OLDEST;
	p = open_channel(client, SHARE_PRODUCER, &o);
	o.flags = SHARE_CHANNEL_LATEST;
	viewer = open_channel(other, SHARE_CONSUMER, &o);
	for (int i = 0; i < 300; i++)
		give(p, i % 200, 4);
	expect_several(viewer, 99, 4);
	c = open_channel(other, SHARE_CONSUMER, &late);
	until(channel_stats(p).consumers == 2);
	give(p, 150, 2);
	expect_several(c, 98, 4);
	expect_several(c, 99, 4);
	expect_several(c, 150, 2);
	share_channel_close(c);
	share_channel_close(viewer);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Who dies                                                                                    */

static void receive_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_channel *ch = open_several(c, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "open");
	check_ok(share_recv(ch, -1, NULL, &m));
	check_several(&m, 5, 6);
	child_point(self, "received");
}

Test(channel_several, what_a_dead_consumer_had_is_back)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	struct child *child = child_start(receive_and_die, NULL);

	child_wait(child, "open");
	give(p, 5, 6);
	child_go(child);
	child_wait(child, "received");
	check_eq(in_flight(p), 6);
	child_kill(child);
	until(in_flight(p) == 0);
	share_channel_close(p);
}

static void send_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_channel *ch = open_several(c, SHARE_PRODUCER);

	(void)data;
	several_pool = open_pool(c);
	for (int i = 0; i < 3; i++)
		give(ch, i, 4);
	child_point(self, "sent");
}

/* The broker keeps the memory of each until it is acknowledged. */
Test(channel_several, what_a_dead_producer_has_sent_can_be_received)
{
	share_channel *c = open_several(other, SHARE_CONSUMER);
	struct child *child = child_start(send_and_die, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	child_wait(child, "sent");
	receive_several(c, 0, 4, &m);
	child_kill(child);
	check_several(&m, 0, 4);
	kept = share_retain(m.buffers[3]);
	check_ok(share_ack(&m, NULL));
	expect_several(c, 1, 4);
	expect_several(c, 2, 4);
	check_eq(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EOWNERDEAD);
	expect_filled(share_ptr(kept), 3, 4096);
	check_ok(share_release(kept, NULL));
	share_channel_close(c);
}

Test(channel_several, the_next_broker_knows_the_channel_as_it_is)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	share_channel *a = open_several(other, SHARE_CONSUMER), *b;

	give(p, 1, 3);
	broker_kill_serving();
	b = open_several(other, SHARE_CONSUMER);
	expect_several(a, 1, 3);
	until(channel_stats(p).consumers == 2);
	give(p, 2, MOST);
	expect_several(a, 2, MOST);
	expect_several(b, 2, MOST);
	share_channel_close(b);
	share_channel_close(a);
	share_channel_close(p);
}

/* It is acknowledged as a whole, so that what nobody can give a lease of keeps all of it. */
Test(channel_several, what_is_kept_without_a_broker_is_not_acknowledged_yet)
{
	share_channel *p = open_several(client, SHARE_PRODUCER);
	share_channel *c = open_several(other, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	give(p, 1, 3);
	receive_several(c, 1, 3, &m);
	kept = share_retain(m.buffers[1]);
	broker_kill();
	check_error(share_ack(&m, NULL), SHARE_EDISCONNECTED);
	check_several(&m, 1, 3);
	check_ok(share_release(kept, NULL));
	check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* What is refused                                                                             */

Test(channel_several, what_makes_no_sense_is_refused)
{
	share_channel *p = open_several(client, SHARE_PRODUCER), *c;
	share_buffer *buffers[MOST + 1] = {NULL};
	share_outgoing m = SHARE_OUTGOING_INIT;
	share_channel_options o = several(SHARE_FULL_BLOCK);

	buffers[0] = filled_buffer(several_pool, 1);
	m.buffers = buffers;
	m.n_buffers = 2;
	check_error(share_send_many(p, &m, 1, NULL), SHARE_EINVAL); /* one is NULL */
	m.n_buffers = MOST + 1;
	check_error(share_send_many(p, &m, 1, NULL), SHARE_EINVAL);
	m.n_buffers = 2;
	buffers[1] = buffers[0];
	m.flags = SHARE_OUTGOING_GIVE;
	check_error(share_send_many(p, &m, 1, NULL), SHARE_EINVAL); /* given twice */
	check_ok(share_release(buffers[0], NULL));
	buffers[1] = NULL;
	buffers[0] = NULL;
	check_error(share_send_many(p, &m, 1, NULL), SHARE_EINVAL);
	share_channel_close(p);
	o.buffers = MOST + 1;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &p), SHARE_EINVAL);
	o.buffers = MOST;
	o.in_flight = MOST - 1;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &p), SHARE_EINVAL);
	o.in_flight = 3 * MOST - 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	o.flags = SHARE_CHANNEL_LATEST;
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &o, &c), SHARE_EINVAL);
	o.flags = 0;
	o.buffers = 3;
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &o, &c), SHARE_EEXIST);
	share_channel_close(p);
}

/* Its program may look at the first alone. */
Test(channel_several, a_consumer_gets_several_only_if_it_has_said_so)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *c;

	o.buffers = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, NULL, &c), SHARE_EEXIST);
	check(strstr(share_error_detail(), "buffers"));
	c = open_channel(other, SHARE_CONSUMER, &o);
	share_channel_close(c);
	c = open_channel(other, SHARE_PRODUCER, NULL);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several, a_message_of_several_takes_a_channel_that_says_so)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);

	check_eq(try_give(p, 1, 2), SHARE_EINVAL);
	give(p, 1, 1);
	share_channel_close(p);
}

Test(channel_several, an_older_library_is_told_that_it_cannot_take_part)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p;
	struct wire_message m = party_request("channel", SHARE_CONSUMER);
	struct raw r;

	o.buffers = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	raw_connect(&r);
	r.version = WIRE_VERSION_FAR - 1;
	raw_greet(&r, "old");
	raw_ask_error(&r, &m, SHARE_ENOTSUP);
	raw_close(&r);
	share_channel_close(p);
}
