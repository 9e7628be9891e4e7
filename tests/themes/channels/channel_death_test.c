/* SPDX-License-Identifier: MIT */

/* Channels whose members, or whose broker, are killed: the others go on, and nothing is lost but
 * what the dead had in hand. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("survivor");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_death, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

/* Takes three messages, gives back the second, and waits. */
static void take_three(struct child *self, void *data)
{
	share_client *c = child_connect("taker");
	share_channel *ch;
	share_message m[3] = {SHARE_MESSAGE_INIT};

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	for (int i = 0; i < 3; i++)
		check_ok(share_recv(ch, -1, NULL, fresh(&m[i])));
	check_ok(share_ack(&m[1], NULL));
	child_point(self, "took three");
}

Test(channel_death, a_dead_consumer_stops_counting_and_gives_back_what_it_had)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *child = child_start(take_three, NULL);
	share_channel *c;

	child_wait(child, "open");
	c = open_channel(client, SHARE_CONSUMER, NULL);
	child_go(child);
	for (int i = 0; i < 5; i++)
		send_filled(p, pool, i);
	child_wait(child, "took three");
	for (int i = 0; i < 5; i++)
		expect_message(c, i);
	check_eq(in_flight(p), 4);
	child_kill(child);
	until(in_flight(p) == 0);
	check_eq(channel_stats(p).consumers, 1);
	send_filled(p, pool, 9);
	expect_message(c, 9);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_death, a_producer_that_waits_for_a_dead_consumer_goes_on)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *c;
	struct child *child;

	o.depth = 4;
	o.in_flight = 16;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(take_three, NULL);
	child_wait(child, "open");
	c = open_channel(client, SHARE_CONSUMER, NULL);
	child_go(child);
	for (int i = 0; i < 3; i++) {
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	child_wait(child, "took three");
	for (int i = 0; i < 4; i++) {
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	child_shoot(child);
	for (int i = 0; i < 20; i++) { /* the first finds no room before that is over */
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	child_reap(child);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_death, what_a_dead_consumer_of_a_queue_had_goes_to_others_and_is_marked)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;
	struct child *child = child_start(take_three, NULL);
	bool seen[6] = {false};

	child_wait(child, "open");
	for (int i = 0; i < 6; i++)
		send_filled(p, pool, i);
	child_go(child);
	child_wait(child, "took three");
	c = open_channel(client, SHARE_CONSUMER, NULL);
	child_kill(child);
	for (int i = 0; i < 5; i++) {
		share_message m = SHARE_MESSAGE_INIT;
		int value;

		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		value = *(const unsigned char *)share_ptr(m.buffer);
		expect_filled(share_ptr(m.buffer), value, 4096);
		check(value < 6 && value != 1 && !seen[value]);
		seen[value] = true;
		check_eq(m.deliveries, value < 3 ? 2 : 1);
		check_ok(share_ack(&m, NULL));
	}
	expect_nothing(c);
	until(in_flight(p) == 0);
	check_eq(channel_stats(p).redelivered, 2);
	share_channel_close(c);
	share_channel_close(p);
}

static void take_one(struct child *self, void *data)
{
	share_client *c = child_connect("taker");
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	check_ok(share_recv(ch, -1, NULL, &m));
	child_point_with(self, "took one", &m.deliveries, sizeof(m.deliveries));
}

Test(channel_death, what_was_delivered_too_often_is_taken_back)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *p;
	share_message m = SHARE_MESSAGE_INIT;

	o.deliveries = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 77);
	check_error(share_channel_take_back(p, &m), SHARE_EAGAIN);
	for (uint32_t i = 1; i <= 2; i++) {
		struct child *child = child_start(take_one, NULL);
		uint32_t deliveries;

		child_wait_with(child, "took one", &deliveries, sizeof(deliveries));
		check_eq(deliveries, i);
		child_kill(child);
	}
	until(channel_stats(p).set_aside == 1);
	check_ok(share_channel_take_back(p, &m));
	check_eq(m.number, 0);
	check_eq(m.deliveries, 2);
	expect_filled(share_ptr(m.buffer), 77, 4096);
	check_ok(share_ack(&m, NULL));
	check_error(share_channel_take_back(p, &m), SHARE_EAGAIN);
	check_eq(in_flight(p), 0);
	share_channel_close(p);
}

/* As a program does that passes on what it has received in another queue. */
Test(channel_death, a_message_that_is_passed_on_keeps_its_deliveries)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *p;
	share_message m = SHARE_MESSAGE_INIT;
	share_outgoing out = {.size = sizeof(out), .data = "words", .data_size = 5};

	o.deliveries = 3;
	p = open_channel(client, SHARE_PRODUCER, &o);
	out.deliveries = 1;
	check_eq(share_send_many(p, &out, 1, NULL), 1);
	for (uint32_t i = 2; i <= 3; i++) {
		struct child *child = child_start(take_one, NULL);
		uint32_t deliveries;

		child_wait_with(child, "took one", &deliveries, sizeof(deliveries));
		check_eq(deliveries, i);
		child_kill(child);
	}
	until(channel_stats(p).set_aside == 1);
	check_ok(share_channel_take_back(p, &m));
	check_ok(share_ack(&m, NULL));
	share_channel_close(p);
}

