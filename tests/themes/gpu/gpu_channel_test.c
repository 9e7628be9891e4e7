/* SPDX-License-Identifier: MIT */

/*
 * Channels on CUDA streams: the host waits for nobody's work, the GPU does the waiting, and a
 * message costs a signal of the sender's, a wait and a signal of the receiver's.
 */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/standin/calls.h"
#include "tests/support/channel_work.h"
#include "tests/support/drivers.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"

TestSuite(gpu_channel, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { SENDER, RECEIVER }; /* gates */
#define MESSAGES 20

static void receives(struct child *self, void *data)
{
	share_client *c = child_connect("receiver");
	struct gpu_reading *reading;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, -1, s, &m));
	check_eq(gpu_ordered(m.buffer), SHARE_ORDERED_ON_STREAM);
	reading = gpu_read(s, m.buffer);
	gpu_hold(s, RECEIVER);
	check_ok(share_ack(&m, s));
	check(gpu_is_busy(s));
	check_eq(gpu_stats(c).waits, 1);
	check_eq(gpu_stats(c).signals, 1);
	check_eq(gpu_stats(c).host_waits + gpu_stats(c).host_signals, 0);
	child_point(self, "acknowledged");
	gpu_wait(s);
	gpu_expect(reading, 5);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

Test(gpu_channel, a_message_is_handed_over_and_acknowledged_while_both_streams_are_held_up)
{
	struct child *child = child_start(receives, NULL);
	struct gpu_reading *reading;
	share_buffer *b, *next;
	share_channel *p;
	void *s, *t;

	child_wait(child, "open");
	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	check_ok(share_pool_set_cache(gpu_pool, GPU_BLOCK));
	check_ok(share_alloc(gpu_pool, GPU_BLOCK, s, &b));
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, NULL, &p));
	gpu_hold(s, SENDER);
	gpu_fill(s, b, 5);
	check_ok(share_send(p, b, NULL, 0, s));
	check_ok(share_release(b, s));
	check(gpu_is_busy(s));
	check_eq(gpu_stats(gpu_client).signals, 1);
	child_go(child);
	child_wait(child, "acknowledged");
	/* its only block: taken back from the channel, behind the receiver */
	until(in_flight(p) == 1 && share_alloc(gpu_pool, GPU_BLOCK, t, &next) == 0);
	reading = gpu_read(t, next);
	check(gpu_is_busy(t));
	gpu_open(SENDER);
	gpu_wait(s);
	gpu_expect_held(t, RECEIVER);
	check_eq(in_flight(p), 1);
	gpu_open(RECEIVER);
	gpu_wait(t);
	gpu_expect(reading, 5);
	until(in_flight(p) == 0);
	check_ok(share_release(next, t));
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
	child_go(child);
	child_finish(child);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */

static pid_t agent(share_client *c)
{
	json_t *rows = report(c, "devices");
	pid_t pid = (pid_t)number_of(json_array_get(rows, 0), "agent");

	json_decref(rows);
	return pid;
}

/* Once the test's host waits, the agent dies, and the work that is waited for goes on. */
static void *kill_agent(void *data)
{
	share_client *c = data;
	pid_t dead = agent(c);

	until(gpu_stats(gpu_client).host_waits > 0);
	check_eq(kill(dead, SIGKILL), 0);
	until(agent(c) != dead);
	gpu_open(RECEIVER);
	return NULL;
}

static void receives_on_a_held_stream(struct child *self, void *data)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c = child_connect("receiver");
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	child_point(self, "connected"); /* until the pool is there */
	options.pool = "legacy";
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, &options, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, -1, s, &m));
	gpu_hold(s, RECEIVER);
	check_ok(share_ack(&m, s));
	child_point(self, "acknowledged");
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

static void start_with_faults(void)
{
	skip_unless_standin();
	drivers_prepare();
	gpu_work_start_on("");
}

static void stop_with_faults(void)
{
	gpu_work_stop();
	drivers_done();
}

