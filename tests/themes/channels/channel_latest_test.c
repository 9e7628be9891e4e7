/* SPDX-License-Identifier: MIT */

/*
 * Consumers that get the latest message alone (SHARE_CHANNEL_LATEST): what they get, and that
 * nobody waits for them, whether they are slow, stopped or dead.
 */

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

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

TestSuite(channel_latest, .init = start, .fini = stop, .timeout = 60);

static share_channel_options latest(void)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

	o.flags = SHARE_CHANNEL_LATEST;
	return o;
}

static share_channel *open_latest(share_client *c)
{
	share_channel_options o = latest();

	return open_channel(c, SHARE_CONSUMER, &o);
}

/* More than any channel here has room for. */
#define MANY 300

static void send_many(share_channel *p, share_channel *reader)
{
	for (int i = 0; i < MANY; i++) {
		send_filled(p, pool, i % 200);
		if (reader)
			expect_message(reader, i % 200);
	}
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_latest, gets_the_latest_and_how_many_it_has_missed)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *reader = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m = SHARE_MESSAGE_INIT;

	send_many(p, reader);
	check_ok(share_recv(viewer, 0, NULL, &m));
	expect_filled(share_ptr(m.buffer), (MANY - 1) % 200, 4096);
	check_eq(m.lost, MANY - 1);
	check_eq(m.number, MANY - 1);
	check_ok(share_ack(&m, NULL));
	expect_nothing(viewer);
	check_eq(channel_stats(viewer).received, 1);
	check_eq(channel_stats(viewer).dropped, MANY - 1);
	check_eq(channel_stats(p).dropped, 0);
	check_eq(channel_stats(reader).received, MANY);
	check_eq(in_flight(p), 0);
	share_channel_close(viewer);
	share_channel_close(reader);
	share_channel_close(p);
}

Test(channel_latest, alone_it_keeps_nobody_waiting_whatever_is_done_when_it_is_full)
{
	for (uint32_t when_full = SHARE_FULL_BLOCK; when_full <= SHARE_FULL_DROP; when_full++) {
		share_channel_options o = options(SHARE_BROADCAST, when_full);
		share_channel *p, *viewer;

		o.depth = 1;
		o.in_flight = 3;
		p = open_channel(client, SHARE_PRODUCER, &o);
		viewer = open_latest(other);
		send_many(p, NULL);
		expect_message(viewer, (MANY - 1) % 200);
		check_ok(share_channel_drain(p, 0));
		share_channel_close(viewer);
		share_channel_close(p);
	}
}

Test(channel_latest, memory_comes_back_though_it_receives_nothing)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *reader = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *viewer = open_latest(other);

	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	for (int i = 0; i < 3; i++)
		expect_message(reader, i);
	until(in_flight(p) == 1);
	check_ok(share_channel_drain(p, 0));
	expect_message(viewer, 2);
	until(in_flight(p) == 0);
	share_channel_close(viewer);
	share_channel_close(reader);
	share_channel_close(p);
}

Test(channel_latest, holds_two_messages_and_no_third)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m[4] = {SHARE_MESSAGE_INIT};

	send_filled(p, pool, 1);
	check_ok(share_recv(viewer, 0, NULL, &m[0]));
	send_filled(p, pool, 2);
	check_ok(share_recv(viewer, 0, NULL, fresh(&m[1])));
	send_many(p, NULL);
	check_error(share_recv(viewer, 0, NULL, fresh(&m[2])), SHARE_EBUSY);
	check_error(share_recv(viewer, -1, NULL, fresh(&m[2])), SHARE_EBUSY);
	expect_filled(share_ptr(m[0].buffer), 1, 4096);
	expect_filled(share_ptr(m[1].buffer), 2, 4096);
	check_ok(share_ack(&m[0], NULL));
	expect_message(viewer, (MANY - 1) % 200);
	check_ok(share_ack(&m[1], NULL));
	send_filled(p, pool, 3);
	check_eq(share_recv_many(viewer, 0, NULL, fresh(&m[0]), 4), 1);
	check_ok(share_ack(&m[0], NULL));
	share_channel_close(viewer);
	share_channel_close(p);
}

Test(channel_latest, what_it_retains_is_its_own)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *b;

	send_filled(p, pool, 7);
	check_ok(share_recv(viewer, 0, NULL, &m));
	b = share_retain(m.buffer);
	check(b);
	check_ok(share_ack(&m, NULL));
	send_many(p, NULL);
	expect_filled(share_ptr(b), 7, 4096);
	check_ok(share_release(b, NULL));
	share_channel_close(viewer);
	share_channel_close(p);
}

Test(channel_latest, is_refused_where_it_cannot_be)
{
	share_channel_options o = options(SHARE_QUEUE, 0), l = latest();
	share_channel *p, *viewer, *second;

	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &l, &p), SHARE_EINVAL);
	p = open_channel(client, SHARE_PRODUCER, &o);
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &l, &viewer),
		    SHARE_EINVAL);
	share_channel_close(p);
	o = options(SHARE_BROADCAST, 0);
	o.depth = 2;
	o.history = 2;
	o.in_flight = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &l, &viewer),
		    SHARE_EINVAL);
	share_channel_close(p);
	o.in_flight = 6;
	p = open_channel(client, SHARE_PRODUCER, &o);
	viewer = open_latest(other);
	check_error(share_channel_open(client, "channel", SHARE_CONSUMER, &l, &second),
		    SHARE_EBUSY);
	share_channel_close(viewer);
	viewer = open_latest(other);
	share_channel_close(viewer);
	share_channel_close(p);
	/* it makes none either */
	l.depth = 1;
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &l, &viewer),
		    SHARE_EINVAL);
	l.flags |= SHARE_CHANNEL_EXISTING;
	l.depth = 0;
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, &l, &viewer),
		    SHARE_ENOENT);
}

