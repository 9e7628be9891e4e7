/* SPDX-License-Identifier: MIT */

/* Channels without room, members that wait, and what is refused. */

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

TestSuite(channel_room, .init = start, .fini = stop, .timeout = 60);

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_room, a_full_channel_blocks_fails_or_drops_the_oldest)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *c;

	for (uint32_t when = SHARE_FULL_BLOCK; when <= SHARE_FULL_DROP; when++) {
		uint32_t first = 0, extra = 4;

		o.when_full = when;
		o.depth = 4;
		o.in_flight = 16;
		o.send_timeout_ms = 1;
		p = open_channel(client, SHARE_PRODUCER, &o);
		c = open_channel(other, SHARE_CONSUMER, NULL);
		/* with the first message the broker is asked who has come, within that time, too */
		until(share_send(p, NULL, &first, sizeof(first), NULL) == 0);
		for (uint32_t i = 1; i < 4; i++)
			send_number(p, i);
		if (when == SHARE_FULL_BLOCK)
			check_error(share_send(p, NULL, &extra, sizeof(extra), NULL),
				    SHARE_ETIMEDOUT);
		else if (when == SHARE_FULL_FAIL)
			check_error(share_send(p, NULL, &extra, sizeof(extra), NULL), SHARE_EAGAIN);
		else
			send_number(p, 4);
		if (when == SHARE_FULL_DROP) {
			share_message m = SHARE_MESSAGE_INIT;

			check_ok(share_recv(c, 0, NULL, &m));
			check_eq(m.number, 1);
			check_eq(m.lost, 1);
			check_ok(share_ack(&m, NULL));
			check_eq(channel_stats(p).dropped, 1);
		} else {
			expect_number(c, 0);
			send_number(p, 4);
			expect_number(c, 1);
		}
		for (uint32_t i = 2; i <= 4; i++)
			expect_number(c, i);
		expect_nothing(c);
		check_eq(in_flight(p), 0);
		share_channel_close(c);
		share_channel_close(p);
	}
}

/* Every consumer is of this process. */
static void check_in_the_way(const char *before, const char *after)
{
	char part[100];

	snprintf(part, sizeof(part), "%spid %ld %s", before, (long)getpid(), after);
	check_detail(part);
}

Test(channel_room, an_error_says_who_is_in_the_way)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *c, *second;
	share_message held[8] = {SHARE_MESSAGE_INIT};
	uint32_t n = 0;

	o.depth = 4;
	o.in_flight = 8;
	o.stall_ms = UINT32_MAX;
	o.send_timeout_ms = 1;
	p = open_channel(client, SHARE_PRODUCER, &o);
	until(share_send(p, NULL, &n, sizeof(n), NULL) == 0);
	for (n = 1; n < 4; n++)
		send_number(p, n);
	check_error(share_channel_flush(p, 0), SHARE_EAGAIN);
	check_detail("messages wait for a consumer, and the channel has none");

	c = open_channel(other, SHARE_CONSUMER, NULL);
	until(channel_stats(p).consumers == 1);
	check_error(share_send(p, NULL, &n, sizeof(n), NULL), SHARE_ETIMEDOUT);
	check_in_the_way("of its consumers, ", "has yet to receive messages");

	check_eq(share_recv_many(c, HARNESS_LIMIT_MS, NULL, held, 4), 4);
	for (; n < 8; n++)
		send_number(p, n);
	check_eq(share_recv_many(c, HARNESS_LIMIT_MS, NULL, fresh(held + 4), 4), 4);
	check_error(share_send(p, NULL, &n, sizeof(n), NULL), SHARE_ETIMEDOUT);
	check_in_the_way("of its consumers, ", "has yet to acknowledge messages");

	check_ok(share_ack_many(held, 8, NULL));
	second = open_channel(other, SHARE_CONSUMER, NULL);
	until(channel_stats(p).consumers == 2);
	for (n = 0; n < 4; n++)
		send_number(p, n);
	check_error(share_send(p, NULL, &n, sizeof(n), NULL), SHARE_ETIMEDOUT);
	check_in_the_way("of its consumers, ", "and 1 other have yet to receive messages");

	share_channel_close(p);
	for (n = 0; n < 4; n++)
		expect_number(c, n);
	check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, held), SHARE_EPIPE);
	until(share_recv(c, 1, NULL, held) == SHARE_ETIMEDOUT &&
	      strstr(share_error_detail(), "the channel has no producer"));
	share_channel_close(second);
	share_channel_close(c);
}

