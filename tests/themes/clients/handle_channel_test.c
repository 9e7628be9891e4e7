/* SPDX-License-Identifier: MIT */

/*
 * Handles that were given up, of channels and of what goes through them: messages, and their
 * buffers. A message is one, however many copies of it the program has made.
 */

#include "tests/support/channel_work.h"

#include "tests/harness/fixture.h"

#define LIVES 2000 /* more than a slot has generations, several times */

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("handles");
	pool = open_pool(client);
}

static void stop(void)
{
	if (!check_has_failed()) {
		check_ok(share_pool_set_cache(pool, 0));
		settle(client, s.clients == 1 && s.leases == 0);
	}
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(handle_channel, .init = start, .fini = stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */
/* Buffers in channels                                                                         */

static share_channel *producer, *consumer;

static void open_both(void)
{
	producer = open_channel(client, SHARE_PRODUCER, NULL);
	consumer = open_channel(client, SHARE_CONSUMER, NULL);
}

static void close_both(void)
{
	share_channel_close(producer);
	share_channel_close(consumer);
}

Test(handle_channel, what_a_channel_holds_can_be_given_up_all_the_same)
{
	share_buffer *b;

	open_both();
	b = filled_buffer(pool, 7);
	check_ok(share_send(producer, b, NULL, 0, NULL));
	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
	check_given_up(share_send(producer, b, NULL, 0, NULL));
	check(!share_ptr(b));
	expect_message(consumer, 7);
	close_both();
}

Test(handle_channel, a_buffer_is_given_to_a_channel_once)
{
	char data[SHARE_MESSAGE_DATA_MAX + 1] = {0};
	share_outgoing twice[2] = {{.size = sizeof(twice[0]), .flags = SHARE_OUTGOING_GIVE},
				   {.flags = SHARE_OUTGOING_GIVE}};
	share_buffer *b;

	open_both();
	b = filled_buffer(pool, 7);
	check_error(share_give(producer, b, data, sizeof(data), NULL), SHARE_EINVAL);
	twice[0].buffer = twice[1].buffer = b;
	check_given_up(share_send_many(producer, twice, 2, NULL));
	check(share_ptr(b)); /* it was not sent */
	check_ok(share_give(producer, b, NULL, 0, NULL));
	check_given_up(share_give(producer, b, NULL, 0, NULL));
	check_given_up(share_release(b, NULL));
	expect_message(consumer, 7);
	expect_nothing(consumer);
	close_both();
}

Test(handle_channel, a_messages_buffer_goes_with_the_message)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *b;

	open_both();
	send_filled(producer, pool, 7);
	check_ok(share_recv(consumer, 0, NULL, &m));
	b = m.buffer;
	check_error(share_release(b, NULL), SHARE_EINVAL);
	check_detail("share_ack()");
	check(share_retain(b) == b);
	check_ok(share_release(b, NULL));
	check_error(share_release(b, NULL), SHARE_EINVAL);
	check(*(unsigned char *)share_ptr(b) == 7);
	check_ok(share_ack(&m, NULL));
	check(!share_ptr(b) && !share_retain(b));
	check_given_up(share_release(b, NULL));
	check_error(share_send(producer, b, NULL, 0, NULL), SHARE_EINVAL);
	close_both();
}

Test(handle_channel, a_messages_buffer_that_was_kept_is_released_once)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *b;

	open_both();
	send_filled(producer, pool, 7);
	check_ok(share_recv(consumer, 0, NULL, &m));
	b = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check(*(unsigned char *)share_ptr(b) == 7);
	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
	close_both();
}

/* Consumers use the same few handles for one message after the other. */
Test(handle_channel, the_buffer_of_an_old_message_is_known_for_long)
{
	share_buffer *old = NULL;
	share_message m = SHARE_MESSAGE_INIT;

	open_both();
	for (int i = 0; i < LIVES; i++) {
		send_filled(producer, pool, 7);
		check_ok(share_recv(consumer, 0, NULL, &m));
		check(m.buffer != old);
		if (old)
			check_given_up(share_release(old, NULL));
		else
			old = m.buffer;
		check_ok(share_ack(&m, NULL));
	}
	close_both();
}

/* ------------------------------------------------------------------------------------------- */
/* Channels and messages                                                                       */

Test(handle_channel, a_channel_is_given_up_once)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;
	share_message m = SHARE_MESSAGE_INIT, nothing = SHARE_MESSAGE_INIT;
	share_channel *old;

	open_both();
	send_filled(producer, pool, 7);
	check_ok(share_recv(consumer, 0, NULL, &m));
	old = consumer;
	share_channel_close(old); /* it stays for the message */
	share_channel_close(old);
	check_given_up(share_recv(old, 0, NULL, &nothing));
	check_given_up(share_recv_many(old, 0, NULL, &nothing, 1));
	check_given_up(share_channel_get_fd(old));
	check_given_up(share_channel_get_stats(old, &stats));
	check(*(unsigned char *)share_ptr(m.buffer) == 7);
	check_ok(share_ack(&m, NULL));
	consumer = open_channel(client, SHARE_CONSUMER, NULL);
	check(consumer != old);
	share_channel_close(old);
	send_number(producer, 1);
	expect_number(consumer, 1);
	old = producer;
	close_both();
	share_channel_close(old);
	check_given_up(share_send(old, NULL, NULL, 0, NULL));
	check_given_up(share_send_many(old, &(share_outgoing)SHARE_OUTGOING_INIT, 1, NULL));
	check_given_up(share_channel_flush(old, 0));
	check_given_up(share_channel_drain(old, 0));
	check_given_up(share_channel_take_back(old, &m));
}

