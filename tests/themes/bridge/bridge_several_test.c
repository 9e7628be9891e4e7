/* SPDX-License-Identifier: MIT */

/* Messages of several buffers, and of more data than goes with a header, pass as others do: whole,
 * in order, each once, whatever becomes of the link and of those at its ends. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_messages.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_several, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEPTH        8
#define MIB          (UINT64_C(1) << 20)

static share_channel_options shape(uint32_t mode)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

	options.mode = mode;
	options.depth = DEPTH;
	options.buffers = MESSAGE_BUFFERS;
	options.data_max = MESSAGE_DATA;
	options.in_flight = 1000;
	options.send_timeout_ms = HARNESS_LIMIT_MS;
	return options;
}

static share_channel *open_channel(share_client *c, int role, const share_channel_options *options)
{
	share_channel *ch;

	check_ok(share_channel_open(c, "q", role, options, &ch));
	return ch;
}

/* As soon as the bridge has made it. */
static share_channel *several_mirror_open(share_client *c, uint32_t flags)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch = NULL;

	options.flags = SHARE_CHANNEL_EXISTING | flags;
	options.buffers = MESSAGE_BUFFERS;
	options.data_max = MESSAGE_DATA;
	until(share_channel_open(c, "q", SHARE_CONSUMER, &options, &ch) == 0);
	return ch;
}

static void send_number(share_channel *ch, share_pool *pool, unsigned n)
{
	static unsigned char data[MESSAGE_DATA];
	share_buffer *buffers[MESSAGE_BUFFERS];
	share_outgoing out = message_make(pool, n, buffers, data);

	check_eq(share_send_many(ch, &out, 1, NULL), 1);
}

static unsigned receive(share_channel *ch, share_message *m)
{
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, m));
	message_expect(m);
	return message_number(m);
}

static void expect_number(share_channel *ch, unsigned n)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_eq(receive(ch, &m), n);
	check_ok(share_ack(&m, NULL));
}

static uint32_t in_flight(share_channel *ch)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &stats));
	return stats.in_flight;
}

static uint64_t done(share_channel *ch)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &stats));
	return stats.done;
}

static void start_both(struct sides *s)
{
	far_start(s, OPTIONS("--export-channel", "*"));
	near_start(s, OPTIONS("--import-channel", "q"));
}

struct members {
	struct sides s;
	share_channel *ch; /* of far, a producer */
	share_pool *pool;
};

static void begin(struct members *m, const share_channel_options *options)
{
	sides_begin(&m->s);
	m->pool = open_pool(m->s.far);
	m->ch = open_channel(m->s.far, SHARE_PRODUCER, options);
}

static void finish(struct members *m)
{
	share_channel_close(m->ch);
	share_pool_close(m->pool);
	sides_end(&m->s);
}

Test(bridge_several, a_broadcast_reaches_all_consumers_of_the_mirror_in_order)
{
	share_channel_options options = shape(SHARE_BROADCAST);
	struct members m;
	share_channel *a, *b;

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	b = several_mirror_open(m.s.near, 0);
	until(bridge_said(&m.s.near_bridge, "channel 'q' of far is open") > 0);
	for (unsigned n = 0; n < 50; n++) {
		send_number(m.ch, m.pool, n);
		expect_number(a, n);
		expect_number(b, n);
	}
	share_channel_close(a);
	share_channel_close(b);
	finish(&m);
}

Test(bridge_several, a_message_of_a_queue_is_done_with_when_it_is_over_there)
{
	share_channel_options options = shape(SHARE_QUEUE);
	struct members m;
	share_channel *a;
	share_message held[DEPTH];

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < DEPTH; i++)
			send_number(m.ch, m.pool, round * DEPTH + i);
		for (unsigned i = 0; i < DEPTH; i++)
			check_eq(receive(a, fresh(&held[i])), round * DEPTH + i);
		check_eq(done(m.ch), round * DEPTH);
		for (unsigned i = 0; i < DEPTH; i++) {
			check_ok(share_ack(&held[i], NULL));
			until(done(m.ch) == round * DEPTH + i + 1);
		}
	}
	share_channel_close(a);
	finish(&m);
}

