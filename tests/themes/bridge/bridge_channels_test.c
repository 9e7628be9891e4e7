/* SPDX-License-Identifier: MIT */

/* Channels of one side, on the other: in order, each message once, and done with when it is done
 * with over there. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "base/clock.h"
#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_channels, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEPTH        8

static share_channel *open_channel(share_client *c, int role, uint32_t mode)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.mode = mode;
	options.depth = DEPTH;
	options.send_timeout_ms = HARNESS_LIMIT_MS;
	check_ok(share_channel_open(c, "q", role, &options, &ch));
	return ch;
}

static void send_number(share_channel *ch, share_pool *pool, unsigned n)
{
	share_buffer *b = allocate(pool, 1 + n % 7 * 3000, NULL);

	content_fill(b, n);
	check_ok(share_give(ch, b, &n, sizeof(n), NULL));
}

/* The next message that is there: its number. */
static unsigned receive(share_channel *ch, share_message *m)
{
	unsigned n;

	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, m));
	check_eq(m->data_size, sizeof(n));
	memcpy(&n, m->data, sizeof(n));
	check(content_is(m->buffer, n));
	return n;
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

static void start_both(struct sides *s)
{
	far_start(s, OPTIONS("--export-channel", "*"));
	near_start(s, OPTIONS("--import-channel", "q"));
}

Test(bridge_channels, a_broadcast_reaches_all_consumers_of_the_mirror_in_order)
{
	struct sides s;
	share_channel *ch, *a, *b;
	share_pool *pool;

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_BROADCAST);
	start_both(&s);
	a = mirror_open(s.near);
	b = mirror_open(s.near);
	until(bridge_said(&s.near_bridge, "channel 'q' of far is open") > 0);
	for (unsigned n = 0; n < 100; n++) {
		send_number(ch, pool, n);
		expect_number(a, n);
		expect_number(b, n);
	}
	share_channel_close(ch);
	share_channel_close(a);
	share_channel_close(b);
	share_pool_close(pool);
	sides_end(&s);
}

Test(bridge_channels, messages_without_memory_pass_too)
{
	struct sides s;
	share_channel *ch, *a;
	share_message m = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	start_both(&s);
	a = mirror_open(s.near);
	for (unsigned n = 0; n < 3 * DEPTH; n++) {
		check_ok(share_send(ch, NULL, "words", 5, NULL));
		check_ok(share_recv(a, HARNESS_LIMIT_MS, NULL, &m));
		check(!m.buffer && m.data_size == 5 && memcmp(m.data, "words", 5) == 0);
		check_ok(share_ack(&m, NULL));
	}
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(a);
	sides_end(&s);
}

Test(bridge_channels, a_message_of_a_queue_is_done_with_when_it_is_over_there)
{
	struct sides s;
	share_channel *ch, *a;
	share_pool *pool;
	share_message first = SHARE_MESSAGE_INIT, second = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	start_both(&s);
	a = mirror_open(s.near);
	send_number(ch, pool, 1);
	send_number(ch, pool, 2);
	check_eq(receive(a, &first), 1);
	check_eq(receive(a, &second), 2);
	check_eq(in_flight(ch), 2);
	check_ok(share_ack(&first, NULL));
	until(in_flight(ch) == 1);
	check_ok(share_ack(&second, NULL));
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(a);
	share_pool_close(pool);
	sides_end(&s);
}

Test(bridge_channels, who_is_slow_over_there_has_no_more_than_the_channel_is_deep)
{
	struct sides s;
	share_channel *ch, *a;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;
	struct status now;
	unsigned sent = 0, n;
	share_buffer *b;

	sides_begin(&s);
	pool = open_pool(s.far);
	options.mode = SHARE_QUEUE;
	options.depth = DEPTH;
	options.when_full = SHARE_FULL_FAIL;
	check_ok(share_channel_open(s.far, "q", SHARE_PRODUCER, &options, &ch));
	start_both(&s);
	a = mirror_open(s.near);
	check_eq((send_number(ch, pool, sent++), receive(a, &m)), 0);
	for (;;) {
		int r;

		b = allocate(pool, 1 + sent % 7 * 3000, NULL);
		content_fill(b, sent);
		r = share_give(ch, b, &sent, sizeof(sent), NULL);
		if (r != 0) {
			check_error(r, SHARE_EAGAIN);
			check_ok(share_release(b, NULL));
			break;
		}
		sent++;
	}
	status_read(s.near, &now);
	check(now.buffers <= DEPTH + 1); /* and what `sharectl bridges` reads */
	check_ok(share_ack(&m, NULL));
	for (n = 1; n < sent; n++)
		expect_number(a, n);
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(a);
	share_pool_close(pool);
	sides_end(&s);
}

