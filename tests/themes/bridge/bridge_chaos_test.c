/* SPDX-License-Identifier: MIT */

/*
 * A producer with one broker, a consumer with the other, a bridge for each and a relay between
 * them, while all of these are killed, the brokers as well, stopped, delayed and cut off in an
 * order that a seed gives. What comes over is whole, each version by itself and none older than the
 * one before; it goes on after each mishap; who is slow costs the other side no more memory than
 * the channel is deep; and at the end nothing is left on either side.
 *
 * SHARE_TEST_SEED is another order; `scripts/soak --bridges` tries many.
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <share/channel.h>

#include "tests/harness/child.h"
#include "tests/harness/status.h"
#include "tests/themes/bridge/bridge_cable.h"
#include "tests/themes/bridge/bridge_relay.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_chaos, .init = fixture_start, .fini = fixture_stop, .timeout = 300);

#define OPTIONS(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define DEPTH         8
#define NAMES         4
#define STEPS         30
#define CABLE_STEPS   20
#define CABLE_TIMEOUT "2" /* seconds, after which a peer that is silent is lost */
#define SEED          17
#define WAIT_MS       20  /* for what may not come, before others have their turn */
#define SIZE_MAX_     200 /* KiB */

/* What the processes tell each other. */
struct board {
	_Atomic uint64_t next; /* number of what is made next: a message, or a version of a name */
	_Atomic uint64_t messages, versions; /* that were seen on the other side */
	_Atomic uint64_t newest[NAMES];      /* of the versions that were seen */
	_Atomic bool full;                   /* the producer finds no room */
	char far[128], near[128];
};

/* ------------------------------------------------------------------------------------------- */
/* What travels: each word says which one it belongs to, and where in it                      */

static uint64_t word(uint64_t number, uint64_t at)
{
	uint64_t x = (number << 20) + at;

	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 31;
}

static uint64_t words_of(uint64_t number)
{
	return 2 + word(number, 1 << 19) % (SIZE_MAX_ * 128);
}

static share_buffer *make(share_pool *pool, uint64_t number)
{
	share_buffer *b = allocate(pool, words_of(number) * 8, NULL);
	uint64_t *p = share_ptr(b);

	p[0] = number;
	for (uint64_t i = 1; i < words_of(number); i++)
		p[i] = word(number, i);
	return b;
}

/* Its number; every byte is looked at. */
static uint64_t examine(share_buffer *b)
{
	const uint64_t *p = share_ptr(b);
	uint64_t number = p[0];

	check_eq(share_size(b), words_of(number) * 8);
	for (uint64_t i = 1; i < words_of(number); i++)
		check_eq(p[i], word(number, i));
	return number;
}

/* ------------------------------------------------------------------------------------------- */
/* The two that use it                                                                         */

static share_client *connect_to(const char *address)
{
	share_client *c;

	check_ok(share_connect(address, &c));
	return c;
}

static void produce(struct child *self, void *data)
{
	struct board *board = data;
	share_client *c = connect_to(board->far);
	share_pool *pool = open_pool(c);
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	(void)self;
	options.mode = SHARE_QUEUE;
	options.depth = DEPTH;
	options.send_timeout_ms = WAIT_MS;
	check_ok(share_channel_open(c, "q", SHARE_PRODUCER, &options, &ch));
	for (;;) {
		uint64_t number = atomic_fetch_add(&board->next, 1);
		share_buffer *b = make(pool, number);
		char name[16];
		int r;

		snprintf(name, sizeof(name), "n%u", (unsigned)(number % NAMES));
		check_ok(share_publish(b, name, NULL));
		r = share_give(ch, b, &number, sizeof(number), NULL);
		atomic_store(&board->full, r != 0);
		if (r != 0) {
			check_error(r, SHARE_ETIMEDOUT);
			check_ok(share_release(b, NULL));
		}
	}
}

/* A bridge, or the producer before it, may have died with it: then it is not good, and said so. */
static bool receive_one(struct board *board, share_channel *ch)
{
	share_message m = SHARE_MESSAGE_INIT;
	int r = share_recv(ch, WAIT_MS, NULL, &m);
	uint64_t number;

	if (r == 0) {
		memcpy(&number, m.data, sizeof(number));
		check_eq(examine(m.buffer), number);
		check(number < board->next);
		atomic_fetch_add(&board->messages, 1);
	}
	if (m.channel)
		check_ok(share_ack(&m, NULL));
	return r != SHARE_ESTALE;
}