Test(channel_latest, the_end_comes_behind_the_latest)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m = SHARE_MESSAGE_INIT;

	send_many(p, NULL);
	share_channel_close(p);
	expect_message(viewer, (MANY - 1) % 200);
	check_error(share_recv(viewer, -1, NULL, fresh(&m)), SHARE_EPIPE);
	share_channel_close(viewer);
}

Test(channel_latest, waits_for_the_next_one)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_recv(viewer, 1, NULL, &m), SHARE_ETIMEDOUT);
	send_filled(p, pool, 1);
	expect_message(viewer, 1);
	share_channel_close(viewer);
	share_channel_close(p);
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* Asked once each time, and though it may not have the third message while it has two. */
Test(channel_latest, its_descriptor_is_readable_as_long_as_there_is_one_to_receive)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other);
	share_message m[3] = {SHARE_MESSAGE_INIT};
	int fd = share_channel_get_fd(viewer);

	for (int i = 0; i < 2; i++) {
		expect_nothing(viewer);
		check(!is_readable(fd));
		send_filled(p, pool, i);
		until(is_readable(fd));
		check_ok(share_recv(viewer, 0, NULL, fresh(&m[i])));
	}
	send_filled(p, pool, 2);
	for (int i = 0; i < 3; i++) {
		until(is_readable(fd));
		check_error(share_recv(viewer, 0, NULL, fresh(&m[2])), SHARE_EBUSY);
	}
	check_ok(share_ack(&m[0], NULL));
	until(is_readable(fd));
	expect_message(viewer, 2);
	expect_nothing(viewer);
	check(!is_readable(fd));
	check_ok(share_ack(&m[1], NULL));
	share_channel_close(viewer);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

/* Gets one message, and holds it. */
static void view(struct child *self, void *data)
{
	share_channel_options o = latest();
	share_client *c = child_connect("viewer");
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, &o, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, -1, NULL, &m));
	child_point(self, "holds one");
	for (;;) {
		share_message next = SHARE_MESSAGE_INIT;

		check_ok(share_recv(ch, -1, NULL, &next));
		check_ok(share_ack(&next, NULL));
	}
}

Test(channel_latest, nobody_waits_for_one_that_is_stopped_or_killed)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *p, *reader;
	struct child *child;

	o.depth = 4;
	o.stall_ms = 1; /* whoever is waited for is left behind at once */
	p = open_channel(client, SHARE_PRODUCER, &o);
	reader = open_channel(other, SHARE_CONSUMER, NULL);
	child = child_start(view, NULL);
	child_wait(child, "open");
	child_go(child);
	send_filled(p, pool, 9);
	expect_message(reader, 9);
	child_wait(child, "holds one");
	child_go(child);
	check(kill(child->pid, SIGSTOP) == 0);
	send_many(p, reader);
	check_eq(channel_stats(p).left_behind, 0);
	until(in_flight(p) <= 3); /* two that it may hold, and the latest */
	child_kill(child);
	until(in_flight(p) == 0);
	check_eq(channel_stats(p).consumers, 1);
	share_channel_close(reader);
	share_channel_close(p);
}

/* It may be anywhere between two messages when it dies. */
Test(channel_latest, one_that_is_killed_at_any_time_leaves_nothing)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);

	for (int i = 0; i < 20; i++) {
		struct child *child = child_start(view, NULL);

		child_wait(child, "open");
		child_go(child);
		send_filled(p, pool, i);
		child_wait(child, "holds one");
		child_go(child);
		send_many(p, NULL);
		child_kill(child);
		until(in_flight(p) == 0);
	}
	share_channel_close(p);
}

static void send_and_wait(struct child *self, void *data)
{
	share_client *c = child_connect("camera");
	share_pool *frames = open_pool(c);
	share_channel *ch;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, NULL, &ch));
	for (int i = 0; i < MANY; i++)
		send_filled(ch, frames, i % 200);
	child_point(self, "sent");
}

Test(channel_latest, one_gets_the_latest_of_a_producer_that_was_killed)
{
	share_channel *viewer = open_latest(other);
	struct child *child = child_start(send_and_wait, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "sent");
	child_kill(child);
	check_ok(share_recv(viewer, HARNESS_LIMIT_MS, NULL, &m));
	expect_filled(share_ptr(m.buffer), (MANY - 1) % 200, 4096);
	check_eq(m.lost, MANY - 1);
	check_ok(share_ack(&m, NULL));
	check_error(share_recv(viewer, HARNESS_LIMIT_MS, NULL, fresh(&m)), SHARE_EOWNERDEAD);
	share_channel_close(viewer);
}

Test(channel_latest, a_broker_that_goes_on_knows_it)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *viewer = open_latest(other), *later;

	broker_kill_serving();
	later = open_channel(client, SHARE_PRODUCER, NULL);
	send_many(later, NULL);
	send_many(p, NULL);
	expect_message(viewer, (MANY - 1) % 200);
	expect_message(viewer, (MANY - 1) % 200);
	share_channel_close(later);
	share_channel_close(viewer);
	share_channel_close(p);
}