Test(channel_room, what_does_not_wait_says_as_well_that_nobody_is_there)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_FAIL);
	share_channel *p, *c;
	uint32_t n;

	o.depth = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	for (n = 0; n < 4; n++)
		send_number(p, n);
	check_error(share_send(p, NULL, &n, sizeof(n), NULL), SHARE_EAGAIN);
	check_detail("the channel has no consumer, and no more room");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	check_error(share_send(p, NULL, &n, sizeof(n), NULL), SHARE_EAGAIN);
	check_detail("consumers have yet to receive as many messages as may wait");
	for (n = 0; n < 4; n++) /* else they stay */
		expect_number(c, n);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_room, what_consumers_hold_on_to_is_never_dropped)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_DROP);
	share_channel *p, *c;
	share_message m[4] = {SHARE_MESSAGE_INIT};

	o.depth = 2;
	o.in_flight = 4;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (int i = 0; i < 4; i++) {
		send_filled(p, pool, i);
		check_ok(share_recv(c, 0, NULL, fresh(&m[i])));
	}
	check_error(share_send(p, NULL, NULL, 0, NULL), SHARE_EAGAIN);
	for (int i = 0; i < 4; i++) {
		expect_filled(share_ptr(m[i].buffer), i, 4096);
		check_ok(share_ack(&m[i], NULL));
	}
	send_filled(p, pool, 9);
	expect_message(c, 9);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_room, a_consumer_that_keeps_a_producer_waiting_is_left_behind)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *p, *slow, *quick;
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;

	o.depth = 4;
	o.in_flight = 64;
	o.stall_ms = 20;
	p = open_channel(client, SHARE_PRODUCER, &o);
	slow = open_channel(other, SHARE_CONSUMER, NULL);
	quick = open_channel(other, SHARE_CONSUMER, NULL);
	send_filled(p, pool, 99);
	check_ok(share_recv(slow, 0, NULL, &held));
	expect_message(quick, 99);
	for (int i = 0; i < 20; i++) {
		send_filled(p, pool, i);
		expect_message(quick, i);
	}
	check_eq(channel_stats(p).left_behind, 1);
	check_error(share_recv(slow, -1, NULL, &m), SHARE_ESTALE);
	check(!m.channel);
	expect_filled(share_ptr(held.buffer), 99, 4096);
	check_ok(share_ack(&held, NULL));
	share_channel_close(slow);
	check(broker_said("is left behind in channel") == 1);
	slow = open_channel(other, SHARE_CONSUMER, NULL);
	send_filled(p, pool, 7);
	expect_message(slow, 7);
	expect_message(quick, 7);
	until(in_flight(p) == 0);
	share_channel_close(slow);
	share_channel_close(quick);
	share_channel_close(p);
}

static int64_t count_of_status(const char *key)
{
	json_t *rows = report(other, "status");
	int64_t n = number_of(json_array_get(rows, 0), key);

	json_decref(rows);
	return n;
}

static void sends_until_it_waits(struct child *self, void *data)
{
	share_client *c = child_connect("stalls");
	share_channel *p;

	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, data, &p));
	child_point(self, "sends");
	for (uint32_t i = 0; i < 5; i++)
		send_number(p, i);
	share_channel_close(p);
	share_disconnect(c);
}

static json_t *producer_in_report(void)
{
	json_t *rows = report(other, "channels");
	json_t *row = json_copy(
	    row_named(json_object_get(json_array_get(rows, 0), "members"), "role", "producer"));

	json_decref(rows);
	return row;
}