static void look_at_names(struct board *board, share_client *c)
{
	for (unsigned i = 0; i < NAMES; i++) {
		share_buffer *b;
		char name[16];
		uint64_t number;

		snprintf(name, sizeof(name), "n%u", i);
		if (share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b) != 0)
			continue;
		number = examine(b);
		check_eq(number % NAMES, i);
		check(number >= board->newest[i] && number < board->next);
		if (number > board->newest[i])
			atomic_fetch_add(&board->versions, 1);
		atomic_store(&board->newest[i], number);
		check_ok(share_release(b, NULL));
	}
}

static void consume(struct child *self, void *data)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	struct board *board = data;
	share_client *c = connect_to(board->near);
	share_channel *ch = NULL;

	(void)self;
	options.flags = SHARE_CHANNEL_EXISTING;
	for (;;) {
		if (!ch && share_channel_open(c, "q", SHARE_CONSUMER, &options, &ch) != 0)
			ch = NULL;
		look_at_names(board, c);
		if (ch && !receive_one(board, ch)) {
			share_channel_close(ch);
			ch = NULL;
		}
	}
}

/* ------------------------------------------------------------------------------------------- */
/* What happens to them                                                                        */

struct chaos {
	struct sides sides;
	struct relay relay;
	struct cable cable;
	struct child *producer, *consumer;
	struct board *board;
	uint64_t random;
};

static uint64_t draw(struct chaos *c)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random;
}

/* Only a cable makes a peer silent without an end of the connection. */
static const char *timeout(const struct chaos *c)
{
	return c->sides.cable ? CABLE_TIMEOUT : "60";
}

static void start_far(struct chaos *c)
{
	far_start(&c->sides,
		  OPTIONS("--export", "n*", "--export-channel", "q", "--timeout", timeout(c)));
}

static void start_near(struct chaos *c)
{
	near_start(&c->sides,
		   OPTIONS("--import", "n*", "--import-channel", "q", "--timeout", timeout(c)));
}

static void kill_producer(struct chaos *c)
{
	child_kill(c->producer);
	c->producer = child_start(produce, c->board);
}

static void kill_consumer(struct chaos *c)
{
	child_kill(c->consumer);
	c->consumer = child_start(consume, c->board);
}

static void kill_far(struct chaos *c)
{
	bridge_kill(&c->sides.far_bridge);
	start_far(c);
}

static void kill_near(struct chaos *c)
{
	bridge_kill(&c->sides.near_bridge);
	start_near(c);
}

static void kill_both(struct chaos *c)
{
	bridge_kill(&c->sides.near_bridge);
	kill_far(c);
	start_near(c);
}

/* SIGKILL for the one that serves now; its keeper starts the next one, which has all of it. */
static void kill_broker(share_client *client)
{
	json_t *rows = report(client, "status");
	int64_t pid = number_of(json_array_get(rows, 0), "pid");

	json_decref(rows);
	check(pid > 1);
	check(kill((pid_t)pid, SIGKILL) == 0);
}

static void kill_far_broker(struct chaos *c)
{
	kill_broker(c->sides.far);
}

static void kill_near_broker(struct chaos *c)
{
	kill_broker(c->sides.near);
}

static void cut(struct chaos *c)
{
	relay_cut(&c->relay);
}

/* While nothing that is said passes, things go on until they cannot. */
static void delay(struct chaos *c)
{
	uint64_t now = c->board->next;

	relay_hold(&c->relay);
	until(c->board->next > now + DEPTH);
	relay_pass(&c->relay);
}

/* What the other side has for a slow one, however much is made meanwhile: messages that fill the
 * channel, those of a bridge before this one, and of each name a version that is published, one
 * that comes, and one that a reader had when it was stopped. */
static void stop_consumer(struct chaos *c)
{
	const int64_t most = 3 * DEPTH + 3 * NAMES + 2;
	struct status now;
	uint64_t made;

	check(kill(c->consumer->pid, SIGSTOP) == 0);
	until(c->board->full);
	made = c->board->next;
	until(c->board->next > made + (uint64_t)most);
	status_read(c->sides.near, &now);
	check(now.buffers <= most);
	check(kill(c->consumer->pid, SIGCONT) == 0);
}

/* A network as it may be from now on. */
static void change_network(struct chaos *c)
{
	struct cable_state *state = c->cable.state;

	state->delay_us = (uint32_t)(draw(c) % 5000);
	state->lost = (uint32_t)(draw(c) % 10000);
	state->bytes_per_ms = 2000 + (uint32_t)(draw(c) % 100000);
}

