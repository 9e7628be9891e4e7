/* SPDX-License-Identifier: MIT */

/* A consumer that writes what it likes into its ledger, from beneath libshare: the producer and the
 * other consumers go on, and get what is theirs. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libshare/channel.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/integration/channel_work.h"

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
		scribble(ch->own, channel_ledger_size(&ch->shape), &state);
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
	share_message m;

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

static void silent(struct child *self, void *data)
{
	share_client *c = child_connect("silent");
	share_channel *ch;
	share_message m;

	(void)data;
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	while (share_recv(ch, -1, NULL, &m) == 0) /* and never acknowledges */
		;
	child_point(self, "ended");
}

Test(channel_ledger, who_never_acknowledges_is_left_behind)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	struct child *child;
	share_channel *p, *c;

	o.depth = 4;
	o.in_flight = 16;
	o.stall_ms = 20;
	p = open_channel(client, SHARE_PRODUCER, &o);
	child = child_start(silent, NULL);
	child_wait(child, "open");
	c = open_channel(other, SHARE_CONSUMER, NULL);
	child_go(child);
	for (int i = 0; i < 10; i++) {
		send_filled(p, pool, i);
		expect_message(c, i);
	}
	check(in_flight(p) >= 1);
	child_kill(child);
	until(in_flight(p) == 0);
	share_channel_close(c);
	share_channel_close(p);
}

Test(channel_ledger, a_page_of_anothers_cannot_be_written)
{
	share_channel *p = open_channel(client, SHARE_PRODUCER, NULL);
	share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);

	for (uint32_t i = 0; i < CHANNEL_MEMBERS_MAX; i++)
		if (c->peers[i].map)
			check(mprotect(c->peers[i].map, 4096, PROT_READ | PROT_WRITE) != 0);
	check(mprotect((void *)(uintptr_t)c->control, 4096, PROT_READ | PROT_WRITE) != 0);
	send_number(p, 3);
	expect_number(c, 3);
	share_channel_close(c);
	share_channel_close(p);
}
