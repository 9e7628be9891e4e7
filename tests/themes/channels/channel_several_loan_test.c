/* SPDX-License-Identifier: MIT */

/* Loans that go on in messages of several buffers, or beside them. */

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

static share_client *client, *other;
static share_channel *producer, *consumer; /* whose messages are loans of @other */
static share_pool *pool;

static void start(void)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);

	fixture_start();
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
	o.buffers = 4;
	producer = open_channel(client, SHARE_PRODUCER, &o);
	consumer = open_channel(other, SHARE_CONSUMER, &o);
}

static void stop(void)
{
	share_channel_close(consumer);
	share_channel_close(producer);
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_several_loan, .init = start, .fini = stop, .timeout = 60);

/* Filled with @value, @value + 1 and so on. */
static void lend(int value, uint32_t n, share_message *m)
{
	share_outgoing sent = SHARE_OUTGOING_INIT;
	share_buffer *buffers[4];

	for (uint32_t i = 0; i < n; i++)
		buffers[i] = filled_buffer(pool, value + (int)i);
	sent.buffers = buffers;
	sent.n_buffers = n;
	sent.flags = SHARE_OUTGOING_GIVE;
	check_eq(share_send_many(producer, &sent, 1, NULL), 1);
	check_ok(share_recv(consumer, HARNESS_LIMIT_MS, NULL, m));
	check_eq(m->n_buffers, n);
}

static share_channel *open_next(share_client *c, int role)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *ch;

	o.buffers = 4;
	o.in_flight = 4;
	check_ok(share_channel_open(c, "next", role, &o, &ch));
	return ch;
}

static int send_on(share_channel *p, share_buffer *const *buffers, uint32_t n)
{
	share_outgoing m = SHARE_OUTGOING_INIT;

	m.buffers = (share_buffer **)(void *)(uintptr_t)buffers;
	m.n_buffers = n;
	return share_send_many(p, &m, 1, NULL);
}

/* How much room one message wanted is not what the next one wants. */
Test(channel_several_loan, finds_room_though_a_larger_message_has_found_none)
{
	share_channel *p = open_next(other, SHARE_PRODUCER), *c = open_next(client, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT, next = SHARE_MESSAGE_INIT;
	share_pool *others = open_pool(other);
	share_buffer *own[4];

	lend(1, 1, &m);
	for (int i = 0; i < 4; i++)
		own[i] = filled_buffer(others, 10 + i);
	check_eq(send_on(p, own, 3), 1);
	check_eq(send_on(p, own, 4), SHARE_EAGAIN);
	check_ok(share_send(p, m.buffer, NULL, 0, NULL));
	check_ok(share_ack(&m, NULL));
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &next));
	check_eq(next.n_buffers, 3);
	check_ok(share_ack(&next, NULL));
	expect_message(c, 1);
	for (int i = 0; i < 4; i++)
		check_ok(share_release(own[i], NULL));
	share_pool_close(others);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_several_loan, that_finds_no_room_stays_one)
{
	share_channel *p = open_next(other, SHARE_PRODUCER), *c = open_next(client, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	lend(1, 2, &m);
	for (int i = 0; i < 3; i++)
		check_ok(share_send(p, NULL, NULL, 0, NULL));
	check_eq(send_on(p, m.buffers, 2), SHARE_EAGAIN);
	for (uint32_t i = 0; i < 2; i++)
		check_error(share_publish(m.buffers[i], "name", NULL), SHARE_ESTALE);
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
	share_channel_close(p);
}

/* Nobody can give a lease of it, and it is the only one of its message. */
Test(channel_several_loan, of_one_goes_on_without_a_broker)
{
	share_message m = SHARE_MESSAGE_INIT;
	share_buffer *kept;

	lend(1, 1, &m);
	kept = share_retain(m.buffer);
	broker_kill();
	check_ok(share_ack(&m, NULL));
	expect_filled(share_ptr(kept), 1, 4096);
	check_eq(channel_stats(producer).in_flight, 1);
	check_ok(share_release(kept, NULL));
	until(channel_stats(producer).in_flight == 0);
}

/* ------------------------------------------------------------------------------------------- */

static void sends_on_and_dies(struct child *self, void *data)
{
	share_client *c = child_connect("between");
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *from, *to;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	o.buffers = 4;
	from = open_channel(c, SHARE_CONSUMER, &o);
	to = open_next(c, SHARE_PRODUCER);
	child_point(self, "open");
	check_ok(share_recv(from, -1, NULL, &m));
	check_eq(send_on(to, m.buffers, m.n_buffers), 1);
	child_point(self, "sent");
}

/* To somebody who reads it while its first producer gets other memory. */
static void passes_on(uint32_t n)
{
	share_channel *c = open_next(other, SHARE_CONSUMER);
	struct child *child = child_start(sends_on_and_dies, NULL);
	share_message m = SHARE_MESSAGE_INIT, mine = SHARE_MESSAGE_INIT;
	share_buffer *more[64];

	child_wait(child, "open");
	lend(1, n, &mine);
	check_ok(share_ack(&mine, NULL));
	child_go(child);
	child_wait(child, "sent");
	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	child_kill(child);
	until(channel_stats(producer).in_flight == 0);
	for (int i = 0; i < 64; i++)
		more[i] = filled_buffer(pool, 100);
	for (uint32_t i = 0; i < n; i++)
		expect_filled(share_ptr(m.buffers[i]), 1 + (int)i, 4096);
	for (int i = 0; i < 64; i++)
		check_ok(share_release(more[i], NULL));
	check_ok(share_ack(&m, NULL));
	share_channel_close(c);
}

Test(channel_several_loan, that_was_sent_on_by_who_is_dead_is_not_used_again)
{
	passes_on(1);
}

Test(channel_several_loan, of_several_that_was_sent_on_by_who_is_dead_is_not_used_again)
{
	passes_on(3);
}