/* Each number once and in order, though the link is lost while messages are in every state. */
Test(bridge_channels, a_lost_link_loses_and_doubles_nothing)
{
	struct sides s;
	share_channel *ch, *a;
	share_pool *pool;
	share_message held[2] = {SHARE_MESSAGE_INIT};
	unsigned next = 0, expected = 0;

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	far_start(&s, OPTIONS("--export-channel", "*", "--timeout", "0.4"));
	near_start(&s, OPTIONS("--import-channel", "q", "--timeout", "0.4"));
	a = mirror_open(s.near);
	for (unsigned round = 0; round < 5; round++) {
		struct bridge_process *p = round % 2 ? &s.far_bridge : &s.near_bridge;
		struct bridge_process *other = round % 2 ? &s.near_bridge : &s.far_bridge;
		const char *site = round % 2 ? "far at" : "near at";
		int lost = bridge_said(other, site);

		for (unsigned i = 0; i < DEPTH; i++)
			send_number(ch, pool, next++);
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
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(a);
	share_pool_close(pool);
	sides_end(&s);
}

/* Whether what was received, if anything was, is new. */
static bool take_one(share_channel *ch, bool *seen)
{
	share_message m = SHARE_MESSAGE_INIT;
	bool is_new = false;
	unsigned n;
	int r = share_recv(ch, HARNESS_LIMIT_MS, NULL, &m);

	if (r == SHARE_EOWNERDEAD && !m.channel)
		return false; /* the bridge that was killed */
	check(r == 0 || m.channel);
	if (r == 0) {
		memcpy(&n, m.data, sizeof(n));
		check(n < 3 * DEPTH && content_is(m.buffer, n));
		is_new = !seen[n];
		seen[n] = true;
	}
	check_ok(share_ack(&m, NULL));
	return is_new;
}

/* With a bridge that dies it is as with any consumer that does: at least once. */
Test(bridge_channels, a_bridge_that_dies_loses_nothing)
{
	struct sides s;
	share_channel *ch, *a;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;
	bool seen[3 * DEPTH] = {false};
	unsigned n, missing = 3 * DEPTH;

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	start_both(&s);
	a = mirror_open(s.near);
	for (n = 0; n < DEPTH; n++)
		send_number(ch, pool, n);
	seen[receive(a, &m)] = true;
	missing--;
	bridge_kill(&s.far_bridge);
	check_ok(share_ack(&m, NULL));
	far_start(&s, OPTIONS("--export-channel", "*"));
	for (unsigned i = 0; i < 2; i++) {
		n = receive(a, &m);
		missing -= !seen[n];
		seen[n] = true;
		check_ok(share_ack(&m, NULL));
	}
	bridge_kill(&s.near_bridge);
	near_start(&s, OPTIONS("--import-channel", "q"));
	for (n = DEPTH; n < 3 * DEPTH; n++)
		send_number(ch, pool, n), missing -= take_one(a, seen);
	while (missing > 0)
		missing -= take_one(a, seen);
	share_channel_close(ch);
	share_channel_close(a);
	share_pool_close(pool);
	sides_end(&s);
}

static void take_one_and_wait(struct child *self, void *data)
{
	share_client *c = child_connect("taker");
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	options.flags = SHARE_CHANNEL_EXISTING;
	check_ok(share_channel_open(c, "q", SHARE_CONSUMER, &options, &ch));
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	child_point_with(self, "took one", &m.deliveries, sizeof(m.deliveries));
}

/* A consumer of far dies with the first message that there is. */
static void die_with_one(void)
{
	struct child *child = child_start(take_one_and_wait, NULL);
	uint32_t deliveries;

	child_wait_with(child, "took one", &deliveries, sizeof(deliveries));
	check_eq(deliveries, 1);
	child_kill(child);
}

/* What harms who takes it is seen for that on the other side, too. */
Test(bridge_channels, deliveries_go_on_where_they_were)
{
	struct sides s;
	share_channel *ch, *a;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	send_number(ch, pool, 1);
	die_with_one();
	send_number(ch, pool, 2);
	start_both(&s);
	a = mirror_open(s.near);
	for (unsigned i = 0; i < 2; i++) {
		unsigned n = receive(a, &m);

		check_eq(m.deliveries, n == 1 ? 2 : 1);
		check_ok(share_ack(&m, NULL));
	}
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(a);
	share_pool_close(pool);
	sides_end(&s);
}

Test(bridge_channels, consumers_are_told_when_the_peer_stays_away)
{
	struct sides s;
	share_channel *ch, *a;
	share_message m = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_BROADCAST);
	far_start(&s, OPTIONS("--export-channel", "*"));
	near_start(&s, OPTIONS("--import-channel", "q", "--grace", "0.2"));
	a = mirror_open(s.near);
	bridge_kill(&s.far_bridge);
	check_error(share_recv(a, HARNESS_LIMIT_MS, NULL, &m), SHARE_EPIPE);
	share_channel_close(ch);
	share_channel_close(a);
	sides_end(&s);
}

