/* SPDX-License-Identifier: MIT */

/*
 * A producer that is gone loses its place in a channel to a new one, while a consumer still has
 * messages of it: their memory comes back when they are acknowledged. (The broker waits ten seconds
 * before it gives such a place away, and so does the first test.)
 */

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producers");
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

TestSuite(channel_place, .init = start, .fini = stop, .timeout = 100);

static share_channel_options one_at_a_time(void)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);

	o.producers = 1;
	return o;
}

static share_message received(share_channel *c, int value)
{
	share_message m;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	expect_filled(share_ptr(m.buffer), value, 4096);
	return m;
}

static bool opens(share_channel **out)
{
	share_channel_options o = one_at_a_time();
	int r = share_channel_open(client, "channel", SHARE_PRODUCER, &o, out);

	if (r != SHARE_EBUSY)
		check_ok(r);
	return r == 0;
}

Test(channel_place, what_is_held_of_a_producer_that_lost_its_place_comes_back)
{
	share_channel_options o = one_at_a_time();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o), *p;
	share_message m, held[2], later;

	/* one at a time may be there, and one that is gone be remembered */
	p = open_channel(client, SHARE_PRODUCER, &o);
	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	m = received(c, 0);
	held[0] = received(c, 1);
	held[1] = received(c, 2);
	check_ok(share_ack(&m, NULL));
	share_channel_close(p);
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 3);
	later = received(c, 3);
	share_channel_close(p);
	until(opens(&p));

	send_number(p, 4);
	expect_number(c, 4);
	settle(client, s.buffers == 3);
	check_ok(share_ack(&held[0], NULL));
	settle(client, s.buffers == 2);
	expect_filled(share_ptr(held[1].buffer), 2, 4096);
	check_ok(share_ack(&held[1], NULL));
	settle(client, s.buffers == 1);
	check_ok(share_ack(&later, NULL));
	expect_nothing(c);
	settle(client, s.buffers == 0);
	share_channel_close(p);
	share_channel_close(c);
}

static share_channel *opened(const char *name, int role)
{
	share_channel_options o = one_at_a_time();
	share_channel *ch;

	check_ok(share_channel_open(role == SHARE_PRODUCER ? client : other, name, role, &o, &ch));
	return ch;
}

static void send_and_close(const char *name, uint32_t number)
{
	share_channel *p = opened(name, SHARE_PRODUCER);

	send_number(p, number);
	share_channel_close(p);
}

/* The places of both channels are taken by producers that are gone, of "control" last. So by the
 * time that a place in that one is given away, the other's would have been. */
Test(channel_place, what_was_not_received_keeps_its_producers_place)
{
	share_channel_options o = one_at_a_time();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o), *p;
	share_channel *control = opened("control", SHARE_CONSUMER);
	share_message held[2], m;
	int r;

	for (uint32_t i = 0; i < 2; i++)
		send_and_close("channel", i);
	for (uint32_t i = 0; i < 2; i++) {
		send_and_close("control", i);
		check_ok(share_recv(control, HARNESS_LIMIT_MS, NULL, &held[i]));
	}
	until((r = share_channel_open(client, "control", SHARE_PRODUCER, &o, &p)) != SHARE_EBUSY);
	check_ok(r);
	share_channel_close(p);
	check(!opens(&p));
	for (uint32_t i = 0; i < 2; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(m.data[0], i);
		check_eq(m.lost, 0);
		check_ok(share_ack(&m, NULL));
	}
	until(share_recv(c, 0, NULL, &m) != 0 && opens(&p));
	send_number(p, 2);
	expect_number(c, 2);
	share_channel_close(p);
	for (int i = 0; i < 2; i++)
		check_ok(share_ack(&held[i], NULL));
	share_channel_close(control);
	share_channel_close(c);
}
