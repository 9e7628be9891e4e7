/* SPDX-License-Identifier: MIT */

/* Messages of a queue outlive their producer: those that a consumer had that is dead or gone go to
 * others, marked, and those that nobody has received stay for who comes. */

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
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

TestSuite(channel_orphan, .init = start, .fini = stop, .timeout = 60);

static share_channel_options queue(void)
{
	return options(SHARE_QUEUE, SHARE_FULL_BLOCK);
}

static share_channel *open_queue(share_client *c, int role)
{
	share_channel_options o = queue();

	return open_channel(c, role, &o);
}

/* Sends so many, and is killed at "sent", or ends. */
static void send_some(struct child *self, void *data)
{
	share_client *c = child_connect("producer");
	share_channel *ch = open_queue(c, SHARE_PRODUCER);
	share_pool *p = open_pool(c);

	for (int i = 0; i < *(int *)data; i++)
		send_filled(ch, p, i);
	child_point(self, "sent");
	share_channel_close(ch);
	share_pool_close(p);
	share_disconnect(c);
}

/* Sends so many, closes the channel and is gone. */
static void send_and_leave(int n)
{
	struct child *child = child_start(send_some, &n);

	child_wait(child, "sent");
	child_go(child);
	child_finish(child);
}

/* Receives so many, acknowledges none, and is killed at "received". */
static void receive_some(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = open_queue(c, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	child_point(self, "open");
	for (int i = 0; i < *(int *)data; i++)
		check_ok(share_recv(ch, -1, NULL, &m));
	child_point(self, "received");
}

static void expect_end(share_channel *c, int error)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_eq(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), error);
}

static void expect_marked(share_channel *c, int value, uint32_t deliveries)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(unsigned char *)share_ptr(m.buffer), value);
	check_eq(m.deliveries, deliveries);
	check_ok(share_ack(&m, NULL));
}

/* ------------------------------------------------------------------------------------------- */

