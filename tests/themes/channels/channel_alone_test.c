/* SPDX-License-Identifier: MIT */

/*
 * Channels go on when the broker is gone. It is killed while a producer gets more memory, each
 * buffer in a segment of its own, and what is sent before and after that reaches all consumers:
 * those that receive as it comes, those that are some messages behind, and those that have received
 * nothing before.
 */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <share/channel.h>

#include "tests/support/kinds.h"

/* the agents end with the broker, which has no keeper here */
#define CONFORMANCE_KINDS kinds_without_legacy
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 250);

#define BUFFERS   24 /* each is sent twice: all of that has room when nobody receives */
#define CONSUMERS 4
#define FOREVER   30000 /* only so that a test which hangs ends */

/* What all processes of the test see. */
struct board {
	atomic_uint allocated, sent;
	atomic_bool gone; /* the broker */
};

struct consumer {
	struct board *board;
	unsigned behind; /* messages that it leaves for later while there is a broker */
	bool writes;
};

static share_channel *join(share_client *c, int role, uint32_t flags)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "test";
	options.depth = 64;
	options.flags = flags;
	check_ok(share_channel_open(c, "channel", role, &options, &ch));
	return ch;
}

struct note {
	unsigned number, buffer;
};
#define END UINT32_MAX /* instead of a buffer */

static void word(char text[32], unsigned buffer)
{
	snprintf(text, 32, "this is buffer %u", buffer);
}

static void send_one(struct board *board, share_channel *ch, share_buffer *b, unsigned buffer)
{
	struct note note = {atomic_load(&board->sent), buffer};

	check_ok(share_send(ch, b, &note, sizeof(note), NULL));
	atomic_fetch_add(&board->sent, 1);
}

/* Keeps all that it allocates, so that each allocation takes another segment. */
static void produce(struct child *self, void *data)
{
	share_client *c = child_connect("producer");
	share_buffer *buffers[BUFFERS];
	share_channel *ch = join(c, SHARE_PRODUCER, 0);
	struct board *board = data;
	share_pool *pool;
	char text[32];
	unsigned n = 0;
	int r;

	check_ok(share_pool_open(c, "test", &pool));
	child_point(self, "joined");
	for (; n < BUFFERS; n++) {
		r = share_alloc(pool, UNIT, NULL, &buffers[n]);
		if (r == SHARE_EDISCONNECTED)
			break;
		check_ok(r);
		atomic_store(&board->allocated, n + 1);
		word(text, n);
		buffer_write(buffers[n], text);
		send_one(board, ch, buffers[n], n);
	}
	until(share_ping(c) == SHARE_EDISCONNECTED);
	for (unsigned i = n; i-- > 0;)
		send_one(board, ch, buffers[i], i);
	send_one(board, ch, NULL, END);
	child_point(self, "sent");
}

/* False when it was the last. */
static bool receive(share_channel *ch, unsigned number)
{
	share_message m = SHARE_MESSAGE_INIT;
	struct note note;
	char text[32];

	check_ok(share_recv(ch, FOREVER, NULL, &m));
	check_eq(m.data_size, sizeof(note));
	memcpy(&note, m.data, sizeof(note));
	check_eq(note.number, number);
	word(text, note.buffer);
	check(note.buffer == END ? !m.buffer : buffer_reads(m.buffer, text));
	check_ok(share_ack(&m, NULL));
	return note.buffer != END;
}

static void consume(struct child *self, void *data)
{
	const struct consumer *me = data;
	const struct board *b = me->board;
	share_client *c = child_connect("consumer");
	share_channel *ch = join(c, SHARE_CONSUMER, me->writes ? SHARE_CHANNEL_WRITABLE : 0);
	unsigned n = 0;

	child_point(self, "joined");
	do {
		until(atomic_load(&b->gone) || atomic_load(&b->sent) > n + me->behind);
	} while (receive(ch, n++));
}

/* Any time from the first message to the last, and anywhere in what the broker does then. */
static void kill_broker(struct board *board, unsigned *seed)
{
	unsigned at = 1 + (unsigned)rand_r(seed) % BUFFERS, n = (unsigned)rand_r(seed) % 100000;

	until(atomic_load(&board->sent) > 0);
	while (atomic_load(&board->allocated) < at)
		sched_yield();
	for (volatile unsigned i = 0; i < n; i++)
		;
	broker_kill();
	atomic_store(&board->gone, true);
}

