/* SPDX-License-Identifier: MIT */

/*
 * The broker dies, and the next one is out of memory, or the system says no to it: whichever call
 * it is, a broker goes on from what there was, if not this one then the next. And when there is no
 * memory for the journal, the broker says so and serves on; when it dies then, everybody is told.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/plan.h"
#include "tests/themes/failure/failing.h"

#define SIZE  4096
#define RUNS  20
#define FIRST 10

static struct failing_plan *plan;

static struct {
	share_client *client, *other;
	share_pool *pool;
	share_buffer *buffer;
	share_channel *from, *to;
	int sent;
} the;

static void pass_on(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	the.sent++;
	check_ok(share_send(the.from, NULL, &the.sent, sizeof(the.sent), NULL));
	check_ok(share_recv(the.to, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(const int *)m.data, the.sent);
	check_ok(share_ack(&m, NULL));
}

static void start(void)
{
	plan = plan_new(FAILING_PLAN_VARIABLE, sizeof(*plan));
	broker_use_program(FAILING_BROKER);
	fixture_start();
	the.client = connect_as("one");
	the.other = connect_as("two");
	the.pool = open_pool(the.client);
	the.buffer = allocate(the.pool, SIZE, NULL);
	memset(share_ptr(the.buffer), 0x5a, SIZE);
	check_ok(share_metadata_set(the.buffer, "{}"));
	check_ok(share_publish(the.buffer, "name", NULL));
	check_ok(share_channel_open(the.client, "channel", SHARE_PRODUCER, NULL, &the.from));
	check_ok(share_channel_open(the.other, "channel", SHARE_CONSUMER, NULL, &the.to));
	pass_on();
}

static void give_up(void)
{
	share_channel_close(the.from);
	share_channel_close(the.to);
	share_release(the.buffer, NULL);
	share_pool_close(the.pool);
	share_disconnect(the.other);
	share_disconnect(the.client);
}

static void stop(void)
{
	failing_plan_set(plan, FAILING_NOTHING, 0, 0, false);
	if (!check_has_failed())
		give_up();
	fixture_stop();
}

TestSuite(restart_failure, .init = start, .fini = stop, .timeout = 600);

static void expect_all_is_there(void)
{
	share_token token;
	share_buffer *found;

	settle(the.client,
	       s.clients == 2 && s.buffers == 1 && s.leases == 1 && s.names == 1 && s.tokens == 0);
	pass_on();
	check_ok(share_lookup(the.other, "name", SHARE_RDONLY, 0, NULL, &found));
	check_eq(((const unsigned char *)share_ptr(found))[SIZE - 1], 0x5a);
	check_ok(share_release(found, NULL));
	check_ok(share_export(the.buffer, NULL, &token));
	check_ok(share_import(the.other, &token, SHARE_RDONLY, NULL, &found));
	check_ok(share_release(found, NULL));
	share_release(allocate(the.pool, SIZE, NULL), NULL);
	share_disconnect(connect_as("later"));
}

/* How many calls of that kind there were until one had taken over. */
static unsigned long restart(unsigned what, int error, unsigned long nth)
{
	int before = broker_said("taken over in");
	unsigned long calls;

	failing_plan_set(plan, what, nth, error, false);
	broker_kill_serving();
	until(broker_said("taken over in") > before);
	calls = plan->count;
	failing_plan_set(plan, FAILING_NOTHING, 0, 0, false);
	expect_all_is_there();
	return calls;
}

static void fail_one_after_the_other(unsigned what, int error)
{
	const char *full = getenv("SHARE_TEST_FULL");
	unsigned long calls = restart(what, error, 0), step = calls / RUNS + 1;

	check(calls > 0);
	if (full && *full == '1')
		step = 1;
	/* the first of them are before there is anything that could be taken apart */
	for (unsigned long nth = 1; nth <= calls; nth += nth < FIRST ? 1 : step)
		restart(what, error, nth);
}

Test(restart_failure, any_allocation)
{
	fail_one_after_the_other(FAILING_MEMORY, ENOMEM);
}

Test(restart_failure, any_mapping)
{
	fail_one_after_the_other(FAILING_MMAP, ENOMEM);
}

Test(restart_failure, any_new_descriptor)
{
	fail_one_after_the_other(
	    FAILING_SOCKET | FAILING_DUP | FAILING_EPOLL | FAILING_EVENTFD | FAILING_OPEN, EMFILE);
}

Test(restart_failure, any_event_of_the_loop)
{
	fail_one_after_the_other(FAILING_EVENT, ENOMEM);
}

Test(restart_failure, any_look_at_a_peer)
{
	fail_one_after_the_other(FAILING_PEER, ENOMEM);
}

/* Nobody has died here: what the kernel has no memory for is told to the keeper a little later. */
Test(restart_failure, any_message_to_the_keeper)
{
	share_buffer *b;

	for (unsigned long nth = 1; nth <= 2; nth++) {
		failing_plan_set(plan, FAILING_SEND, nth, ENOBUFS, false);
		/* a segment of its own, which the keeper gets */
		b = allocate(the.pool, 4 << 20, NULL);
		check(plan->count > nth);
		failing_plan_set(plan, FAILING_NOTHING, 0, 0, false);
		share_release(b, NULL);
		expect_all_is_there();
	}
}

/* ------------------------------------------------------------------------------------------- */

/* Each name is a record, and chunks of them take more memory than there is. */
static void end_the_journal(void)
{
	char name[256];

	memset(name, 'n', sizeof(name) - 1);
	failing_plan_set(plan, FAILING_RESIZE, 1, ENOSPC, true);
	for (int i = 0; broker_said("the journal ends here") == 0; i++) {
		snprintf(name + 200, sizeof(name) - 200, "%d", i);
		check_ok(share_publish(the.buffer, name, NULL));
	}
	failing_plan_set(plan, FAILING_NOTHING, 0, 0, false);
}

static void stop_without_broker(void)
{
	if (!check_has_failed())
		give_up();
	fixture_stop();
}

Test(restart_failure_journal, a_broker_without_one_serves_on_and_is_lost_when_it_dies,
     .init = start, .fini = stop_without_broker, .timeout = 120)
{
	share_buffer *b;

	end_the_journal();
	check_eq(broker_said("the journal ends here (No space left on device)"), 1);
	/* all goes on */
	pass_on();
	b = allocate(the.pool, SIZE, NULL);
	check_ok(share_publish(b, "another", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(the.other, "another", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	share_disconnect(connect_as("later"));
	/* and there is nobody who could take over: not the same names and leases, but none */
	kill(broker_pid(), SIGKILL);
	check_eq(broker_wait(), 1);
	check_error(share_ping(the.client), SHARE_EDISCONNECTED);
	check_error(share_ping(the.other), SHARE_EDISCONNECTED);
	check_eq(broker_said("the journal ended before the broker did"), 1);
}
