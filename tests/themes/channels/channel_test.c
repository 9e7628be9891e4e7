/* SPDX-License-Identifier: MIT */

/* Channels, between clients that behave and live: who gets what, and when memory comes back. */

#include <poll.h>
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

TestSuite(channel, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

Test(channel, carries_a_buffer_and_data_and_takes_them_back)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_buffer *b = allocate(pool, 4096, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	memset(share_ptr(b), 7, 4096);
	check_ok(share_send(p, b, "hello", 6, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_recv(c, -1, NULL, &m));
	check_eq(m.number, 0);
	check_eq(m.lost, 0);
	check_eq(m.deliveries, 1);
	check_eq(m.data_size, 6);
	check(strcmp((const char *)m.data, "hello") == 0);
	check_eq(share_size(m.buffer), 4096);
	check_eq(share_mode(m.buffer), SHARE_RDONLY);
	expect_filled(share_ptr(m.buffer), 7, 4096);
	check_eq(in_flight(p), 1);
	check_ok(share_ack(&m, NULL));
	check(!m.channel);
	check_error(share_ack(&m, NULL), SHARE_EINVAL);
	check_eq(in_flight(p), 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, carries_data_alone)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	unsigned char data[SHARE_MESSAGE_DATA_MAX];
	share_message m = SHARE_MESSAGE_INIT;

	memset(data, 3, sizeof(data));
	check_ok(share_send(p, NULL, data, sizeof(data), NULL));
	check_ok(share_send(p, NULL, NULL, 0, NULL));
	check_error(share_send(p, NULL, data, sizeof(data) + 1, NULL), SHARE_EINVAL);
	check_ok(share_recv(c, -1, NULL, &m));
	check(!m.buffer);
	check_eq(m.data_size, sizeof(data));
	expect_filled(m.data, 3, sizeof(data));
	check_ok(share_ack(&m, NULL));
	check_ok(share_recv(c, -1, NULL, &m));
	check_eq(m.data_size, 0);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, broadcast_gives_every_consumer_every_message_in_order)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *c[3];

	for (int i = 0; i < 3; i++)
		c[i] = open_channel(other, SHARE_CONSUMER, NULL);
	for (uint32_t i = 0; i < 1000; i++) {
		check_ok(share_send(p, NULL, &i, sizeof(i), NULL));
		if (i % 40 == 39)
			for (int k = 0; k < 3; k++)
				for (uint32_t n = i - 39; n <= i; n++)
					expect_number(c[k], n);
	}
	check_eq(in_flight(p), 0);
	for (int i = 0; i < 3; i++)
		share_channel_close(c[i]);
	share_channel_close(p);
}

Test(channel, queue_gives_each_message_to_one_consumer)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c[3];
	bool seen[60] = {false};

	for (int i = 0; i < 3; i++)
		c[i] = open_channel(other, SHARE_CONSUMER, NULL);
	for (uint32_t i = 0; i < 60; i++)
		check_ok(share_send(p, NULL, &i, sizeof(i), NULL));
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 20; k++) {
			uint32_t n = receive_number(c[i]);

			check(n < 60 && !seen[n]);
			seen[n] = true;
		}
	for (int i = 0; i < 3; i++)
		expect_nothing(c[i]);
	for (int i = 0; i < 3; i++)
		share_channel_close(c[i]);
	share_channel_close(p);
}

