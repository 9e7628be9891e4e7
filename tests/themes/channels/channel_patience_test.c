/* SPDX-License-Identifier: MIT */

/*
 * How long a producer without room waits for consumers: for each as long as the channel has it, but
 * for those of one user that come again and again not each time anew. The clock by which it waits
 * stands still unless the test moves it.
 */

#include <stdatomic.h>
#include <time.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define STALL_MS 2000
#define STEP_MS  50
#define DEPTH    4
#define BOB      4712

static _Atomic int64_t moved_ms;
static share_client *client, *other;
static share_channel *producer, *witness; /* who keeps up, always */
static share_pool *pool;
static share_buffer *frame;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	int64_t ms = 1000000 + moved_ms;

	if (clock != CLOCK_MONOTONIC_COARSE)
		return __real_clock_gettime(clock, t);
	t->tv_sec = ms / 1000;
	t->tv_nsec = ms % 1000 * 1000000;
	return 0;
}

static void start(void)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);

	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
	    "\"access\": [{\"user\": \"*\", \"mode\": \"ro\"}]}]}");
	client = connect_as("producer");
	other = connect_as("consumer");
	pool = open_pool(client);
	frame = allocate(pool, 4096, NULL);
	o.depth = DEPTH;
	o.in_flight = 2 * DEPTH;
	o.stall_ms = STALL_MS;
	producer = open_channel(client, SHARE_PRODUCER, &o);
	witness = open_channel(client, SHARE_CONSUMER, NULL);
}

static void stop(void)
{
	share_channel_close(witness);
	share_channel_close(producer);
	check_ok(share_release(frame, NULL));
	share_pool_close(pool);
	share_disconnect(other);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(channel_patience, .init = start, .fini = stop, .timeout = 60);

static void receive(share_channel *c, share_host_stream *stream)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(c, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, stream));
}

static bool has_room(void)
{
	int r = share_send(producer, frame, NULL, 0, NULL);

	if (r == 0)
		receive(witness, NULL);
	else
		check_error(r, SHARE_EAGAIN);
	return r == 0;
}

/* One message more than there can be without a consumer doing anything; waits for that long at
 * most. */
static int64_t send_too_many(int64_t at_most)
{
	int64_t waited = 0;

	for (int sent = 0; sent <= DEPTH && waited < at_most;) {
		if (has_room()) {
			sent++;
		} else {
			waited += STEP_MS;
			moved_ms += STEP_MS;
		}
	}
	return waited;
}

/* One that does nothing for so long, and goes if it was not left behind; so many times. */
static int64_t idle_readers(int times, int64_t stay_ms)
{
	int64_t waited = 0;

	for (int i = 0; i < times; i++) {
		share_channel *c = open_channel(other, SHARE_CONSUMER, NULL);

		waited += send_too_many(stay_ms);
		share_channel_close(c);
	}
	return waited;
}

Test(channel_patience, who_is_left_behind_and_comes_again_gets_no_more_time)
{
	int64_t first = idle_readers(1, 2 * STALL_MS);

	check(first >= STALL_MS && first <= STALL_MS + 200);
	check(idle_readers(100, 2 * STALL_MS) <= 2 * STALL_MS);
}

Test(channel_patience, who_goes_in_time_and_comes_again_gets_no_more_time)
{
	check(idle_readers(100, STALL_MS / 10 * 9) <= 3 * STALL_MS);
}

Test(channel_patience, who_stays_for_a_moment_each_time_gets_no_more_time)
{
	check(idle_readers(300, STEP_MS) <= 3 * STALL_MS);
}

Test(channel_patience, what_was_waited_for_is_forgotten_in_time)
{
	int64_t waited = idle_readers(50, 2 * STALL_MS);

	moved_ms += 8 * waited;
	check(idle_readers(1, 2 * STALL_MS) >= STALL_MS);
}

Test(channel_patience, who_receives_is_not_left_behind_whatever_was_before)
{
	share_channel *c;

	idle_readers(50, 2 * STALL_MS);
	c = open_channel(other, SHARE_CONSUMER, NULL);
	for (int i = 0; i < DEPTH; i++)
		check(has_room());
	for (int i = 0; i < 50; i++) {
		receive(c, NULL);
		check(has_room());
	}
	share_channel_close(c);
}

static void bob_does_nothing(struct child *self, void *data)
{
	share_channel *c;
	share_client *bob;

	(void)data;
	child_become(BOB, 0);
	bob = child_connect("bob");
	c = open_channel(bob, SHARE_CONSUMER, NULL);
	child_point(self, "there");
	share_channel_close(c);
	share_disconnect(bob);
}

Test(channel_patience, one_user_takes_none_of_anothers)
{
	struct child *bob;

	skip_unless_root();
	idle_readers(50, 2 * STALL_MS);
	bob = child_start(bob_does_nothing, NULL);
	child_wait(bob, "there");
	check(send_too_many(2 * STALL_MS) >= STALL_MS);
	child_go(bob);
	child_finish(bob);
	check(idle_readers(1, 2 * STALL_MS) <= STALL_MS / 8);
}

/* Acknowledges all that may be in flight behind work that does not end. */
static void acknowledge_all(share_channel *c, share_host_stream *stream)
{
	for (int i = 0; i < 2 * DEPTH; i++) {
		check(has_room());
		receive(c, stream);
	}
}

/* The broker is asked for those tickets by a thread of its own. */
Test(channel_patience, work_that_does_not_end_is_waited_for_no_longer)
{
	share_host_stream *stream;
	struct gate *gate = gate_new();
	share_channel *c;

	check_ok(share_host_stream_create(other, &stream));
	gate_hold(gate, stream);
	idle_readers(50, 2 * STALL_MS);
	for (int i = 0; i < 20; i++) {
		c = open_channel(other, SHARE_CONSUMER, NULL);
		acknowledge_all(c, stream);
		if (i % 2 == 0)
			share_channel_close(c);
		until(has_room());
		if (i % 2 != 0)
			share_channel_close(c);
	}
	gate_open(gate);
	share_host_stream_destroy(stream);
	gate_free(gate);
}
