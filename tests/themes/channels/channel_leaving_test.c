/* SPDX-License-Identifier: MIT */

/*
 * A consumer whose handle was closed while the program still has a message: that message stays its
 * own, and nothing else waits for it. A producer that is closed while others send with it: what was
 * sent is given back once.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/status.h"
#include "tests/support/channel_work.h"

static share_client *client, *other, *third;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("producer");
	other = connect_as("one who leaves");
	third = connect_as("one who stays");
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

TestSuite(channel_leaving, .init = start, .fini = stop, .timeout = 60);

static share_channel *open_patient(share_client *c, int role, uint32_t mode)
{
	share_channel_options o = options(mode, SHARE_FULL_BLOCK);

	o.depth = 8;
	o.stall_ms = UINT32_MAX; /* nobody is left behind */
	o.send_timeout_ms = HARNESS_LIMIT_MS;
	return open_channel(c, role, &o);
}

static share_message hold_one(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	return m;
}

static void finish(share_channel *p, share_channel *c, share_message *held)
{
	check_ok(share_ack(held, NULL));
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_leaving, what_is_sent_afterwards_goes_to_others)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_QUEUE);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_QUEUE), *b;
	share_message held = SHARE_MESSAGE_INIT;

	send_number(p, 0);
	held = hold_one(a);
	b = open_patient(third, SHARE_CONSUMER, SHARE_QUEUE);
	share_channel_close(a);
	for (uint32_t i = 1; i < 7; i++)
		send_number(p, i);
	for (uint32_t i = 1; i < 7; i++)
		expect_number(b, i);
	finish(p, b, &held);
}

Test(channel_leaving, what_it_has_not_received_goes_to_others_though_nothing_more_is_sent)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_QUEUE);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_QUEUE), *b;
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;

	for (uint32_t i = 0; i < 5; i++)
		send_number(p, i);
	held = hold_one(a);
	b = open_patient(third, SHARE_CONSUMER, SHARE_QUEUE);
	share_channel_close(a);
	for (uint32_t i = 1; i < 5; i++) {
		check_ok(share_recv(b, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(m.number, i);
		check_eq(m.deliveries, 1);
		check_ok(share_ack(&m, NULL));
	}
	check_eq(channel_stats(p).redelivered, 0);
	finish(p, b, &held);
}

Test(channel_leaving, a_queue_of_nobody_else_waits_for_the_next_who_comes)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_QUEUE);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_QUEUE), *b;
	share_message held = SHARE_MESSAGE_INIT;

	send_number(p, 0);
	send_number(p, 1);
	held = hold_one(a);
	share_channel_close(a);
	send_number(p, 2);
	b = open_patient(third, SHARE_CONSUMER, SHARE_QUEUE);
	expect_number(b, 1);
	expect_number(b, 2);
	finish(p, b, &held);
}

Test(channel_leaving, a_broadcast_does_not_wait_for_it)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_BROADCAST);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_BROADCAST);
	share_channel *b = open_patient(third, SHARE_CONSUMER, SHARE_BROADCAST);
	share_message held = SHARE_MESSAGE_INIT;

	send_number(p, 0);
	held = hold_one(a);
	expect_number(b, 0);
	share_channel_close(a);
	for (uint32_t i = 1; i < 100; i++) {
		send_number(p, i);
		expect_number(b, i);
	}
	finish(p, b, &held);
}

Test(channel_leaving, a_sender_that_waits_for_its_room_goes_on)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_BROADCAST);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_BROADCAST);
	share_message held = SHARE_MESSAGE_INIT;

	for (uint32_t i = 0; i < 8; i++)
		send_number(p, i);
	held = hold_one(a);
	send_number(p, 8); /* the lane is full again */
	share_channel_close(a);
	for (uint32_t i = 9; i < 17; i++)
		send_number(p, i); /* for whoever comes */
	check_eq(in_flight(p), 9);
	a = open_patient(third, SHARE_CONSUMER, SHARE_BROADCAST);
	for (uint32_t i = 9; i < 17; i++)
		expect_number(a, i);
	finish(p, a, &held);
}

/* The last one leaves with message 0, three are sent, and it goes for good. */
static share_channel *open_deserted(uint32_t from, share_channel **next)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_BROADCAST);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_BROADCAST);
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_message held = SHARE_MESSAGE_INIT;

	send_number(p, 0);
	held = hold_one(a);
	share_channel_close(a);
	for (uint32_t i = 1; i < 4; i++)
		send_number(p, i);
	check_eq(channel_stats(p).waiting, 3);
	check_ok(share_ack(&held, NULL));
	until(channel_stats(p).consumers == 0);
	check_eq(channel_stats(p).waiting, 3);
	o.depth = 8;
	o.from = from;
	*next = open_channel(third, SHARE_CONSUMER, &o);
	return p;
}