Test(channel, several_producers_are_told_apart_and_each_keeps_its_order)
{
	share_channel *p[3], *c = open_channel(other, SHARE_CONSUMER, NULL);
	uint64_t members[3] = {0};
	uint32_t next[3] = {0};

	for (int i = 0; i < 3; i++)
		p[i] = open_channel(client, SHARE_PRODUCER, NULL);
	for (uint32_t i = 0; i < 30; i++)
		check_ok(share_send(p[i % 3], NULL, &i, sizeof(i), NULL));
	for (int i = 0; i < 30; i++) {
		share_message m = SHARE_MESSAGE_INIT;
		uint32_t n;

		check_ok(share_recv(c, -1, NULL, &m));
		memcpy(&n, m.data, sizeof(n));
		check_eq(m.number, next[n % 3]);
		check_eq(n / 3, next[n % 3]++);
		if (m.number == 0)
			members[n % 3] = m.producer;
		check_eq(m.producer, members[n % 3]);
		check_ok(share_ack(&m, NULL));
	}
	check(members[0] != members[1] && members[1] != members[2]);
	for (int i = 0; i < 3; i++)
		share_channel_close(p[i]);
	share_channel_close(c);
}

Test(channel, batches_carry_as_many_as_there_is_room_for)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *p, *c;
	share_outgoing out[20];
	share_message in[32] = {SHARE_MESSAGE_INIT}, none = SHARE_MESSAGE_INIT;
	uint32_t numbers[20];

	o.depth = 16;
	p = open_channel(client, SHARE_PRODUCER, &o);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (uint32_t i = 0; i < 20; i++) {
		numbers[i] = i;
		out[i] = (share_outgoing){
		    .size = sizeof(out[0]), .data = &numbers[i], .data_size = sizeof(numbers[i])};
	}
	check_eq(share_send_many(p, out, 20, NULL), 16);
	check_error(share_send_many(p, out, 20, NULL), SHARE_EAGAIN);
	check_eq(share_recv_many(c, 0, NULL, in, 10), 10);
	check_eq(share_recv_many(c, -1, NULL, fresh(in + 10), 22), 6);
	check_error(share_recv_many(c, 0, NULL, &none, 1), SHARE_EAGAIN);
	for (uint32_t i = 0; i < 16; i++)
		check(memcmp(in[i].data, &i, sizeof(i)) == 0);
	check_ok(share_ack_many(in, 16, NULL));
	check_eq(in_flight(p), 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, messages_are_acknowledged_in_any_order)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m[8] = {SHARE_MESSAGE_INIT};

	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 8; i++) {
			share_buffer *b = filled_buffer(pool, 1 + i);

			check_ok(share_send(p, b, NULL, 0, NULL));
			check_ok(share_release(b, NULL));
		}
		for (int i = 0; i < 8; i++)
			check_ok(share_recv(c, -1, NULL, fresh(&m[i])));
		for (int i = 0; i < 8; i++) {
			int k = (i * 3 + round) % 8;

			expect_filled(share_ptr(m[k].buffer), 1 + k, 4096);
			check_ok(share_ack(&m[k], NULL));
		}
	}
	check_eq(in_flight(p), 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, memory_is_not_used_again_before_it_is_acknowledged)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message held[4] = {SHARE_MESSAGE_INIT}, m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < 4; i++) {
		send_filled(p, pool, 100 + i);
		check_ok(share_recv(c, -1, NULL, fresh(&held[i])));
	}
	for (int i = 0; i < 200; i++) {
		send_filled(p, pool, i);
		check_ok(share_recv(c, -1, NULL, &m));
		check_ok(share_ack(&m, NULL));
	}
	for (int i = 0; i < 4; i++) {
		expect_filled(share_ptr(held[i].buffer), 100 + i, 4096);
		check_ok(share_ack(&held[i], NULL));
	}
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, the_receivers_stream_comes_after_the_senders_and_the_next_use_after_the_receivers)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_host_stream *sending, *receiving;
	struct gate *first = gate_new(), *second = gate_new();
	share_buffer *b = allocate(pool, 4096, NULL), *next;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(client, &sending));
	check_ok(share_host_stream_create(other, &receiving));
	gate_hold(first, sending);
	gate_fill(first, sending, share_ptr(b), 5, 4096);
	check_ok(share_send(p, b, NULL, 0, sending));
	check_ok(share_release(b, sending));
	check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
	check(!m.channel);
	check_error(share_recv(c, 0, NULL, &m), SHARE_EAGAIN);
	check_ok(share_recv(c, 0, receiving, &m));
	gate_expect(first, receiving, share_ptr(m.buffer), 5, 4096, 1);
	gate_hold(second, receiving);
	gate_expect(second, receiving, share_ptr(m.buffer), 5, 4096, 0);
	check_ok(share_ack(&m, receiving));
	gate_open(first);
	check_ok(share_host_stream_synchronize(sending));
	/* acknowledged, but behind the second gate: the block is not to be had without waiting */
	check_eq(in_flight(p), 1);
	next = allocate(pool, 4096, sending);
	check_ok(share_release(next, sending));
	gate_open(second);
	check_ok(share_host_stream_synchronize(receiving));
	until(in_flight(p) == 0);
	share_host_stream_destroy(sending);
	share_host_stream_destroy(receiving);
	gate_free(first);
	gate_free(second);
	share_channel_close(c);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel, what_is_retained_outlives_the_message_and_the_channel)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_buffer *kept;
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 9);
	check_ok(share_recv(c, -1, NULL, &m));
	kept = share_retain(m.buffer);
	check_ok(share_ack(&m, NULL));
	check_eq(in_flight(p), 0);
	for (int i = 0; i < 100; i++) {
		send_filled(p, pool, i);
		check_ok(share_recv(c, -1, NULL, &m));
		check(share_ptr(m.buffer) != share_ptr(kept));
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(c);
	share_channel_close(p);
	expect_filled(share_ptr(kept), 9, 4096);
	check_ok(share_release(kept, NULL));
}