/* Each of its buffers may be kept by itself, as of any message. */
Test(bridge_several, a_buffer_of_it_may_be_kept_over_there)
{
	share_channel_options options = shape(SHARE_QUEUE);
	struct members m;
	share_channel *a;
	share_buffer *kept;
	share_message got = SHARE_MESSAGE_INIT;

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	send_number(m.ch, m.pool, 2); /* of ten */
	check_eq(receive(a, &got), 2);
	kept = share_retain(got.buffers[3]);
	check_ok(share_ack(&got, NULL));
	until(in_flight(m.ch) == 0);
	check(content_is(kept, message_seed(2, 3)));
	check_ok(share_release(kept, NULL));
	share_channel_close(a);
	finish(&m);
}

/* Each number once and in order, though the link is lost while messages are in every state. */
Test(bridge_several, a_lost_link_loses_and_doubles_nothing)
{
	share_channel_options options = shape(SHARE_QUEUE);
	struct members m;
	share_channel *a;
	share_message held[2] = {SHARE_MESSAGE_INIT};
	unsigned next = 0, expected = 0;

	begin(&m, &options);
	far_start(&m.s, OPTIONS("--export-channel", "*", "--timeout", "0.4"));
	near_start(&m.s, OPTIONS("--import-channel", "q", "--timeout", "0.4"));
	a = several_mirror_open(m.s.near, 0);
	for (unsigned round = 0; round < 5; round++) {
		bool odd = round % 2;
		struct bridge_process *p = odd ? &m.s.far_bridge : &m.s.near_bridge;
		struct bridge_process *other = odd ? &m.s.near_bridge : &m.s.far_bridge;
		const char *site = odd ? "far at" : "near at";
		int lost = bridge_said(other, site);

		for (unsigned i = 0; i < DEPTH; i++)
			send_number(m.ch, m.pool, next++);
		check_eq(receive(a, fresh(&held[0])), expected++);
		check_eq(receive(a, fresh(&held[1])), expected++);
		check(kill(p->pid, SIGSTOP) == 0);
		until(bridge_said(other, site) > lost);
		check_ok(share_ack(&held[0], NULL));
		check(kill(p->pid, SIGCONT) == 0);
		for (unsigned i = 2; i < DEPTH; i++)
			expect_number(a, expected++);
		check_ok(share_ack(&held[1], NULL));
	}
	until(in_flight(m.ch) == 0);
	share_channel_close(a);
	finish(&m);
}

/* Whether what was received, if anything was, is new. */
static bool take_one(share_channel *ch, bool *seen)
{
	share_message m = SHARE_MESSAGE_INIT;
	bool is_new = false;
	int r = share_recv(ch, HARNESS_LIMIT_MS, NULL, &m);

	if (r == SHARE_EOWNERDEAD && !m.channel)
		return false; /* the bridge that was killed */
	check_ok(r);
	if (m.error == 0) {
		message_expect(&m);
		check(message_number(&m) < 3 * DEPTH);
		is_new = !seen[message_number(&m)];
		seen[message_number(&m)] = true;
	}
	check_ok(share_ack(&m, NULL));
	return is_new;
}

/* With a bridge that dies it is as with any consumer that does: at least once. */
Test(bridge_several, bridges_that_die_lose_nothing)
{
	share_channel_options options = shape(SHARE_QUEUE);
	struct members m;
	share_channel *a;
	bool seen[3 * DEPTH] = {false};
	unsigned missing = 3 * DEPTH;

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	for (unsigned n = 0; n < DEPTH; n++)
		send_number(m.ch, m.pool, n);
	missing -= take_one(a, seen);
	bridge_kill(&m.s.far_bridge);
	far_start(&m.s, OPTIONS("--export-channel", "*"));
	missing -= take_one(a, seen);
	bridge_kill(&m.s.near_bridge);
	near_start(&m.s, OPTIONS("--import-channel", "q"));
	for (unsigned n = DEPTH; n < 3 * DEPTH; n++)
		send_number(m.ch, m.pool, n), missing -= take_one(a, seen);
	while (missing > 0)
		missing -= take_one(a, seen);
	share_channel_close(a);
	finish(&m);
}

Test(bridge_several, one_that_all_consumers_reject_is_done_with_over_there)
{
	share_channel_options options = shape(SHARE_QUEUE);
	struct members m;
	share_channel *a;
	share_message got = SHARE_MESSAGE_INIT;

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	send_number(m.ch, m.pool, 2);
	for (uint32_t i = 1; i <= 3; i++) {
		check_eq(receive(a, fresh(&got)), 2);
		check_eq(got.deliveries, i);
		check_ok(share_reject(&got, NULL));
	}
	until(in_flight(m.ch) == 0);
	check(bridge_said(&m.s.near_bridge, "was delivered too often") == 1);
	send_number(m.ch, m.pool, 3);
	expect_number(a, 3);
	share_channel_close(a);
	finish(&m);
}