static void attempt(const char *kind, struct board *board, unsigned seed)
{
	share_pool_options options = OPTIONS;
	struct child *producer, *children[CONSUMERS];
	struct consumer consumers[CONSUMERS];
	share_client *c = connect_as("test");
	share_pool *pool;

	options.segment_size = UNIT;
	pool = conformance_pool(c, kind, options);
	*board = (struct board){0};
	producer = child_start(produce, board);
	child_wait(producer, "joined");
	for (unsigned i = 0; i < CONSUMERS; i++) {
		consumers[i] = (struct consumer){board, i == 1 ? BUFFERS : i * 2, i == 3};
		children[i] = child_start(consume, &consumers[i]);
		child_wait(children[i], "joined");
		child_go(children[i]);
	}
	child_go(producer);
	kill_broker(board, &seed);
	child_wait(producer, "sent");
	for (unsigned i = 0; i < CONSUMERS; i++)
		child_finish(children[i]);
	child_go(producer);
	child_finish(producer);
	share_pool_close(pool);
	share_disconnect(c);
}

ConformanceTest(what_is_sent_reaches_all_consumers_though_the_broker_is_killed)
{
	struct board *board =
	    mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned attempts = is_host(kind) ? 12 : 4;

	check(board != MAP_FAILED);
	for (unsigned seed = 1; seed <= attempts; seed++) {
		fprintf(stderr, "kind %s, seed %u\n", kind, seed);
		attempt(kind, board, seed);
		broker_stop();
		broker_start(NULL);
	}
	munmap(board, sizeof(*board));
}

/* ------------------------------------------------------------------------------------------- */

/* Two that have opened the channel, and done nothing since. */
static void meet(const char *kind, bool producer_first)
{
	static const int roles[] = {SHARE_PRODUCER, SHARE_CONSUMER, SHARE_PRODUCER};
	share_client *c[] = {connect_as("first"), connect_as("second")};
	const int *role = &roles[!producer_first];
	share_channel *ch[2], *to, *from;
	struct note note = {0, 7};
	share_buffer *b;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;

	pool = conformance_pool(c[!producer_first], kind, OPTIONS);
	check_ok(share_alloc(pool, UNIT, NULL, &b));
	for (unsigned i = 0; i < 2; i++)
		ch[i] = join(c[i], role[i], 0);
	from = ch[!producer_first];
	to = ch[producer_first];
	broker_kill();
	buffer_write(b, "it goes on");
	check_ok(share_send(from, b, &note, sizeof(note), NULL));
	check_ok(share_recv(to, FOREVER, NULL, &m));
	check_eq(m.data_size, sizeof(note));
	check(buffer_reads(m.buffer, "it goes on"));
	check_ok(share_ack(&m, NULL));
	share_release(b, NULL);
	for (unsigned i = 0; i < 2; i++)
		share_channel_close(ch[i]);
	share_pool_close(pool);
	for (unsigned i = 0; i < 2; i++)
		share_disconnect(c[i]);
	broker_stop();
	broker_start(NULL);
}

ConformanceTest(whoever_came_first_knows_who_came_second_though_the_broker_is_gone)
{
	meet(kind, true);
	meet(kind, false);
}

/* ------------------------------------------------------------------------------------------- */

/* One that has no room, and waits without a time limit. */
struct blocked {
	share_channel *ch;
	int result;
	pthread_t thread;
};

static share_channel *join_small(share_client *c, int role, uint32_t mode, uint32_t wait_for)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.pool = "default";
	options.mode = mode;
	options.depth = 4;
	options.wait_for = wait_for;
	check_ok(share_channel_open(c, "small", role, &options, &ch));
	return ch;
}

/* Until there is no room, and never. */
static void *send_for_ever(void *data)
{
	struct blocked *b = data;

	do
		b->result = share_send(b->ch, NULL, NULL, 0, NULL);
	while (b->result == 0);
	return NULL;
}

static void *flush(void *data)
{
	struct blocked *b = data;

	b->result = share_channel_flush(b->ch, -1);
	return NULL;
}

static void *drain(void *data)
{
	struct blocked *b = data;

	b->result = share_channel_drain(b->ch, -1);
	return NULL;
}