/* The bridge ends by itself, and what it had not got rid of is there for others. */
Test(bridge_channels, others_get_the_messages_of_a_peer_that_stays_away)
{
	struct sides s;
	share_channel *ch, *other;
	share_pool *pool;
	share_message m[3] = {SHARE_MESSAGE_INIT};

	sides_begin(&s);
	pool = open_pool(s.far);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	far_start(&s, OPTIONS("--export-channel", "*", "--grace", "0.2"));
	near_start(&s, OPTIONS("--import-channel", "q"));
	other = mirror_open(s.near);
	for (unsigned n = 0; n < 3; n++)
		send_number(ch, pool, n);
	for (unsigned n = 0; n < 3; n++) /* so the bridge has them all, and none is done with */
		check_eq(receive(other, fresh(&m[n])), n);
	bridge_kill(&s.near_bridge);
	bridge_expect_end(&s.far_bridge, EXIT_FAILURE, "near has stayed away");
	for (unsigned n = 0; n < 3; n++)
		check_ok(share_ack(&m[n], NULL));
	share_channel_close(other);

	other = open_channel(s.far, SHARE_CONSUMER, SHARE_QUEUE);
	for (unsigned n = 0; n < 3; n++) {
		check_eq(receive(other, fresh(&m[n])), n);
		check_eq(m[n].deliveries, 2);
		check_ok(share_ack(&m[n], NULL));
	}
	until(in_flight(ch) == 0);
	share_channel_close(ch);
	share_channel_close(other);
	share_pool_close(pool);
	sides_end(&s);
}

/* One peer has stayed away for long, and another one is lost just then. That one has the whole time
 * to come back, too. */
Test(bridge_channels, a_peer_that_stays_away_takes_no_grace_from_another)
{
	const int64_t grace_ms = 3000;
	struct sides s;
	struct bridge_process third;
	share_channel *ch, *a;
	share_message m = SHARE_MESSAGE_INIT;
	int64_t lost;

	sides_begin(&s);
	ch = open_channel(s.far, SHARE_PRODUCER, SHARE_QUEUE);
	far_start(&s, OPTIONS("--export-channel", "*", "--grace", "3"));
	near_start(&s, OPTIONS("--site", "third"));
	third = s.near_bridge;
	near_start(&s, OPTIONS("--import-channel", "q"));
	until(bridge_said(&s.far_bridge, "linked to third") > 0);
	a = mirror_open(s.near);
	check_ok(share_send(ch, NULL, "words", 5, NULL));
	check_ok(share_recv(a, HARNESS_LIMIT_MS, NULL, &m));
	bridge_kill(&s.near_bridge);
	lost = clock_coarse_ms();
	until(clock_coarse_ms() > lost + grace_ms / 3);
	lost = clock_coarse_ms(); /* the bridge's timers begin at the last tick as well */
	bridge_kill(&third);
	bridge_expect_end(&s.far_bridge, EXIT_FAILURE, "near has stayed away");
	check((int64_t)clock_ms() >= lost + grace_ms);
	check_ok(share_ack(&m, NULL));
	share_channel_close(a);
	share_channel_close(ch);
	sides_end(&s);
}