Test(channel, what_is_retained_and_released_before_the_acknowledgement_needs_no_lease)
{
	struct status before, after;
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 9);
	check_ok(share_recv(c, -1, NULL, &m));
	status_read(client, &before);
	check_ok(share_release(share_retain(m.buffer), NULL));
	expect_filled(share_ptr(m.buffer), 9, 4096);
	status_read(client, &after);
	check_eq(after.leases, before.leases);
	check_ok(share_ack(&m, NULL));
	check_eq(in_flight(p), 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, a_message_is_passed_on_through_another_channel)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL), *next_p, *next_c;
	share_message m = SHARE_MESSAGE_INIT, n = SHARE_MESSAGE_INIT;

	check_ok(share_channel_open(other, "next", SHARE_PRODUCER, NULL, &next_p));
	check_ok(share_channel_open(client, "next", SHARE_CONSUMER, NULL, &next_c));
	send_filled(p, pool, 4);
	check_ok(share_recv(c, -1, NULL, &m));
	check_ok(share_send(next_p, m.buffer, NULL, 0, NULL));
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
	check_ok(share_recv(next_c, -1, NULL, &n));
	expect_filled(share_ptr(n.buffer), 4, 4096);
	check_ok(share_ack(&n, NULL));
	share_channel_close(next_p);
	share_channel_close(next_c);
}

/* ------------------------------------------------------------------------------------------- */

Test(channel, a_consumer_joins_at_the_newest_or_at_the_oldest_message)
{
	share_channel_options oldest = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL), *first, *second, *third;

	oldest.from = SHARE_FROM_OLDEST;
	first = open_channel(other, SHARE_CONSUMER, NULL);
	for (uint32_t i = 0; i < 5; i++)
		check_ok(share_send(p, NULL, &i, sizeof(i), NULL));
	second = open_channel(other, SHARE_CONSUMER, NULL);
	third = open_channel(other, SHARE_CONSUMER, &oldest);
	check_ok(share_send(p, NULL, &(uint32_t){5}, sizeof(uint32_t), NULL));
	for (uint32_t i = 0; i < 6; i++)
		expect_number(first, i);
	expect_number(second, 5);
	for (uint32_t i = 0; i < 6; i++)
		expect_number(third, i);
	expect_nothing(first);
	expect_nothing(second);
	expect_nothing(third);
	share_channel_close(first);
	share_channel_close(second);
	share_channel_close(third);
	share_channel_close(p);
}