Test(channel_orphan, what_nobody_has_received_stays_for_who_comes_after_the_producer_has_closed)
{
	share_channel *c;

	send_and_leave(3);
	c = open_queue(client, SHARE_CONSUMER);
	for (int i = 0; i < 3; i++)
		expect_marked(c, i, 1);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

Test(channel_orphan, what_nobody_has_received_stays_when_the_producer_is_killed)
{
	struct child *child = child_start(send_some, &(int){3});
	share_channel *c;

	child_wait(child, "sent");
	child_kill(child);
	c = open_queue(client, SHARE_CONSUMER);
	for (int i = 0; i < 3; i++)
		expect_marked(c, i, 1);
	share_channel_close(c);
}

Test(channel_orphan, what_a_dead_consumer_had_goes_to_another_though_the_producer_is_gone)
{
	int n = 6, had = 2;
	struct child *consumer = child_start(receive_some, &had), *producer;
	share_channel *c;
	int seen[6] = {0};

	child_wait(consumer, "open");
	producer = child_start(send_some, &n);
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	child_go(producer);
	child_finish(producer);
	c = open_queue(client, SHARE_CONSUMER);
	child_kill(consumer);
	for (int i = 0; i < n; i++) {
		share_message m = SHARE_MESSAGE_INIT;
		int value;

		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		value = *(unsigned char *)share_ptr(m.buffer);
		check_eq(m.deliveries, value < had ? 2 : 1);
		seen[value]++;
		check_ok(share_ack(&m, NULL));
	}
	for (int i = 0; i < n; i++)
		check_eq(seen[i], 1);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

/* Two consumers: the one that has nothing stays as long as the other has something. */
Test(channel_orphan, a_loop_ends_when_nothing_can_come_back_any_more)
{
	struct child *consumer = child_start(receive_some, &(int){1}), *producer;
	share_channel *c;
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(consumer, "open");
	producer = child_start(send_some, &(int){1});
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	c = open_queue(client, SHARE_CONSUMER);
	child_go(producer);
	child_finish(producer);
	check_eq(share_recv(c, 200, NULL, &m), SHARE_ETIMEDOUT);
	child_kill(consumer);
	expect_marked(c, 0, 2);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

/* It might get what the other one gives back; and it hears of the end once, as that one does. */
Test(channel_orphan, who_comes_after_the_producer_and_gets_nothing_hears_of_the_end)
{
	share_client *other = connect_as("holder");
	share_channel *holder = open_queue(other, SHARE_CONSUMER), *late;
	struct child *producer = child_start(send_some, &(int){1});
	share_message m = SHARE_MESSAGE_INIT, none = SHARE_MESSAGE_INIT;

	check_ok(share_recv(holder, HARNESS_LIMIT_MS, NULL, &m));
	child_wait(producer, "sent");
	child_go(producer);
	child_finish(producer);
	late = open_queue(client, SHARE_CONSUMER);
	check_eq(share_recv(late, 0, NULL, &none), SHARE_EAGAIN);
	check_ok(share_ack(&m, NULL));
	expect_end(late, SHARE_EPIPE);
	expect_end(holder, SHARE_EPIPE);
	check_eq(share_recv(late, 0, NULL, &none), SHARE_EAGAIN);
	check_eq(share_recv(holder, 0, NULL, &none), SHARE_EAGAIN);
	share_channel_close(late);
	share_channel_close(holder);
	share_disconnect(other);
}

/* Nobody has received them, so the consumer that was told of them is not at the end of its work. */
Test(channel_orphan, a_broker_that_is_lost_with_messages_that_wait_is_no_end)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *c;

	send_and_leave(2);
	c = open_queue(client, SHARE_CONSUMER);
	broker_kill();
	for (int i = 0; i < 2; i++)
		check_error(share_recv(c, HARNESS_LIMIT_MS, NULL, &m), SHARE_EDISCONNECTED);
	share_channel_close(c);
	broker_stop();
	broker_start(NULL);
}

/* It was delivered as often as it may be, and nobody is there to take it back. */
Test(channel_orphan, what_is_delivered_too_often_is_lost)
{
	struct child *consumer, *producer;
	share_channel *c;

	consumer = child_start(receive_some, &(int){1});
	child_wait(consumer, "open");
	producer = child_start(send_some, &(int){1});
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	child_go(producer);
	child_finish(producer);
	child_kill(consumer);
	for (int i = 0; i < 2; i++) {
		consumer = child_start(receive_some, &(int){1});
		child_wait(consumer, "open");
		child_go(consumer);
		child_wait(consumer, "received");
		child_kill(consumer);
	}
	c = open_queue(client, SHARE_CONSUMER);
	expect_nothing(c);
	share_channel_close(c);
}

Test(channel_orphan, messages_without_memory_stay_as_well)
{
	share_channel *p = open_queue(client, SHARE_PRODUCER), *c;
	share_client *other = connect_as("consumer");

	for (uint32_t i = 0; i < 40; i++)
		send_number(p, i);
	share_channel_close(p);
	c = open_queue(other, SHARE_CONSUMER);
	for (uint32_t i = 0; i < 40; i++)
		expect_number(c, i);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
	share_disconnect(other);
}

/* Those that wait, and those that somebody has. */
Test(channel_orphan, the_next_broker_has_them_as_the_last_one_had)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *c;

	send_and_leave(3);
	c = open_queue(client, SHARE_CONSUMER);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(unsigned char *)share_ptr(m.buffer), 0);
	broker_kill_serving();
	expect_marked(c, 1, 1);
	check_ok(share_ack(&m, NULL));
	broker_kill_serving();
	expect_marked(c, 2, 1);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

static size_t members(void)
{
	json_t *rows = report(client, "channels");
	size_t n =
	    json_array_size(json_object_get(row_named(rows, "channel", "channel"), "members"));

	json_decref(rows);
	return n;
}

/* It has acknowledged, left, and nothing of it is there any more, when the producer dies that was
 * stopped all the time: what is acknowledged does not come again. */
Test(channel_orphan, what_was_acknowledged_by_who_has_left_does_not_come_again)
{
	struct child *producer = child_start(send_some, &(int){3});
	share_client *other = connect_as("first consumer");
	share_channel *c;
	share_message m[2];

	child_wait(producer, "sent");
	c = open_queue(other, SHARE_CONSUMER);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, fresh(&m[0])));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, fresh(&m[1])));
	check(kill(producer->pid, SIGSTOP) == 0);
	check(waitpid(producer->pid, NULL, WUNTRACED) == producer->pid);
	check_ok(share_ack(&m[0], NULL));
	check_ok(share_ack(&m[1], NULL));
	share_channel_close(c);
	until(members() == 1);
	broker_kill_serving();
	child_kill(producer);
	c = open_queue(client, SHARE_CONSUMER);
	/* nobody knows any more that it was not received */
	expect_marked(c, 2, 2);
	expect_end(c, SHARE_EOWNERDEAD);
	share_channel_close(c);
	share_disconnect(other);
}

