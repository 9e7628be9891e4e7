/* SPDX-License-Identifier: MIT */

/* What the broker says of how far the members of a channel have got: who is slow can be seen. */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/support/channel_work.h"
#include "tests/support/raw_channel.h"

static share_client *client, *slow, *quick;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	slow = connect_as("slow");
	quick = connect_as("quick");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(quick);
	share_disconnect(slow);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_progress, .init = start, .fini = stop, .timeout = 60);

/* Of the first, second, ... member of this role; -1: it is not said. */
static int64_t progress(const char *role, int64_t which, const char *key)
{
	json_t *rows = report(client, "channels"), *member;
	int64_t found = -2;
	size_t i;

	json_array_foreach (json_object_get(row_named(rows, "channel", "channel"), "members"), i,
			    member)
		if (strcmp(json_string_value(json_object_get(member, "role")), role) == 0 &&
		    which-- == 0)
			found = json_object_get(member, key) ? number_of(member, key) : -1;
	json_decref(rows);
	return found;
}

static void expect_progress(int64_t consumer, int64_t waiting, int64_t held)
{
	check_eq(progress("consumer", consumer, "waiting"), waiting);
	check_eq(progress("consumer", consumer, "held"), held);
}

Test(channel_progress, a_broadcast_shows_what_waits_for_each_consumer_and_what_it_holds)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *first = open_channel(slow, SHARE_CONSUMER, NULL), *late;
	share_message held[2] = {SHARE_MESSAGE_INIT};

	expect_progress(0, 0, 0);
	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	late = open_channel(quick, SHARE_CONSUMER, NULL);
	send_filled(p, pool, 3);
	expect_progress(0, 4, 0);
	expect_progress(1, 1, 0);
	check_eq(progress("producer", 0, "in_flight"), 4);

	expect_message(late, 3);
	expect_progress(1, 0, 0);
	check_ok(share_recv(first, 0, NULL, fresh(&held[0])));
	check_ok(share_recv(first, 0, NULL, fresh(&held[1])));
	expect_progress(0, 2, 2);
	check_ok(share_ack(&held[1], NULL));
	expect_progress(0, 2, 1);
	check_ok(share_ack(&held[0], NULL));
	expect_progress(0, 2, 0);
	check_eq(in_flight(p), 2); /* which takes back what has been acknowledged */
	check_eq(progress("producer", 0, "in_flight"), 2);

	share_channel_close(late);
	share_channel_close(first);
	share_channel_close(p);
}

Test(channel_progress, a_queue_shows_it_of_each_lane_and_a_dropped_message_is_held_by_nobody)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_DROP);
	share_channel *p, *c;
	share_message m = SHARE_MESSAGE_INIT;

	o.depth = 16;
	o.in_flight = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(slow, SHARE_CONSUMER, &o);
	for (int i = 0; i < 7; i++)
		send_filled(p, pool, i);
	expect_progress(0, 4, 0);
	check_ok(share_recv(c, 0, NULL, &m));
	check_eq(m.lost, 3);
	expect_progress(0, 3, 1);
	check_ok(share_ack(&m, NULL));
	expect_progress(0, 3, 0);
	for (int i = 4; i < 7; i++) /* else they stay */
		expect_message(c, i);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_progress, a_consumer_that_keeps_64_of_a_full_ring_is_seen_to)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(slow, SHARE_CONSUMER, NULL);
	share_message held[64] = {SHARE_MESSAGE_INIT};

	for (int i = 0; i < 64; i++) {
		send_number(p, (uint32_t)i);
		check_ok(share_recv(c, 0, NULL, fresh(&held[i])));
	}
	expect_progress(0, 0, 64);
	/* as many again, in the same places of the ring */
	for (int i = 0; i < 64; i++)
		send_number(p, (uint32_t)i);
	expect_progress(0, 64, 64);
	check_eq(progress("producer", 0, "in_flight"), 128);
	for (int i = 0; i < 64; i++)
		check_ok(share_ack(&held[i], NULL));
	expect_progress(0, 64, 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_progress, very_many_messages_are_counted_too)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_message *held = calloc(4096, sizeof(*held));
	share_channel *p, *c;

	check(held);
	o.depth = 4096;
	o.in_flight = 8192;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(slow, SHARE_CONSUMER, &o);
	send_number(p, 1);
	expect_progress(0, 1, 0); /* the rest of the ring was never written */
	for (uint32_t i = 1; i < 4096; i++)
		send_number(p, i);
	for (int i = 0; i < 4096; i++) {
		check_ok(share_recv(c, 0, NULL, fresh(&held[i])));
	}
	for (uint32_t i = 0; i < 4096; i++)
		send_number(p, i);
	expect_progress(0, 4096, 4096);
	check_eq(progress("producer", 0, "in_flight"), 8192);
	for (int i = 0; i < 4096; i++)
		check_ok(share_ack(&held[i], NULL));
	expect_progress(0, 4096, 0);
	free(held);
	share_channel_close(c);
	share_channel_close(p);
}