Test(channel_death, what_was_delivered_too_often_elsewhere_is_delivered_once_more)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_outgoing out = {.size = sizeof(out), .data = "words", .data_size = 5};
	share_channel *p, *c;
	share_message m = SHARE_MESSAGE_INIT;

	o.deliveries = 3;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(client, SHARE_CONSUMER, NULL);
	out.deliveries = 65535;
	check_eq(share_send_many(p, &out, 1, NULL), 1);
	check_ok(share_recv(c, -1, NULL, &m));
	check_eq(m.deliveries, 3);
	check_ok(share_ack(&m, NULL));
	out.flags = 1 << 15;
	check_error(share_send_many(p, &out, 1, NULL), SHARE_EINVAL);
	share_channel_close(p);
	share_channel_close(c);
}

/* ------------------------------------------------------------------------------------------- */

static void send_five(struct child *self, void *data)
{
	share_client *c = child_connect("sender");
	share_pool *p = open_pool(c);
	share_channel *ch;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, NULL, &ch));
	child_point(self, "open");
	for (int i = 0; i < 5; i++)
		send_filled(ch, p, i);
	child_point(self, "sent");
}

Test(channel_death, what_a_dead_producer_has_sent_is_received_and_then_its_death_is_said_once)
{
	share_channel *c = open_channel(client, SHARE_CONSUMER, NULL), *p;
	struct child *child = child_start(send_five, NULL);
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;

	child_wait(child, "open");
	child_go(child);
	child_wait(child, "sent");
	check_ok(share_recv(c, -1, NULL, &held));
	child_kill(child);
	for (int i = 1; i < 5; i++)
		expect_message(c, i);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EOWNERDEAD);
	check(!m.channel);
	check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
	expect_filled(share_ptr(held.buffer), 0, 4096);
	p = open_channel(client, SHARE_PRODUCER, NULL);
	send_filled(p, pool, 50);
	expect_message(c, 50);
	expect_filled(share_ptr(held.buffer), 0, 4096);
	check_ok(share_ack(&held, NULL));
	share_channel_close(p);
	share_channel_close(c);
}

Test(channel_death, a_sleeping_consumer_is_told_of_its_producers_death)
{
	share_channel *c = open_channel(client, SHARE_CONSUMER, NULL);
	struct child *child = child_start(send_five, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "open");
	check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
	child_shoot(child);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EOWNERDEAD);
	child_reap(child);
	share_channel_close(c);
}

/* ------------------------------------------------------------------------------------------- */

static void echo(struct child *self, void *data)
{
	share_client *c = child_connect("echo");
	share_channel *in, *out;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &in));
	check_ok(share_channel_open(c, "back", SHARE_PRODUCER, NULL, &out));
	child_point(self, "open");
	while ((r = share_recv(in, -1, NULL, &m)) == 0) {
		check_ok(share_send(out, NULL, m.data, m.data_size, NULL));
		expect_filled(share_ptr(m.buffer), m.data[0], 4096);
		check_ok(share_ack(&m, NULL));
	}
	child_point_with(self, "ended", &r, sizeof(r));
}

Test(channel_death, without_a_broker_everybody_goes_on_and_deaths_are_seen)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *back;
	struct child *child = child_start(echo, NULL);
	share_buffer *b = filled_buffer(pool, 6);
	unsigned char value = 6;
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "open");
	check_ok(share_channel_open(client, "back", SHARE_CONSUMER, NULL, &back));
	child_go(child);
	check_ok(share_send(p, b, &value, 1, NULL));
	check_ok(share_recv(back, -1, NULL, &m));
	check_ok(share_ack(&m, NULL));
	broker_kill();
	for (int i = 0; i < 1000; i++) {
		check_ok(share_send(p, b, &value, 1, NULL));
		check_ok(share_recv(back, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(m.data[0], 6);
		check_ok(share_ack(&m, NULL));
	}
	until(in_flight(p) == 0);
	child_kill(child);
	check_error(share_recv(back, HARNESS_LIMIT_MS, NULL, &m), SHARE_EOWNERDEAD);
	until(channel_stats(p).consumers == 0);
	share_release(b, NULL);
	share_channel_close(back);
	share_channel_close(p);
}

Test(channel_death, while_the_broker_answers_nothing_everybody_goes_on)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *back;
	struct child *child = child_start(echo, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	child_wait(child, "open");
	check_ok(share_channel_open(client, "back", SHARE_CONSUMER, NULL, &back));
	child_go(child);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 300; i++) {
			share_buffer *b = filled_buffer(pool, 6);
			unsigned char value = 6;

			check_ok(share_give(p, b, &value, 1, NULL));
			check_ok(share_recv(back, HARNESS_LIMIT_MS, NULL, &m));
			check_ok(share_ack(&m, NULL));
			until(in_flight(p) == 0);
		}
		if (round == 0) /* its memory is known to all, and some of it is kept */
			broker_freeze();
	}
	broker_thaw();
	share_channel_close(p);
	child_wait_with(child, "ended", &r, sizeof(r));
	check_eq(r, SHARE_EPIPE);
	child_go(child);
	child_finish(child);
	share_channel_close(back);
}

Test(channel_death, without_a_broker_a_dead_consumer_gives_back_what_it_had)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	struct child *child = child_start(take_three, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "open");
	child_go(child);
	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	child_wait(child, "took three");
	check_eq(in_flight(p), 3 - 1);
	broker_kill();
	child_kill(child);
	until(in_flight(p) == 0);
	check_error(share_channel_take_back(p, &m), SHARE_EAGAIN);
	share_channel_close(p);
}