static void what_was_sent_to_nobody_comes(uint32_t from)
{
	share_channel *next, *p = open_deserted(from, &next);

	for (uint32_t i = 1; i < 4; i++)
		expect_number(next, i);
	expect_nothing(next);
	until(in_flight(p) == 0);
	check_eq(channel_stats(p).waiting, 0);
	check_ok(share_channel_flush(p, 0));
	share_channel_close(next);
	share_channel_close(p);
}

Test(channel_leaving, what_is_sent_to_nobody_waits_though_the_last_one_acknowledges_after_that)
{
	what_was_sent_to_nobody_comes(SHARE_FROM_NEWEST);
	what_was_sent_to_nobody_comes(SHARE_FROM_OLDEST);
}

Test(channel_leaving, a_channel_has_all_its_room_after_any_number_of_consumers)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_BROADCAST);

	for (uint32_t i = 0; i < 100; i += 2) {
		share_channel *a =
		    open_patient(i % 4 ? other : third, SHARE_CONSUMER, SHARE_BROADCAST);
		share_message held = SHARE_MESSAGE_INIT, waited = SHARE_MESSAGE_INIT;

		send_number(p, i);
		held = hold_one(a);
		check_eq(held.number, i);
		share_channel_close(a);
		send_number(p, i + 1);
		check_ok(share_ack(&held, NULL));
		until(channel_stats(p).consumers == 0);
		a = open_patient(other, SHARE_CONSUMER, SHARE_BROADCAST);
		waited = hold_one(a);
		check_eq(waited.number, i + 1);
		share_channel_close(a);
		check_ok(share_ack(&waited, NULL));
		until(in_flight(p) == 0);
	}
	share_channel_close(p);
}

Test(channel_leaving, what_it_has_stays_its_own)
{
	share_channel *p = open_patient(client, SHARE_PRODUCER, SHARE_QUEUE);
	share_channel *a = open_patient(other, SHARE_CONSUMER, SHARE_QUEUE), *b;
	share_message held = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 1);
	held = hold_one(a);
	b = open_patient(third, SHARE_CONSUMER, SHARE_QUEUE);
	share_channel_close(a);
	for (int i = 2; i < 40; i++) {
		send_filled(p, pool, i);
		expect_message(b, i);
	}
	expect_nothing(b);
	expect_filled(share_ptr(held.buffer), 1, 4096);
	finish(p, b, &held);
}

/* ------------------------------------------------------------------------------------------- */
/* Producers                                                                                   */

#define ENDS     100
#define BUFFER   4096
#define MESSAGES 12

struct exchange {
	share_channel *p, *c;
	atomic_uint received;
};

static void *send_until_closed(void *data)
{
	struct exchange *e = data;
	share_buffer *b;
	int r;

	do {
		b = allocate(pool, BUFFER, NULL);
		r = share_give(e->p, b, NULL, 0, NULL);
	} while (r == 0);
	if (r != SHARE_EINVAL) /* else it had not begun */
		check_error(r, SHARE_ECANCELED);
	check_ok(share_release(b, NULL));
	return NULL;
}

static void *receive_until_closed(void *data)
{
	struct exchange *e = data;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	while ((r = share_recv(e->c, -1, NULL, &m)) == 0) {
		check_ok(share_ack(&m, NULL));
		atomic_fetch_add(&e->received, 1);
	}
	check_error(r, SHARE_EPIPE);
	return NULL;
}

/* Who waits to send takes back what was acknowledged, and so does who closes. */
Test(channel_leaving, a_producer_that_is_closed_while_others_send_gives_each_buffer_back_once)
{
	check_ok(share_pool_set_cache(pool, 0)); /* what is given back is not kept */
	for (unsigned i = 0; i < ENDS; i++) {
		share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
		struct exchange e = {.received = 0};
		unsigned some = i % MESSAGES;
		pthread_t sender, receiver;

		o.depth = 1;
		o.in_flight = 2;
		o.stall_ms = UINT32_MAX;
		e.p = open_channel(client, SHARE_PRODUCER, &o);
		e.c = open_channel(other, SHARE_CONSUMER, NULL);
		until(channel_stats(e.p).consumers == 1);
		check_eq(pthread_create(&sender, NULL, send_until_closed, &e), 0);
		check_eq(pthread_create(&receiver, NULL, receive_until_closed, &e), 0);
		until(atomic_load(&e.received) > some);
		share_channel_close(e.p);
		check_eq(pthread_join(sender, NULL), 0);
		check_eq(pthread_join(receiver, NULL), 0);
		share_channel_close(e.c);
	}
	settle(client, s.buffers == 0);
}