static void start_blocked(struct blocked *b, share_channel *ch, void *(*what)(void *))
{
	b->ch = ch;
	check_eq(pthread_create(&b->thread, NULL, what, b), 0);
}

static uint64_t sleeps_of(share_channel *ch)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &stats));
	return stats.sleeps;
}

static void expect_disconnected(struct blocked *b)
{
	check_eq(pthread_join(b->thread, NULL), 0);
	check_eq(b->result, SHARE_EDISCONNECTED);
}

TestSuite(alone, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

Test(alone, who_waits_for_room_is_told_that_nobody_can_come_any_more)
{
	static const uint32_t modes[] = {SHARE_QUEUE, SHARE_BROADCAST};

	for (unsigned i = 0; i < 2; i++) {
		share_client *c = connect_as("producer");
		share_channel *ch =
		    join_small(c, SHARE_PRODUCER, modes[i], modes[i] == SHARE_BROADCAST);
		share_channel *waits = join_small(c, SHARE_PRODUCER, modes[i], 0);
		struct blocked sends, flushes, drains;

		start_blocked(&sends, ch, send_for_ever);
		until(sleeps_of(ch) > 0);
		check_ok(share_send(waits, NULL, NULL, 0, NULL));
		start_blocked(&flushes, waits, flush);
		start_blocked(&drains, waits, drain);
		broker_kill();
		expect_disconnected(&sends);
		expect_disconnected(&flushes);
		expect_disconnected(&drains);
		check_eq(share_send(ch, NULL, NULL, 0, NULL), SHARE_EDISCONNECTED);
		share_channel_close(waits);
		share_channel_close(ch);
		share_disconnect(c);
		broker_stop();
		broker_start(NULL);
	}
}

static void consume_nothing(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");

	(void)data;
	join_small(c, SHARE_CONSUMER, SHARE_QUEUE, 0);
	child_point(self, "joined");
}

/* Nobody has told the producer of it but by what it has not read yet. */
Test(alone, who_waits_for_room_waits_for_a_consumer_as_long_as_that_lives)
{
	share_client *c = connect_as("producer");
	share_channel *ch = join_small(c, SHARE_PRODUCER, SHARE_QUEUE, 0);
	struct child *consumer;
	struct blocked sends;

	for (unsigned i = 0; i < 4; i++)
		check_ok(share_send(ch, NULL, NULL, 0, NULL));
	consumer = child_start(consume_nothing, NULL);
	child_wait(consumer, "joined");
	broker_kill();
	/* what waited is in the lane of the consumer, and this waits for room there */
	start_blocked(&sends, ch, send_for_ever);
	until(sleeps_of(ch) > 0);
	child_kill(consumer);
	expect_disconnected(&sends);
	share_channel_close(ch);
	share_disconnect(c);
	broker_stop();
	broker_start(NULL);
}

static void hold_one(struct child *self, void *data)
{
	share_client *c = child_connect("consumer");
	share_channel *ch = join_small(c, SHARE_CONSUMER, SHARE_QUEUE, 0);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	share_channel_close(ch);
	child_point(self, "holds");
	check_ok(share_ack(&m, NULL));
	child_point(self, "acknowledged");
}

/* It has closed the channel, so that nobody is there who could receive anything. */
Test(alone, who_drains_waits_for_a_consumer_as_long_as_that_has_a_message)
{
	share_client *c = connect_as("producer");
	share_channel *ch = join_small(c, SHARE_PRODUCER, SHARE_QUEUE, 0);
	struct child *consumer;

	check_ok(share_send(ch, NULL, NULL, 0, NULL));
	consumer = child_start(hold_one, NULL);
	child_wait(consumer, "holds");
	broker_kill();
	check_error(share_channel_drain(ch, 1), SHARE_ETIMEDOUT);
	check_detail("has yet to acknowledge messages");
	child_go(consumer);
	child_wait(consumer, "acknowledged");
	check_ok(share_channel_drain(ch, HARNESS_LIMIT_MS));
	/* who dies with a message leaves nobody who could acknowledge it */
	child_kill(consumer);
	check_ok(share_send(ch, NULL, NULL, 0, NULL));
	check_error(share_channel_drain(ch, -1), SHARE_EDISCONNECTED);
	share_channel_close(ch);
	share_disconnect(c);
	broker_stop();
	broker_start(NULL);
}