/* The mirror has the history of its source, and who comes later gets it whole; and perhaps one that
 * the mirror has not forgotten yet. */
Test(bridge_several, the_last_ones_are_there_for_who_comes_later)
{
	share_channel_options options = shape(SHARE_BROADCAST), later = shape(SHARE_BROADCAST);
	struct members m;
	share_channel *a, *b;
	share_message got = SHARE_MESSAGE_INIT;
	unsigned first;

	options.history = later.history = 4;
	later.from = SHARE_FROM_OLDEST;
	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	for (unsigned n = 0; n < 10; n++) {
		send_number(m.ch, m.pool, n);
		expect_number(a, n);
	}
	b = open_channel(m.s.near, SHARE_CONSUMER, &later);
	first = receive(b, &got);
	check(first <= 6);
	check_ok(share_ack(&got, NULL));
	for (unsigned n = first + 1; n < 10; n++)
		expect_number(b, n);
	share_channel_close(a);
	share_channel_close(b);
	finish(&m);
}

Test(bridge_several, who_wants_the_latest_alone_gets_it)
{
	share_channel_options options = shape(SHARE_BROADCAST);
	struct members m;
	share_channel *a, *latest;
	share_message got = SHARE_MESSAGE_INIT;

	begin(&m, &options);
	start_both(&m.s);
	a = several_mirror_open(m.s.near, 0);
	latest = several_mirror_open(m.s.near, SHARE_CHANNEL_LATEST);
	for (unsigned n = 0; n < 3 * DEPTH; n++) {
		send_number(m.ch, m.pool, n);
		expect_number(a, n);
	}
	check_eq(receive(latest, &got), 3 * DEPTH - 1);
	check_eq(got.lost, 3 * DEPTH - 1);
	check_ok(share_ack(&got, NULL));
	share_channel_close(a);
	share_channel_close(latest);
	finish(&m);
}

static void send_two(struct members *m, unsigned n, uint64_t size)
{
	share_outgoing out = SHARE_OUTGOING_INIT;
	share_buffer *buffers[2];

	for (unsigned i = 0; i < 2; i++) {
		buffers[i] = allocate(m->pool, size, NULL);
		content_fill(buffers[i], message_seed(n, i));
	}
	out.buffers = buffers;
	out.n_buffers = 2;
	out.flags = SHARE_OUTGOING_GIVE;
	check_eq(share_send_many(m->ch, &out, 1, NULL), 1);
}

/* The second message has no room over there beside the first, and not beside any part of the third,
 * which waits for it though there is room for that. */
Test(bridge_several, who_has_little_memory_over_there_gets_one_after_the_other)
{
	static const uint64_t sizes[] = {MIB * 12 / 10, MIB * 16 / 10, MIB * 4 / 10};
	share_channel_options options = shape(SHARE_QUEUE);
	share_pool_options little = SHARE_POOL_OPTIONS_INIT;
	struct members m;
	share_pool *near;
	share_channel *a;
	share_message got = SHARE_MESSAGE_INIT;

	little.limit = 4 * MIB;
	begin(&m, &options);
	check_ok(share_pool_create(m.s.near, "little", &little, &near));
	far_start(&m.s, OPTIONS("--export-channel", "*"));
	near_start(&m.s, OPTIONS("--import-channel", "q", "--pool", "little"));
	a = several_mirror_open(m.s.near, 0);
	for (unsigned n = 0; n < 3; n++)
		send_two(&m, n, sizes[n]);
	until(bridge_said(&m.s.near_bridge, "channel 'q' has to wait") > 0);
	for (unsigned n = 0; n < 3; n++) {
		check_ok(share_recv(a, HARNESS_LIMIT_MS, NULL, fresh(&got)));
		check_eq(got.n_buffers, 2);
		for (unsigned i = 0; i < 2; i++)
			check(content_is(got.buffers[i], message_seed(n, i)));
		check_ok(share_ack(&got, NULL));
	}
	until(in_flight(m.ch) == 0);
	share_channel_close(a);
	share_pool_close(near);
	finish(&m);
}