Test(channel_room, a_producer_that_waits_for_long_is_logged_and_counted_once)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	char why[128];
	struct child *child;
	share_channel *slow;
	json_t *row;

	o.depth = 4;
	o.in_flight = 64;
	o.stall_ms = UINT32_MAX;
	slow = open_channel(other, SHARE_CONSUMER, &o);
	child = child_start(sends_until_it_waits, &o);
	child_wait(child, "sends");
	child_go(child);
	until(count_of_status("stalls") == 1);
	snprintf(why, sizeof(why),
		 "'stalls') has waited for more than a second for room in channel 'channel': "
		 "process %d has most to receive",
		 (int)getpid());
	check_eq(broker_said(why), 1);
	row = producer_in_report();
	check_eq(number_of(row, "in_flight"), 4);
	check_eq(number_of(row, "awaited"), 4);
	check_eq(number_of(row, "awaits"), getpid());
	json_decref(row);
	for (uint32_t i = 0; i < 5; i++)
		expect_number(slow, i);
	child_finish(child);
	share_channel_close(slow);
	check_eq(count_of_status("stalls"), 1);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_room, an_event_loop_is_told_of_messages)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	int fd = share_channel_get_fd(c);
	share_message m = SHARE_MESSAGE_INIT;

	check(fd >= 0);
	for (uint32_t i = 0; i < 10; i++) {
		expect_nothing(c);
		check(!is_readable(fd));
		send_number(p, i);
		send_number(p, i);
		check(is_readable(fd));
		expect_number(c, i);
		expect_number(c, i);
	}
	expect_nothing(c);
	share_channel_close(p);
	until(is_readable(fd));
	check_error(share_recv(c, 0, NULL, &m), SHARE_EPIPE);
	expect_nothing(c);
	check(!is_readable(fd));
	share_channel_close(c);
}

Test(channel_room, an_event_loop_is_told_of_room)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *p, *c;
	int fd;

	o.depth = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	fd = share_channel_get_fd(p);
	for (uint32_t i = 0; i < 10; i++) {
		send_number(p, 0);
		send_number(p, 1);
		until(share_send(p, NULL, NULL, 0, NULL) == SHARE_EAGAIN && !is_readable(fd));
		expect_number(c, 0);
		expect_number(c, 1);
		expect_nothing(c);
		until(is_readable(fd));
	}
	share_channel_close(c);
	share_channel_close(p);
}

struct sleeper {
	share_channel *c;
	pthread_t thread;
};

static void *sleep_for_numbers(void *data)
{
	struct sleeper *s = data;

	for (uint32_t i = 0; i < 100; i++)
		expect_number(s->c, i);
	return NULL;
}