/* The driver is asked whether the stream can wait, and then does not take the page to wait for. */
Test(gpu_channel_to_host, memory_whose_maker_dies_while_its_user_is_waited_for_is_not_used_again,
     .init = start_with_faults, .fini = stop_with_faults, .timeout = 60)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_channel_options channel = SHARE_CHANNEL_OPTIONS_INIT;
	struct child *child = child_start(receives_on_a_held_stream, NULL);
	share_client *other = connect_as("other");
	share_buffer *b, *next;
	pthread_t killer;
	share_channel *p;
	share_pool *pool;
	void *s;

	options.kind = "legacy";
	options.limit = options.segment_size = GPU_BLOCK;
	check_ok(share_pool_create(gpu_client, "legacy", &options, &pool));
	check_ok(share_pool_set_cache(pool, GPU_BLOCK));
	gpu_use();
	s = gpu_stream();
	channel.pool = "legacy";
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, &channel, &p));
	child_wait(child, "connected");
	child_go(child);
	child_wait(child, "open");
	check_ok(share_alloc(pool, GPU_BLOCK, s, &b));
	check_ok(share_send(p, b, NULL, 0, s));
	check_ok(share_release(b, s));
	child_go(child);
	child_wait(child, "acknowledged");
	drivers_do("cuMemHostRegister_v2 fail CUDA_ERROR_NOT_SUPPORTED");
	check(pthread_create(&killer, NULL, kill_agent, other) == 0);
	child_go(child); /* it has the memory mapped until its stream is done */
	until(share_alloc(pool, GPU_BLOCK, s, &next) == 0);
	check(pthread_join(killer, NULL) == 0);
	check_ok(share_buffer_status(next));
	drivers_do("");
	check_ok(share_release(next, s));
	gpu_stream_destroy(s);
	child_finish(child);
	share_channel_close(p);
	share_pool_close(pool);
	share_disconnect(other);
}

/* ------------------------------------------------------------------------------------------- */

static void receives_many(struct child *self, void *data)
{
	share_client *c = child_connect("receiver");
	share_fence_stats before, after;
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	for (int i = 0; i < MESSAGES; i++) {
		check_ok(share_recv(ch, -1, s, &m));
		if (i == 0)
			before = gpu_stats(c);
		check_ok(share_ack(&m, s));
	}
	after = gpu_stats(c);
	check_eq(after.signals - before.signals, MESSAGES);
	check(after.waits + after.waits_saved - before.waits - before.waits_saved <= MESSAGES - 1);
	check_eq(after.host_waits, 0);
	check_eq(after.host_signals, 0);
	child_point(self, "done");
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

Test(gpu_channel, a_warm_message_costs_a_signal_a_wait_and_a_signal)
{
	struct child *child = child_start(receives_many, NULL);
	share_fence_stats before, after;
	share_channel *p;
	share_buffer *b;
	void *s;

	child_wait(child, "open");
	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(gpu_client, s);
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, NULL, &p));
	child_go(child);
	before = gpu_stats(gpu_client);
	for (int i = 0; i < MESSAGES; i++) {
		gpu_fill(s, b, i);
		check_ok(share_send(p, b, NULL, 0, s));
	}
	after = gpu_stats(gpu_client);
	check_eq(after.signals - before.signals, MESSAGES);
	check_eq(after.waits - before.waits, 0);
	check_eq(after.host_waits, 0);
	child_wait(child, "done");
	until(in_flight(p) == 0);
	check_eq(gpu_stats(gpu_client).signals, after.signals);
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
	child_go(child);
	child_finish(child);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Giving                                                                                      */

/* Its first stream comes after the giver, and the one that acknowledges does not. */
static void acknowledges_on_another_stream(struct child *self, void *data)
{
	share_client *c = child_connect("receiver");
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s, *t;

	(void)data;
	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	check_ok(share_recv(ch, -1, s, &m));
	check_ok(share_ack(&m, t));
	gpu_wait(t);
	child_point(self, "acknowledged");
	gpu_wait(s);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
	share_channel_close(ch);
	share_disconnect(c);
}

Test(gpu_channel, what_was_given_away_is_used_again_after_the_stream_that_gave_it)
{
	struct child *child = child_start(acknowledges_on_another_stream, NULL);
	struct gpu_reading *reading;
	share_buffer *b, *next;
	share_channel *p;
	void *s, *t;

	child_wait(child, "open");
	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	check_ok(share_pool_set_cache(gpu_pool, GPU_BLOCK));
	check_ok(share_alloc(gpu_pool, GPU_BLOCK, s, &b));
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, NULL, &p));
	gpu_hold(s, SENDER);
	gpu_fill(s, b, 5);
	check_ok(share_give(p, b, NULL, 0, s));
	child_go(child);
	child_wait(child, "acknowledged");
	until(in_flight(p) == 0 && share_alloc(gpu_pool, GPU_BLOCK, t, &next) == 0);
	reading = gpu_read(t, next);
	gpu_expect_held(t, SENDER);
	gpu_open(SENDER);
	gpu_wait(t);
	gpu_expect(reading, 5);
	check_ok(share_release(next, t));
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
	child_go(child);
	child_finish(child);
	share_channel_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Every call into the driver, by both sides                                                   */

