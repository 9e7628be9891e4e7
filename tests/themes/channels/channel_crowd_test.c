/* SPDX-License-Identifier: MIT */

/*
 * Producers come and go while a consumer still has messages of them, or has not received these yet:
 * nothing is lost, and nobody is kept out. A consumer that owes something to too many that are gone
 * is left behind, and says so.
 */

#include "pages/channel_page.h"
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

TestSuite(channel_crowd, .init = start, .fini = stop, .timeout = 100);

static share_channel_options one_at_a_time(void)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);

	o.producers = 1;
	return o;
}

/* With so many tickets that there are few rows in a ledger. */
static share_channel_options few_rows(void)
{
	share_channel_options o = one_at_a_time();

	o.in_flight = CHANNEL_IN_FLIGHT_MAX;
	return o;
}
#define MORE_THAN_ROWS 8
#define CROWD          24

static void send_and_close(const share_channel_options *o, int value)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, o);

	send_filled(p, pool, value);
	share_channel_close(p);
}

static share_message received(share_channel *c, int value)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.lost, 0);
	expect_filled(share_ptr(m.buffer), value, 4096);
	return m;
}

/* There were twice as many places for producers once as there may be producers at a time. */
Test(channel_crowd, messages_of_producers_that_are_gone_are_received)
{
	share_channel_options o = one_at_a_time();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);

	for (int i = 0; i < 10; i++)
		send_and_close(&o, i);
	settle(client, s.buffers == 10);
	for (int i = 0; i < 10; i++)
		expect_message(c, i);
	settle(client, s.buffers == 0);
	share_channel_close(c);
}

Test(channel_crowd, what_is_held_of_producers_that_are_gone_comes_back_in_any_order)
{
	share_channel_options o = one_at_a_time();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o);
	share_message held[10] = {SHARE_MESSAGE_INIT};

	for (int i = 0; i < 10; i++) {
		send_and_close(&o, i);
		held[i] = received(c, i);
	}
	for (int i = 0; i < 10; i++) {
		int which = i * 7 % 10;

		settle(client, s.buffers == 10 - i);
		expect_filled(share_ptr(held[which].buffer), which, 4096);
		check_ok(share_ack(&held[which], NULL));
	}
	settle(client, s.buffers == 0);
	share_channel_close(c);
}

Test(channel_crowd, who_owes_something_to_too_many_is_left_behind_and_keeps_what_it_has)
{
	share_channel_options o = few_rows();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o), *again, *p;
	share_message held[MORE_THAN_ROWS] = {SHARE_MESSAGE_INIT}, m = SHARE_MESSAGE_INIT;
	int n = 0;

	for (int i = 0; i < MORE_THAN_ROWS - 1; i++)
		send_and_close(&o, i);
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 100);
	/* what it was sent before it can still receive */
	for (; n < MORE_THAN_ROWS - 1; n++)
		held[n] = received(c, n);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_ESTALE);
	check_error(share_recv(c, 0, NULL, &m), SHARE_ESTALE);

	again = open_channel(other, SHARE_CONSUMER, &o);
	until(channel_stats(p).consumers == 1);
	send_filled(p, pool, 101);
	expect_message(again, 100); /* which nobody has had */
	expect_message(again, 101);
	share_channel_close(c);
	for (int i = 0; i < n; i++) {
		expect_filled(share_ptr(held[i].buffer), i, 4096);
		check_ok(share_ack(&held[i], NULL));
	}
	share_channel_close(p);
	share_channel_close(again);
	settle(client, s.buffers == 0);
}

Test(channel_crowd, who_owes_nothing_is_not_left_behind_though_it_never_looks)
{
	share_channel_options o = few_rows();
	share_channel *c = open_channel(other, SHARE_CONSUMER, &o), *p;

	for (int i = 0; i < 3 * MORE_THAN_ROWS; i++)
		share_channel_close(open_channel(client, SHARE_PRODUCER, &o));
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_number(p, 5);
	expect_number(c, 5);
	share_channel_close(p);
	share_channel_close(c);
}

/* That producers are gone, a consumer notices when it looks. */
static bool only_consumers_are_left(share_channel **c)
{
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < CROWD; i++)
		check(share_recv(c[i], 0, NULL, &m) < 0);
	return used_of(client, "channels") == CROWD;
}

static bool channel_is_there(void)
{
	json_t *rows = report(client, "channels");
	bool there = json_array_size(rows) > 0;

	json_decref(rows);
	return there;
}

/* A row that had a producer before is written all over, so that each entry has to be looked at.
 * With a pause after each turn of this, all rows together would take longer than anything is waited
 * for. */
Test(channel_crowd, rows_are_looked_through_without_a_pause_when_many_go_at_once)
{
	share_channel_options o = few_rows();
	share_channel *p[CROWD], *c[CROWD];

	o.producers = CROWD;
	for (int i = 0; i < CROWD; i++)
		c[i] = open_channel(other, SHARE_CONSUMER, &o);
	for (int round = 0; round < 2; round++) {
		until(only_consumers_are_left(c));
		for (int i = 0; i < CROWD; i++)
			p[i] = open_channel(client, SHARE_PRODUCER, &o);
		for (int i = 0; i < CROWD; i++)
			send_number(p[i], 5);
		for (int i = 0; i < CROWD * CROWD; i++)
			expect_number(c[i % CROWD], 5);
		for (int i = 0; i < CROWD && round == 0; i++)
			share_channel_close(p[i]);
	}
	for (int i = 0; i < CROWD; i++)
		share_channel_close(c[i]);
	for (int i = 0; i < CROWD; i++)
		share_channel_close(p[i]);
	until(!channel_is_there());
}