/* Some packets do not pass, which most links survive. */
static void cut_network(struct chaos *c)
{
	uint64_t dropped = c->cable.state->dropped;

	c->cable.state->cut = true;
	until(c->cable.state->dropped > dropped + 8);
	c->cable.state->cut = false;
}

/* Whether a bridge has a link, as far as it has noticed. */
static bool is_linked(const struct bridge_process *p, const char *site)
{
	char up[32], down[32];

	snprintf(up, sizeof(up), "linked to %s at", site);
	snprintf(down, sizeof(down), "the link to %s at", site);
	return bridge_said(p, up) > bridge_said(p, down);
}

/* Nothing passes any more until both have noticed. One may have lost the link before, as a network
 * that loses packets is slow. */
static void cut_network_for_long(struct chaos *c)
{
	c->cable.state->cut = true;
	until(!is_linked(&c->sides.far_bridge, "near"));
	until(!is_linked(&c->sides.near_bridge, "far"));
	c->cable.state->cut = false;
}

typedef void (*mishap)(struct chaos *);

#define MISHAPS_ANYWHERE                                                               \
	kill_producer, kill_consumer, kill_far, kill_near, kill_both, kill_far_broker, \
	    kill_near_broker, stop_consumer

static const mishap of_a_relay[] = {MISHAPS_ANYWHERE, cut, delay};
static const mishap of_a_cable[] = {MISHAPS_ANYWHERE, change_network, change_network, cut_network,
				    cut_network_for_long};

static void expect_progress(struct chaos *c)
{
	uint64_t messages = c->board->messages, versions = c->board->versions;

	until(c->board->messages > messages + DEPTH && c->board->versions > versions + NAMES);
}

static uint64_t seed(void)
{
	const char *said = getenv("SHARE_TEST_SEED");

	return said && atoll(said) > 0 ? (uint64_t)atoll(said) : SEED;
}

static void begin(struct chaos *c, bool on_a_cable)
{
	struct board *board =
	    mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(board != MAP_FAILED);
	*c = (struct chaos){.board = board, .random = seed() * UINT64_C(0x9e3779b97f4a7c15)};
	board->next = NAMES;
	setenv("SHARE_MAGAZINES", "0", 1); /* what is free is nobody's, so that it can be counted */
	sides_begin(&c->sides);
	snprintf(board->far, sizeof(board->far), "%s", share_address(c->sides.far));
	snprintf(board->near, sizeof(board->near), "%s", share_address(c->sides.near));
	if (on_a_cable) {
		cable_start(&c->cable);
		c->sides.cable = &c->cable;
		snprintf(c->sides.place, sizeof(c->sides.place), CABLE_FAR ":7700");
	}
	start_far(c);
	if (!on_a_cable) {
		relay_start(&c->relay, c->sides.place);
		snprintf(c->sides.way, sizeof(c->sides.way), "%s", c->relay.place);
	}
	start_near(c);
	c->producer = child_start(produce, board);
	c->consumer = child_start(consume, board);
}

/* No process that made or used any of it lives any more. What waits in queues outlives them. */
static void finish(struct chaos *c)
{
	child_kill(c->producer);
	child_kill(c->consumer);
	bridge_stop(&c->sides.near_bridge);
	bridge_stop(&c->sides.far_bridge);
	if (c->sides.cable)
		cable_stop(&c->cable);
	else
		relay_stop(&c->relay);
	settle(c->sides.near, (end_messages(c->sides.near), s.buffers == 0) && s.leases == 0 &&
				  s.names == 0 && s.clients == 1);
	settle(c->sides.far, (end_messages(c->sides.far), s.buffers == 0) && s.leases == 0 &&
				 s.names == 0 && s.clients == 1);
	sides_end(&c->sides);
	munmap(c->board, sizeof(*c->board));
}

static void go_through(struct chaos *c, const mishap *mishaps, size_t n, unsigned steps)
{
	expect_progress(c);
	for (unsigned i = 0; i < steps; i++) {
		mishaps[draw(c) % n](c);
		expect_progress(c);
	}
	finish(c);
}

Test(bridge_chaos, whatever_happens_what_comes_over_is_whole_and_it_goes_on)
{
	struct chaos c;

	begin(&c, false);
	go_through(&c, of_a_relay, sizeof(of_a_relay) / sizeof(of_a_relay[0]), STEPS);
}

Test(bridge_chaos, the_same_over_a_network_that_delays_loses_and_breaks)
{
	struct chaos c;

	if (!cable_is_possible())
		cr_skip_test("this user may not make networks");
	begin(&c, true);
	go_through(&c, of_a_cable, sizeof(of_a_cable) / sizeof(of_a_cable[0]), CABLE_STEPS);
}