#define WARM_UP 4

static char calls_file[] = "/tmp/share-calls-XXXXXX";

static void receives_a_counted_one(struct child *self, void *data)
{
	share_client *c = child_connect("receiver");
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, NULL, &ch));
	child_point(self, "open");
	for (int i = 0; i < WARM_UP; i++) {
		check_ok(share_recv(ch, -1, s, &m));
		check_ok(share_ack(&m, s));
		if (i == 0) /* which it had to wait for: from now on it knows the sender's page */
			child_point(self, "first");
	}
	gpu_wait(s);
	child_point(self, "warm");
	check_ok(share_recv(ch, -1, s, &m));
	check_ok(share_ack(&m, s));
	child_point(self, "acknowledged");
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

static void allocate_and_give(share_channel *p, void *s)
{
	share_buffer *b;

	check_ok(share_alloc(gpu_pool, GPU_BLOCK, s, &b));
	check_ok(share_give(p, b, NULL, 0, s));
}

static const char *const names[] = {
#define NAME(symbol) #symbol,
    STANDIN_FUNCTIONS(NAME)
#undef NAME
};

static void expect_calls(const struct standin_calls *before, const struct standin_calls *after)
{
	for (int f = 0; f < STANDIN_FUNCTION_COUNT; f++) {
		uint64_t n = after->count[f] - before->count[f], most = 0;

		switch (f) {
		case STANDIN_cuStreamWriteValue64_v2: /* the signal and the acknowledgement */
			check_eq(n, 2);
			continue;
		case STANDIN_cuStreamWaitValue64_v2: /* the receiver's */
			check_eq(n, 1);
			continue;
		case STANDIN_cuStreamGetId: /* and of the block's last user */
			most = 4;
			break;
		case STANDIN_cuStreamIsCapturing:
		case STANDIN_cuCtxGetCurrent:
			most = 3;
			break;
		}
		if (n > most)
			check_failed(__FILE__, __LINE__, "%s is called %d times", names[f], (int)n);
	}
}

Test(gpu_channel, a_warm_message_makes_three_calls_and_asks_what_each_stream_is_once)
{
	static struct standin_calls before, after;
	struct standin_calls *calls;
	struct child *child;
	share_channel *p;
	void *s;
	int fd = mkostemp(calls_file, O_CLOEXEC);

	skip_unless_standin();
	check(fd >= 0);
	close(fd);
	setenv("SHARE_STANDIN_CALLS", calls_file, 1);
	calls = standin_calls_open(calls_file);
	check(calls);
	child = child_start(receives_a_counted_one, NULL);
	child_wait(child, "open");
	gpu_use();
	s = gpu_stream();
	check_ok(share_pool_set_cache(gpu_pool, GPU_BLOCK));
	check_ok(share_channel_open(gpu_client, "channel", SHARE_PRODUCER, NULL, &p));
	child_go(child);
	gpu_hold(s, RECEIVER);
	allocate_and_give(p, s);
	child_wait(child, "first");
	gpu_open(RECEIVER);
	until(in_flight(p) == 0);
	child_go(child);
	for (int i = 1; i < WARM_UP; i++) {
		allocate_and_give(p, s);
		until(in_flight(p) == 0);
	}
	child_wait(child, "warm");
	gpu_wait(s);
	gpu_hold(s, SENDER);
	memcpy(&before, calls, sizeof(before));
	child_go(child);
	allocate_and_give(p, s);
	child_wait(child, "acknowledged");
	memcpy(&after, calls, sizeof(after));
	gpu_open(SENDER);
	expect_calls(&before, &after);
	child_go(child);
	child_finish(child);
	until(in_flight(p) == 0);
	gpu_stream_destroy(s);
	share_channel_close(p);
	unlink(calls_file);
}