Test(channel_room, those_who_sleep_are_woken)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	struct sleeper s[2];
	share_channel *p;

	o.depth = 1;
	o.in_flight = 2;
	p = open_channel(client, SHARE_PRODUCER, &o);
	for (int i = 0; i < 2; i++) {
		s[i].c = open_channel(other, SHARE_CONSUMER, NULL);
		check(pthread_create(&s[i].thread, NULL, sleep_for_numbers, &s[i]) == 0);
	}
	for (uint32_t i = 0; i < 100; i++)
		send_number(p, i);
	for (int i = 0; i < 2; i++) {
		check(pthread_join(s[i].thread, NULL) == 0);
		share_channel_close(s[i].c);
	}
	check_eq(channel_stats(p).sent, 100);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_room, what_makes_no_sense_is_refused)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_buffer *foreign, *b = allocate(pool, 64, NULL);
	share_channel *p, *c, *none;
	share_pool *theirs;
	share_message m = SHARE_MESSAGE_INIT;

	o.flags = SHARE_CHANNEL_EXISTING;
	check_error(share_channel_open(client, "channel", SHARE_CONSUMER, &o, &none), SHARE_ENOENT);
	o.flags = 1 << 7;
	check_error(share_channel_open(client, "channel", SHARE_CONSUMER, &o, &none), SHARE_EINVAL);
	o.flags = 0;
	check_error(share_channel_open(client, "channel", 3, NULL, &none), SHARE_EINVAL);
	check_error(share_channel_open(client, "", SHARE_PRODUCER, NULL, &none), SHARE_EINVAL);
	check_error(share_channel_open(NULL, "x", SHARE_PRODUCER, NULL, &none), SHARE_EINVAL);
	o.depth = 3;
	check_error(share_channel_open(client, "channel", SHARE_PRODUCER, &o, &none), SHARE_EINVAL);
	o.depth = 8;
	p = open_channel(client, SHARE_PRODUCER, &o);
	o.depth = 16;
	check_error(share_channel_open(client, "channel", SHARE_CONSUMER, &o, &none), SHARE_EEXIST);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	check_error(share_recv(p, 0, NULL, &m), SHARE_EACCES);
	check_error(share_send(c, NULL, NULL, 0, NULL), SHARE_EACCES);
	check_error(share_channel_take_back(c, &m), SHARE_EACCES);
	check_error(share_recv(c, -2, NULL, &m), SHARE_EINVAL);
	check_error(share_recv(c, 0, NULL, NULL), SHARE_EINVAL);
	check_error(share_send_many(p, NULL, 0, NULL), SHARE_EINVAL);
	check_error(share_send(p, b, NULL, 5, NULL), SHARE_EINVAL);
	theirs = open_pool(other);
	foreign = allocate(theirs, 64, NULL);
	check_error(share_send(p, foreign, NULL, 0, NULL), SHARE_EINVAL);
	check_ok(share_release(foreign, NULL));
	share_pool_close(theirs);
	check_ok(share_release(b, NULL));
	share_channel_close(NULL);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_room, a_forked_child_has_no_part_in_it)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;
	pid_t child;
	int status;

	send_filled(p, pool, 3);
	check_ok(share_recv(c, -1, NULL, &m));
	child = fork();
	if (child == 0) {
		check_in_child();
		check_error(share_send(p, NULL, NULL, 0, NULL), SHARE_EFORK);
		check_error(share_ack(&m, NULL), SHARE_EFORK);
		check_error(share_recv(c, 0, NULL, &m), SHARE_EFORK);
		share_channel_close(c);
		share_channel_close(p);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && status == 0);
	check_ok(share_ack(&m, NULL));
	send_filled(p, pool, 4);
	expect_message(c, 4);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_room, a_buffer_of_another_pool_is_refused)
{
	share_pool_options po = SHARE_POOL_OPTIONS_INIT;
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_buffer *b;
	share_pool *second;

	po.kind = "host";
	check_ok(share_pool_create(client, "second", &po, &second));
	b = allocate(second, 64, NULL);
	check_error(share_send(p, b, NULL, 0, NULL), SHARE_EINVAL);
	check_ok(share_release(b, NULL));
	share_channel_close(p);
	check_ok(share_pool_destroy(client, "second"));
	share_pool_close(second);
}

Test(channel_room, there_are_only_so_many_of_a_role_and_writing_is_for_those_who_ask)
{
	share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *p, *c, *none;
	share_message m = SHARE_MESSAGE_INIT;

	o.consumers = 1;
	o.producers = 1;
	o.flags = SHARE_CHANNEL_WRITABLE;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, &o);
	check_error(share_channel_open(other, "channel", SHARE_CONSUMER, NULL, &none), SHARE_EBUSY);
	check_error(share_channel_open(other, "channel", SHARE_PRODUCER, NULL, &none), SHARE_EBUSY);
	send_filled(p, pool, 1);
	check_ok(share_recv(c, -1, NULL, &m));
	check_eq(share_mode(m.buffer), SHARE_RDWR);
	memset(share_ptr(m.buffer), 2, 4096);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}