Test(channel, messages_wait_for_the_first_consumer)
{
	share_channel_options o = options(SHARE_QUEUE, 0);
	share_channel *p = open_channel(client, SHARE_PRODUCER, &o), *c;

	for (uint32_t i = 0; i < 5; i++)
		check_ok(share_send(p, NULL, &i, sizeof(i), NULL));
	o.from = SHARE_FROM_OLDEST;
	c = open_channel(other, SHARE_CONSUMER, &o);
	for (uint32_t i = 0; i < 5; i++)
		expect_number(c, i);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel, what_a_closed_producer_has_sent_is_received_and_then_its_end_is_said_once)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < 3; i++)
		send_filled(p, pool, i);
	share_channel_close(p);
	for (int i = 0; i < 3; i++) {
		check_ok(share_recv(c, -1, NULL, &m));
		expect_filled(share_ptr(m.buffer), i, 4096);
		check_ok(share_ack(&m, NULL));
	}
	check_error(share_recv(c, -1, NULL, &m), SHARE_EPIPE);
	check(!m.channel);
	check_error(share_recv(c, 1, NULL, &m), SHARE_ETIMEDOUT);
	p = open_channel(client, SHARE_PRODUCER, NULL);
	check_ok(share_send(p, NULL, &(uint32_t){1}, sizeof(uint32_t), NULL));
	expect_number(c, 1);
	share_channel_close(p);
	check_error(share_recv(c, -1, NULL, &m), SHARE_EPIPE);
	share_channel_close(c);
}

Test(channel, a_closed_consumer_goes_with_its_last_message)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m = SHARE_MESSAGE_INIT;

	send_filled(p, pool, 8);
	send_filled(p, pool, 9);
	check_ok(share_recv(c, -1, NULL, &m));
	share_channel_close(c);
	expect_filled(share_ptr(m.buffer), 8, 4096);
	check(in_flight(p) > 0);
	check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	share_channel_close(p);
}

/* What a program has in them that has initialised the first one. */
static void spoil(share_message *m, size_t n)
{
	memset(m, 0xff, n * sizeof(*m));
	m->size = sizeof(*m);
}

Test(channel, says_what_is_wrong_with_a_call_and_leaves_no_message)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_message m[2] = {SHARE_MESSAGE_INIT};

	spoil(m, 2);
	check_error(share_recv(p, 0, NULL, &m[0]), SHARE_EACCES);
	check(!m[0].channel);
	spoil(m, 2);
	check_error(share_recv(c, -2, NULL, &m[0]), SHARE_EINVAL);
	check_detail("a time limit is -1, 0, or milliseconds, not -2");
	check(!m[0].channel);
	spoil(m, 2);
	check_error(share_recv(NULL, 0, NULL, &m[0]), SHARE_EINVAL);
	check(!m[0].channel);
	spoil(m, 2);
	check_error(share_recv_many(p, 0, NULL, m, 2), SHARE_EACCES);
	check(!m[0].channel);
	spoil(m, 2);
	check_error(share_channel_take_back(c, &m[0]), SHARE_EACCES);
	check(!m[0].channel);
	check_error(share_recv(c, 0, NULL, NULL), SHARE_EINVAL);
	check_detail("the share_message is NULL");
	check_error(share_recv_many(c, 0, NULL, m, 0), SHARE_EINVAL);
	check_detail("0 is no number of messages");
	check_error(share_ack(&m[0], NULL), SHARE_EINVAL);
	check_detail("there is no message");
	check_error(share_send(p, NULL, NULL, 5, NULL), SHARE_EINVAL);
	check_detail("data is NULL, and its size 5");
	check_error(share_send(p, NULL, m, 257, NULL), SHARE_EINVAL);
	check_detail("up to 256 bytes, not 257; up to 65535 if all who open it say so (data_max)");
	share_channel_close(c);
	share_channel_close(p);
}