/* Two of four, each. */
Test(channel_orphan, who_has_had_a_lane_gets_nothing_of_it_twice)
{
	struct child *consumer = child_start(receive_some, &(int){2}), *producer;
	share_channel *c;
	share_message m = SHARE_MESSAGE_INIT;
	int sum = 0;

	child_wait(consumer, "open");
	c = open_queue(client, SHARE_CONSUMER);
	producer = child_start(send_some, &(int){4});
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	for (int i = 0; i < 2; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		sum += *(unsigned char *)share_ptr(m.buffer);
		check_ok(share_ack(&m, NULL));
	}
	child_go(producer);
	child_finish(producer);
	/* it has drained its lane then, and says so */
	check_eq(share_recv(c, 200, NULL, &m), SHARE_ETIMEDOUT);
	child_kill(consumer);
	for (int i = 0; i < 2; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(m.deliveries, 2);
		sum += *(unsigned char *)share_ptr(m.buffer);
		check_ok(share_ack(&m, NULL));
	}
	check_eq(sum, 0 + 1 + 2 + 3);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

/* However tickets were used before. */
Test(channel_orphan, they_come_in_the_order_in_which_they_were_sent)
{
	share_channel *p = open_queue(client, SHARE_PRODUCER), *c;
	share_client *other = connect_as("consumer");

	c = open_queue(other, SHARE_CONSUMER);
	for (uint32_t i = 0; i < 100; i++) {
		send_number(p, i);
		if (i % 3 > 0)
			expect_number(c, i / 3 * 2 + i % 3 - 1);
	}
	share_channel_close(c);
	share_channel_close(p);
	c = open_queue(other, SHARE_CONSUMER);
	for (uint32_t i = 66; i < 100; i++)
		expect_number(c, i);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
	share_disconnect(other);
}

/* With so many messages in flight a consumer has fewer than 10 rows. */
Test(channel_orphan, who_always_holds_a_message_gets_those_of_more_producers_than_it_has_rows)
{
	share_channel_options o = queue();
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;
	share_channel *p, *c;

	o.in_flight = 8192;
	o.producers = 1;
	for (int i = 0; i < 20; i++) {
		p = open_channel(client, SHARE_PRODUCER, &o);
		send_filled(p, pool, i);
		share_channel_close(p);
	}
	c = open_channel(client, SHARE_CONSUMER, &o);
	for (int i = 0; i < 20; i++) {
		check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(*(unsigned char *)share_ptr(m.buffer), i);
		if (i > 0)
			check_ok(share_ack(&held, NULL));
		held = m;
	}
	check_ok(share_ack(&held, NULL));
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
}

/* Nor for the rows of those that it has drained, though messages of others wait. */
Test(channel_orphan, who_always_holds_a_message_is_not_expelled_for_producers_that_come_and_go)
{
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;
	share_channel *p = open_queue(client, SHARE_PRODUCER), *c;
	share_client *other = connect_as("consumer");
	uint32_t number;

	for (int i = 0; i < 60; i++)
		send_number(p, 0);
	share_channel_close(p);
	c = open_queue(other, SHARE_CONSUMER);
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &held));
	for (uint32_t i = 1; i <= 150; i++) {
		p = open_queue(client, SHARE_PRODUCER);
		send_number(p, i);
		share_channel_close(p);
		do { /* of those that wait some come between them */
			check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
			number = *(const uint32_t *)(const void *)m.data;
			check_ok(share_ack(&m, NULL));
		} while (number != i);
	}
	check_ok(share_ack(&held, NULL));
	share_channel_close(c);
	check_ok(share_end_channel(client, "channel"));
	share_disconnect(other);
}

/* Who has them comes with them again. */
Test(channel_orphan, those_of_a_transient_producer_end_with_it)
{
	share_channel_options o = queue();
	share_client *other = connect_as("consumer");
	share_channel *p, *c;

	o.flags = SHARE_CHANNEL_TRANSIENT;
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 1);
	broker_kill_serving();
	share_channel_close(p);
	until(members() == 0);
	/* what a consumer has in its lane it still receives */
	c = open_queue(other, SHARE_CONSUMER);
	p = open_channel(client, SHARE_PRODUCER, &o);
	send_filled(p, pool, 2);
	share_channel_close(p);
	expect_message(c, 2);
	expect_end(c, SHARE_EPIPE);
	share_channel_close(c);
	share_disconnect(other);
}