/* Acknowledged twice, it would be another one's acknowledgement. */
static void expect_one_acknowledgement_for_each(share_message *first, share_message *second)
{
	share_message copy = *first;

	check_ok(share_ack(first, NULL));
	check_given_up(share_ack(first, NULL));
	check_given_up(share_ack(&copy, NULL));
	check_eq(channel_stats(consumer).acknowledged + 1, channel_stats(consumer).received);
	check_eq(in_flight(producer), 1);
	copy = *second;
	check_ok(share_ack(second, NULL));
	check_given_up(share_ack_many(&copy, 1, NULL));
	check_eq(in_flight(producer), 0);
}

Test(handle_channel, a_message_is_given_up_once_and_so_is_its_copy)
{
	share_message first = SHARE_MESSAGE_INIT, second = SHARE_MESSAGE_INIT;

	open_both();
	for (int i = 0; i < 2; i++) {
		send_filled(producer, pool, i);
		send_filled(producer, pool, i);
		check_ok(share_recv(consumer, 0, NULL, &first));
		check_ok(share_recv(consumer, 0, NULL, &second));
		expect_one_acknowledgement_for_each(&first, &second);
		/* without memory there is nothing to know it by but the message itself */
		send_number(producer, 1);
		send_number(producer, 2);
		check_ok(share_recv(consumer, 0, NULL, &first));
		check_ok(share_recv(consumer, 0, NULL, &second));
		expect_one_acknowledgement_for_each(&first, &second);
	}
	close_both();
}

Test(handle_channel, a_message_whose_buffer_was_kept_is_given_up_once)
{
	share_message m = SHARE_MESSAGE_INIT, copy = SHARE_MESSAGE_INIT;
	share_buffer *b;

	open_both();
	send_filled(producer, pool, 7);
	check_ok(share_recv(consumer, 0, NULL, &m));
	copy = m;
	b = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check_given_up(share_ack(&copy, NULL));
	check(*(unsigned char *)share_ptr(b) == 7);
	check_ok(share_release(b, NULL));
	close_both();
}

Test(handle_channel, a_message_twice_among_several_is_refused)
{
	share_message m[3] = {SHARE_MESSAGE_INIT};

	open_both();
	for (int i = 0; i < 3; i++)
		send_filled(producer, pool, i);
	check_eq(share_recv_many(consumer, 0, NULL, m, 2), 2);
	m[2] = m[0];
	check_given_up(share_ack_many(m, 3, NULL));
	check_eq(in_flight(producer), 3); /* none of them */
	check_ok(share_ack_many(m, 2, NULL));
	check_given_up(share_ack(&m[2], NULL));
	expect_message(consumer, 2);
	close_both();
}

Test(handle_channel, the_message_of_a_channel_that_has_ended_is_known)
{
	share_message m = SHARE_MESSAGE_INIT, copy = SHARE_MESSAGE_INIT;

	open_both();
	send_number(producer, 1);
	check_ok(share_recv(consumer, 0, NULL, &m));
	copy = m;
	close_both();
	check_ok(share_ack(&m, NULL));
	check_given_up(share_ack(&copy, NULL));
	open_both(); /* in its place, perhaps */
	check_given_up(share_ack(&copy, NULL));
	close_both();
}

static void take_two(struct child *self, void *data)
{
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	ch = open_channel(child_connect("taker"), SHARE_CONSUMER, NULL);
	for (int i = 0; i < 2; i++)
		check_ok(share_recv(ch, -1, NULL, &m));
	child_point(self, "took two");
}

/* A message that was delivered as often as may be, back at its producer. */
Test(handle_channel, a_message_taken_back_is_given_up_once)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_message m = SHARE_MESSAGE_INIT, copy = SHARE_MESSAGE_INIT, more = SHARE_MESSAGE_INIT;
	struct child *taker;
	share_buffer *b;

	o.deliveries = 1;
	producer = open_channel(client, SHARE_PRODUCER, &o);
	b = filled_buffer(pool, 7);
	for (int i = 0; i < 2; i++)
		check_ok(share_send(producer, b, NULL, 0, NULL));
	check_ok(share_release(b, NULL));
	taker = child_start(take_two, NULL);
	child_wait(taker, "took two");
	child_kill(taker);
	until(share_channel_take_back(producer, &m) == 0);
	until(share_channel_take_back(producer, &more) == 0);
	check(m.buffer != b && !share_ptr(b) && *(unsigned char *)share_ptr(m.buffer) == 7);
	copy = m;
	check_ok(share_ack(&m, NULL));
	check_given_up(share_ack(&copy, NULL));
	check(*(unsigned char *)share_ptr(more.buffer) == 7);
	check_ok(share_ack(&more, NULL));
	share_channel_close(producer);
}
