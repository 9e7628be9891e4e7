/* SPDX-License-Identifier: MIT */

/*
 * The time of day jumps, for years and all the time, in the broker and in programs
 * (jumping_clock.c, which CTest preloads). Nothing depends on it: what has a time limit ends when
 * that is over, neither before nor never, and ages are what they are.
 */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define SHORT_MS \
	100 /* of which some may be over when it begins: loops look at the clock once a turn */
#define LONG_MS 100000 /* longer than the test may take */

static share_client *client;
static share_pool *pool;

static void start(void)
{
	const char *preloaded = getenv("LD_PRELOAD");

	if (!preloaded || !strstr(preloaded, "jumping_clock"))
		cr_skip_test("needs the clock that jumps (LD_PRELOAD, as CTest has it)");
	setenv("SHARE_TEST_CLOCK_JUMPS", "1", 1);
	broker_drain("100");
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(clock_jump, .init = start, .fini = stop, .timeout = 90);

static void start_with_keeper(void)
{
	start();
}

TestSuite(clock_jump_restart, .init = start_with_keeper, .fini = stop, .timeout = 90);

static int64_t steady_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* After that long, and not before; that it is not never is the limit of the test. */
#define expect_late(call)                                    \
	do {                                                 \
		int64_t begun_ = steady_ms();                \
		check_error(call, SHARE_ETIMEDOUT);          \
		check(steady_ms() - begun_ >= SHORT_MS / 2); \
	} while (0)

/* ------------------------------------------------------------------------------------------- */

Test(clock_jump, the_clock_jumps_here_and_in_the_broker)
{
	time_t one = time(NULL), other = time(NULL);
	char *log = broker_log();
	int year = 1970 + (int)((one + other) / 2 / (365 * 24 * 3600L));

	check(labs((long)(one - other)) > 19 * 365 * 24 * 3600L);
	/* a line begins with the date */
	check(abs(atoi(log) - year) >= 8);
	free(log);
}

Test(clock_jump, what_does_not_happen_is_waited_for_as_long_as_was_said)
{
	share_channel_options o = options(SHARE_QUEUE, SHARE_FULL_BLOCK);
	share_channel *consumer, *producer;
	share_service *caller, *worker;
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	expect_late(share_lookup(client, "nothing", SHARE_RDONLY, SHORT_MS, NULL, &b));

	b = allocate(pool, 4096, NULL);
	check_ok(share_publish(b, "kept", NULL));
	expect_late(share_reclaim(b, SHORT_MS, NULL));
	check_ok(share_unpublish(client, "kept"));
	check_ok(share_release(b, NULL));

	o.depth = o.in_flight = 2;
	o.send_timeout_ms = SHORT_MS;
	o.stall_ms = UINT32_MAX;
	consumer = open_channel(client, SHARE_CONSUMER, &o);
	expect_late(share_recv(consumer, SHORT_MS, NULL, &m));
	producer = open_channel(client, SHARE_PRODUCER, &o);
	send_number(producer, 1);
	send_number(producer, 2);
	expect_late(share_send(producer, NULL, "x", 1, NULL));
	share_channel_close(producer);
	share_channel_close(consumer);

	check_ok(share_service_open(client, "service", SHARE_CALLER, NULL, &caller));
	expect_late(share_call(caller, NULL, "x", 1, SHORT_MS, NULL, &m));
	check_ok(share_service_open(client, "other", SHARE_WORKER, NULL, &worker));
	expect_late(share_next_request(worker, SHORT_MS, NULL, &m));
	share_service_close(worker);
	share_service_close(caller);
}

Test(clock_jump, work_that_is_not_done_is_waited_for_as_long_as_was_said)
{
	struct gate *gate = gate_new();
	share_host_stream *s;
	share_fence fence;

	check_ok(share_host_stream_create(client, &s));
	gate_hold(gate, s);
	check_ok(share_fence_record(client, -1, s, &fence));
	expect_late(share_fence_synchronize(client, &fence, SHORT_MS));
	gate_open(gate);
	check_ok(share_fence_synchronize(client, &fence, LONG_MS));
	share_host_stream_destroy(s);
	gate_free(gate);
}

/* ------------------------------------------------------------------------------------------- */

static void finds_and_receives(struct child *self, void *data)
{
	share_client *c = child_connect("waits");
	share_channel *consumer = open_channel(c, SHARE_CONSUMER, NULL);
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "asking");
	check_ok(share_lookup(c, "later", SHARE_RDONLY, LONG_MS, NULL, &b));
	check_ok(share_release(b, NULL));
	child_point(self, "receiving");
	check_ok(share_recv(consumer, LONG_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
	share_channel_close(consumer);
	share_disconnect(c);
}

Test(clock_jump, what_comes_within_its_time_is_not_late)
{
	struct child *child = child_start(finds_and_receives, NULL);
	share_channel *producer;
	share_buffer *b = allocate(pool, 4096, NULL);

	child_wait(child, "asking");
	child_go(child);
	/* it has waited by then: the broker has seen it wait */
	until(used_of(client, "waits") == 1);
	check_ok(share_publish(b, "later", NULL));
	child_wait(child, "receiving");
	producer = open_channel(client, SHARE_PRODUCER, NULL);
	child_go(child);
	send_number(producer, 7);
	child_finish(child);
	share_channel_close(producer);
	check_ok(share_unpublish(client, "later"));
	check_ok(share_release(b, NULL));
}

Test(clock_jump, tokens_end_when_their_time_is_over)
{
	share_export_options o = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 4096, NULL), *got;
	share_token brief, lasting;
	int64_t begun;
	int r;

	o.uses = SHARE_USES_UNLIMITED;
	o.timeout_ms = LONG_MS;
	check_ok(share_export_with(b, &o, NULL, &lasting));
	o.timeout_ms = SHORT_MS;
	begun = steady_ms();
	check_ok(share_export_with(b, &o, NULL, &brief));
	while ((r = share_import(client, &brief, 0, NULL, &got)) == 0)
		check_ok(share_release(got, NULL));
	check_error(r, SHARE_ENOENT);
	check(steady_ms() - begun >= SHORT_MS / 2);
	check_ok(share_import(client, &lasting, 0, NULL, &got));
	check_ok(share_release(got, NULL));
	check_ok(share_revoke(client, &lasting));
	check_ok(share_release(b, NULL));
}

Test(clock_jump, who_keeps_a_producer_waiting_is_left_behind_in_time)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_BLOCK);
	share_channel *consumer, *producer;
	int64_t begun;

	o.depth = o.in_flight = 2;
	o.stall_ms = SHORT_MS;
	consumer = open_channel(client, SHARE_CONSUMER, &o);
	producer = open_channel(client, SHARE_PRODUCER, &o);
	send_number(producer, 1);
	send_number(producer, 2);
	begun = steady_ms();
	send_number(producer, 3);
	check(steady_ms() - begun >= SHORT_MS / 2);
	share_channel_close(producer);
	share_channel_close(consumer);
}

