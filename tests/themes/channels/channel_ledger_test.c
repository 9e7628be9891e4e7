/* SPDX-License-Identifier: MIT */

/* A consumer that writes what it likes into its ledger, from beneath libshare: the producer and the
 * other consumers go on, and get what is theirs. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libshare/channel/inside.h"
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

TestSuite(channel_ledger, .init = start, .fini = stop, .timeout = 60);

static void scribble(void *page, size_t size, unsigned *state)
{
	for (size_t i = 0; i + sizeof(int) <= size; i += sizeof(int))
		*(int *)(void *)((char *)page + i) = rand_r(state) - RAND_MAX / 2;
}

static void hostile(struct child *self, void *data)
{
	share_client *c = child_connect("hostile");
	share_channel *ch;
	unsigned state = 5;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	for (;;) {
		scribble(channel_of(ch)->own, channel_ledger_size(&channel_of(ch)->shape), &state);
		child_point(self, "scribbled");
	}
}

Test(channel_ledger, garbage_in_a_ledger_harms_nobody_else)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	struct child *child;
	share_channel *p, *c;

	o.depth = 8;
	o.stall_ms = 5;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(hostile, NULL);
	child_wait(child, "open");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (int i = 0; i < 60; i++) {
		child_go(child);
		send_filled(p, pool, i);
		expect_message(c, i);
		child_wait(child, "scribbled");
	}
	child_kill(child);
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_ledger, garbage_in_a_queues_ledger_harms_nobody_else)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	struct child *child;
	share_channel *p, *c;
	share_message m = SHARE_MESSAGE_INIT;

	o.depth = 8;
	o.stall_ms = 5;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(hostile, NULL);
	child_wait(child, "open");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (int i = 0; i < 60; i++) {
		child_go(child);
		send_filled(p, pool, i);
		while (share_recv(c, 0, NULL, &m) == 0) {
			int value = *(const unsigned char *)share_ptr(m.buffer);

			check(value <= i);
			expect_filled(share_ptr(m.buffer), value, 4096);
			check_ok(share_ack(&m, NULL));
		}
		child_wait(child, "scribbled");
	}
	child_kill(child);
	until(channel_stats(p).consumers == 1);
	while (share_recv(c, 100, NULL, &m) == 0)
		check_ok(share_ack(&m, NULL));
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

#define HELD 16

/* Takes what it can get and gives nothing back; what it has stays as it was. */
static void silent(struct child *self, void *data)
{
	share_client *c = child_connect("silent");
	share_message m[HELD] = {SHARE_MESSAGE_INIT};
	int values[HELD];
	share_channel *ch;
	uint32_t n = 0;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	for (; n < HELD && share_recv(ch, -1, NULL, fresh(&m[n])) == 0; n++)
		values[n] = *(const unsigned char *)share_ptr(m[n].buffer);
	child_point_with(self, "holds", &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++)
		expect_filled(share_ptr(m[i].buffer), values[i], 4096);
	child_point(self, "has looked");
}

static void take_all(share_channel *c)
{
	share_message m = SHARE_MESSAGE_INIT;

	while (c && share_recv(c, 0, NULL, &m) == 0) {
		int value = *(const unsigned char *)share_ptr(m.buffer);

		expect_filled(share_ptr(m.buffer), value, 4096);
		check_ok(share_ack(&m, NULL));
	}
}

static void expect_to_go_on(uint32_t mode, bool dies)
{
	share_channel_options o = options(mode, SHARE_FULL_BLOCK);
	struct child *child;
	share_channel *p, *c;
	uint32_t n;

	o.depth = 4;
	o.in_flight = 8;
	o.stall_ms = 20;
	if (mode == SHARE_QUEUE) {
		o.depth = o.in_flight;
		o.when_full = SHARE_FULL_FAIL;
	}
	o.send_timeout_ms = HARNESS_LIMIT_MS;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(silent, NULL);
	child_wait(child, "open");
	/* the first of a queue are all for the silent one */
	c = mode == SHARE_QUEUE ? NULL : open_channel(other, SHARE_CONSUMER, NULL);
	child_go(child);
	for (int i = 0; i < 40; i++) {
		share_buffer *b = filled_buffer(pool, i);

		until(share_send(p, b, NULL, 0, NULL) == 0 || (take_all(c), false));
		check_ok(share_release(b, NULL));
		if (!c && i >= 7)
			c = open_channel(other, SHARE_CONSUMER, NULL);
		take_all(c);
	}
	check_eq(channel_stats(p).left_behind, 1);
	child_wait_with(child, "holds", &n, sizeof(n));
	check(n > 0);
	until((take_all(c), in_flight(p) == 0));
	child_go(child);
	child_wait(child, "has looked");
	check_ok(share_pool_set_cache(pool, 0));
	settle(client, s.buffers == n);
	if (dies)
		child_kill(child);
	share_channel_close(c);
	share_channel_close(p);
	if (dies)
		settle(client, s.buffers == 0);
	else
		child_kill(child);
}

Test(channel_ledger, who_never_acknowledges_is_left_behind)
{
	expect_to_go_on(SHARE_BROADCAST, true);
}

Test(channel_ledger, who_never_acknowledges_does_not_stop_a_queue)
{
	expect_to_go_on(SHARE_QUEUE, true);
}

Test(channel_ledger, what_a_silent_one_has_outlives_the_channel_of_its_producer)
{
	expect_to_go_on(SHARE_BROADCAST, false);
}

/* Its work never ends, as far as anybody can tell. */
static void endless(struct child *self, void *data)
{
	share_client *c = child_connect("endless");
	share_host_stream *stream;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_host_stream_create(c, &stream));
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	gate_hold(data, stream);
	child_point(self, "open");
	while (share_recv(ch, -1, stream, &m) == 0)
		check_ok(share_ack(&m, stream));
	share_channel_close(ch);
	child_point(self, "left behind");
}

Test(channel_ledger, who_acknowledges_behind_work_without_end_is_left_behind)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	struct gate *gate = gate_new();
	struct child *child;
	share_channel *p, *c;

	o.depth = 4;
	o.in_flight = 8;
	o.stall_ms = 20;
	o.send_timeout_ms = HARNESS_LIMIT_MS;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(endless, gate);
	child_wait(child, "open");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	child_go(child);
	for (int i = 0; i < 40; i++) {
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	check_eq(channel_stats(p).left_behind, 1);
	child_wait(child, "left behind");
	gate_open(gate);
	child_kill(child);
	share_channel_close(c);
	share_channel_close(p);
	gate_free(gate);
}

Test(channel_ledger, a_page_of_anothers_cannot_be_written)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);
	share_channel *inside = channel_of(c);

	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++)
		if (channel_unshared(inside)->peers[i].map)
			check(mprotect(channel_unshared(inside)->peers[i].map, 4096,
				       PROT_READ | PROT_WRITE) != 0);
	check(mprotect((void *)(uintptr_t)inside->control, 4096, PROT_READ | PROT_WRITE) != 0);
	send_number(p, 3);
	expect_number(c, 3);
	share_channel_close(c);
	share_channel_close(p);
}