static void expect_producer(const share_channel_stats *s)
{
	check_eq(progress("producer", 0, "in_flight"), s->in_flight);
	check_eq(progress("producer", 0, "dropped"), s->dropped);
	check_eq(progress("producer", 0, "redelivered"), s->redelivered);
	check_eq(progress("producer", 0, "set_aside"), s->set_aside);
	check_eq(progress("producer", 0, "left_behind"), s->left_behind);
}

Test(channel_progress, what_is_dropped_is_counted_by_who_drops_it_and_by_who_misses_it)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_DROP);
	share_channel *p, *c;
	share_channel_stats s;
	share_message m = SHARE_MESSAGE_INIT;

	o.depth = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(slow, SHARE_CONSUMER, &o);
	for (uint32_t i = 0; i < 5; i++)
		send_number(p, i);
	check_eq(progress("consumer", 0, "lost"), 0); /* which it does not know yet */
	check_ok(share_recv(c, 0, NULL, &m));
	check_eq(m.lost, 3);
	check_ok(share_ack(&m, NULL));
	check_eq(progress("consumer", 0, "lost"), 3);
	s = channel_stats(p);
	check_eq(s.dropped, 3);
	expect_producer(&s);
	share_channel_close(c);
	share_channel_close(p);
}

/* One that has received a message and nothing since; another one gets that, too. */
Test(channel_progress, who_is_left_behind_is_named_and_what_others_got_is_counted)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *p, *first, *second;
	share_channel_stats s;
	share_message m = SHARE_MESSAGE_INIT, again = SHARE_MESSAGE_INIT;
	uint32_t number = 2;

	o.depth = 1;
	o.in_flight = 4;
	o.stall_ms = 1;
	o.send_timeout_ms = 20;
	p = open_channel(client, SHARE_PRODUCER, &o);
	first = open_channel(slow, SHARE_CONSUMER, &o);
	send_number(p, 0);
	check_ok(share_recv(first, 0, NULL, &m));
	send_number(p, 1);
	check_eq(progress("consumer", 0, "left_behind"), 0);
	do
		check_error(share_send(p, NULL, &number, sizeof(number), NULL), SHARE_ETIMEDOUT);
	while (channel_stats(p).left_behind == 0);
	s = channel_stats(p);
	expect_producer(&s);
	check_eq(progress("consumer", 0, "left_behind"), 1);
	expect_progress(0, 0, 1);

	second = open_channel(quick, SHARE_CONSUMER, &o);
	for (int i = 0; i < 2; i++) {
		check_ok(share_recv(second, HARNESS_LIMIT_MS, NULL, &again));
		check_eq(again.deliveries, i == 0 ? 2 : 1);
		check_ok(share_ack(&again, NULL));
	}
	check_eq(progress("consumer", 1, "left_behind"), 0);
	s = channel_stats(p);
	check_eq(s.redelivered, 1);
	expect_producer(&s);
	check_ok(share_ack(&m, NULL));
	expect_progress(0, 0, 0);
	share_channel_close(first);
	share_channel_close(second);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

/* A ring whose every word is this, or drawn from it; but it says that it admits the consumer, and
 * that messages are complete, so that the rest is looked at. */
static void write_nonsense(struct party *p, struct party *c, uint64_t seed)
{
	uint64_t *ring = p->page, *ledger = c->page;
	size_t n = channel_ring_size(&p->shape, p->layout) / 8,
	       m = channel_ledger_size(&c->shape) / 8;

	for (size_t i = 0; i < n; i++)
		ring[i] = seed == UINT64_MAX ? seed : (seed = seed * 6364136223846793005u + 1) >> 7;
	for (size_t i = 0; i < m; i++)
		ledger[i] =
		    seed == UINT64_MAX ? seed : (seed = seed * 6364136223846793005u + 1) >> 9;
	atomic_store(&channel_admission_at(p->page, &p->shape, c->slot)->consumer, c->id);
	atomic_store(&channel_row_at(c->page, &c->shape, p->slot)->producer, p->id);
	for (uint64_t i = 0; i < p->shape.depth; i++) {
		uint64_t taken = atomic_load(&channel_row_at(c->page, &c->shape, p->slot)->taken);

		atomic_store(&channel_entry_at(p->page, &p->shape, 0, taken - 1 - i)->sequence,
			     taken - i);
	}
}

Test(channel_progress, nonsense_in_a_ring_and_a_ledger_is_shown_and_does_no_harm)
{
	struct party p, c;
	struct raw pr, cr;

	raw_open(&pr, "liar");
	raw_open(&cr, "liar");
	party_join(&p, &pr, "channel", SHARE_PRODUCER);
	party_join(&c, &cr, "channel", SHARE_CONSUMER);
	for (uint64_t seed = 0; seed < 50; seed++) {
		write_nonsense(&p, &c, seed ? seed : UINT64_MAX);
		check(progress("producer", 0, "in_flight") >= 0);
		check(progress("producer", 0, "dropped") >= 0);
		check(progress("consumer", 0, "waiting") <= (int64_t)p.shape.depth);
		check(progress("consumer", 0, "held") >= 0);
		check(progress("consumer", 0, "lost") >= 0);
	}
	party_forget(&p);
	party_forget(&c);
	raw_close(&pr);
	raw_close(&cr);
	check_ok(share_ping(client));
}