Test(clock_jump, ages_are_what_they_are)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	json_t *rows = report(client, "leases");
	int64_t age = number_of(json_array_get(rows, 0), "age_ms");

	check(age >= 0 && age < LONG_MS);
	json_decref(rows);
	check_ok(share_release(b, NULL));
}

Test(clock_jump, a_broker_drains_for_as_long_as_was_said)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	int64_t begun = steady_ms();

	check(kill(broker_pid(), SIGTERM) == 0);
	check_eq(broker_wait(), 0);
	check(steady_ms() - begun >= SHORT_MS / 2);
	check(broker_said("as the broker ends") == 1);
	share_release(b, NULL);
}

/* ------------------------------------------------------------------------------------------- */
/* Limits that began under a broker that has died since                                        */

/* Until it serves: a broker that dies before does not count what it had to wait for. */
static void next_broker(void)
{
	broker_kill_serving();
	check_ok(share_ping(client));
}

Test(clock_jump_restart, tokens_end_when_their_time_is_over)
{
	share_export_options o = SHARE_EXPORT_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 4096, NULL), *got;
	share_token brief, lasting;
	int64_t begun;

	o.uses = SHARE_USES_UNLIMITED;
	o.timeout_ms = LONG_MS;
	check_ok(share_export_with(b, &o, NULL, &lasting));
	o.timeout_ms = SHORT_MS;
	begun = steady_ms();
	check_ok(share_export_with(b, &o, NULL, &brief));
	do
		next_broker();
	while (share_import(client, &brief, 0, NULL, &got) == 0 && share_release(got, NULL) == 0);
	check(steady_ms() - begun >= SHORT_MS / 2);
	check_ok(share_import(client, &lasting, 0, NULL, &got));
	check_ok(share_release(got, NULL));
	check_ok(share_revoke(client, &lasting));
	check_ok(share_release(b, NULL));
}

struct answer {
	share_buffer *buffer;
	int error; /* 1: none yet */
};

static void on_answer(share_buffer *b, int error, void *data)
{
	*(struct answer *)data = (struct answer){b, error};
}

Test(clock_jump_restart, who_waits_waits_as_long_as_was_said)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	struct answer brief = {NULL, 1}, lasting = {NULL, 1};
	int64_t begun = steady_ms();

	check_ok(share_lookup_async(client, "never", SHARE_RDONLY, SHORT_MS, NULL, on_answer,
				    &brief, NULL));
	check_ok(share_lookup_async(client, "later", SHARE_RDONLY, LONG_MS, NULL, on_answer,
				    &lasting, NULL));
	/* each broker knows how much of it is left */
	until((next_broker(), share_dispatch(client), brief.error != 1));
	check_error(brief.error, SHARE_ETIMEDOUT);
	check(steady_ms() - begun >= SHORT_MS / 2);
	check_eq(lasting.error, 1);
	check_ok(share_publish(b, "later", NULL));
	until((share_dispatch(client), lasting.error != 1));
	check_ok(lasting.error);
	check_ok(share_release(lasting.buffer, NULL));
	check_ok(share_unpublish(client, "later"));
	check_ok(share_release(b, NULL));
}

Test(clock_jump_restart, ages_are_what_they_are)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	json_t *rows;
	int64_t age;

	next_broker();
	rows = report(client, "leases");
	age = number_of(json_array_get(rows, 0), "age_ms");
	check(age >= 0 && age < LONG_MS);
	json_decref(rows);
	check_ok(share_release(b, NULL));
}
