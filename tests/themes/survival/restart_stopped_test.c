/* SPDX-License-Identifier: MIT */

/*
 * A broker that stands still is not dead: nothing is started in its place, until it has stood still
 * for hang_ms. Then it is killed, and the next one goes on. And a keeper that stands still only
 * lets those wait for whom it has to keep something, until its deputy has killed it for that and
 * goes on.
 */

#include <string.h>

#include <share/channel.h>

#include "base/system/process.h"
#include "tests/harness/fixture.h"

#define SEGMENT (UINT64_C(2) << 20) /* more than others have: it has one of its own */

static share_client *client, *other;
static share_channel *from, *to;
static int sent;

static void pass_on(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	sent++;
	check_ok(share_send(from, NULL, &sent, sizeof(sent), NULL));
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(*(const int *)m.data, sent);
	check_ok(share_ack(&m, NULL));
}

#define CONFIG(hang_ms)                                                                    \
	"{\"hang_ms\": " hang_ms                                                           \
	", \"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64MiB\", " \
	"\"segment_size\": \"1MiB\", \"release_threshold\": 0, \"access\": [{\"user\": "   \
	"\"*\", \"mode\": \"rw\"}]}]}"

static void start_with(const char *config)
{
	broker_use_program(DYING_BROKER);
	fixture_start_with(config);
	client = connect_as("one");
	other = connect_as("two");
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, NULL, &from));
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, NULL, &to));
	pass_on();
	pass_on();
}

static void start(void)
{
	start_with(CONFIG("0"));
}

static void start_to_hang(void)
{
	start_with(CONFIG("2000"));
}

static void stop(void)
{
	if (!check_has_failed()) {
		share_channel_close(from);
		share_channel_close(to);
		share_disconnect(other);
		share_disconnect(client);
	}
	fixture_stop();
}

TestSuite(restart_stopped, .init = start, .fini = stop, .timeout = 60);
TestSuite(restart_hung, .init = start_to_hang, .fini = stop, .timeout = 60);

static void comes_and_allocates(struct child *self, void *data)
{
	share_client *c;
	share_pool *p;
	share_buffer *b;

	(void)data;
	child_point(self, "comes");
	c = child_connect("child");
	p = open_pool(c);
	b = allocate(p, SEGMENT, NULL);
	memset(share_ptr(b), 0x5a, SEGMENT);
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

static void asks(struct child *self, void *data)
{
	share_client *c = child_connect("child");
	share_pool *p = open_pool(c);

	(void)data;
	child_point(self, "asks");
	share_release(allocate(p, SEGMENT, NULL), NULL);
	share_pool_close(p);
	share_disconnect(c);
}

/* One that is there already, and one that comes. */
static void start_both(struct child *both[2])
{
	both[0] = child_start(asks, NULL);
	both[1] = child_start(comes_and_allocates, NULL);
	child_wait(both[0], "asks");
	child_wait(both[1], "comes");
}

static void finish_both(struct child *both[2])
{
	child_finish(both[0]);
	child_finish(both[1]);
	settle(client, s.clients == 2 && s.buffers == 0);
}

Test(restart_stopped, a_broker_that_stands_still_for_a_while_is_not_replaced)
{
	pid_t pid = broker_pid();
	struct child *both[2];

	start_both(both);
	broker_freeze();
	child_go(both[0]);
	child_go(both[1]);
	for (int i = 0; i < 100; i++)
		pass_on();
	check_eq(broker_pid(), pid);
	broker_thaw();
	finish_both(both);
	check_eq(broker_pid(), pid);
	check_eq(broker_said("has died"), 0);
}

Test(restart_hung, a_broker_that_stands_still_for_long_is_killed_and_replaced)
{
	pid_t pid = broker_pid();
	struct child *both[2];

	start_both(both);
	broker_freeze();
	child_go(both[0]);
	child_go(both[1]);
	for (int i = 0; i < 100; i++)
		pass_on();
	finish_both(both);
	check(broker_pid() != pid);
	check_eq(broker_said("it hangs, and is killed"), 1);
	check_eq(broker_said("has hung, and was killed; this one goes on"), 1);
}

#if !PROCESS_IS_INSTRUMENTED /* a keeper that is has no deputy */
Test(restart_hung, a_keeper_that_stands_still_for_long_is_killed_and_its_deputy_goes_on)
{
	pid_t pid = broker_pid();
	struct child *both[2];

	start_both(both);
	broker_hang_keeper();
	child_go(both[0]);
	child_go(both[1]);
	finish_both(both);
	check_eq(broker_pid(), pid);
	check_eq(broker_said("it hangs, and is killed"), 1);
	check_eq(broker_said("its deputy goes on"), 1);
	broker_kill_serving();
	pass_on();
}
#endif

Test(restart_stopped, a_broker_that_dies_while_it_stands_still_is_replaced)
{
	struct child *both[2];

	start_both(both);
	broker_freeze();
	child_go(both[0]);
	child_go(both[1]);
	pass_on();
	broker_kill_serving();
	finish_both(both);
}

Test(restart_stopped, a_keeper_that_stands_still_is_waited_for)
{
	pid_t pid = broker_pid();
	struct child *both[2];

	start_both(both);
	broker_freeze_keeper();
	child_go(both[0]);
	child_go(both[1]);
	for (int i = 0; i < 100; i++)
		pass_on();
	broker_thaw_keeper();
	finish_both(both);
	check_eq(broker_pid(), pid);
}

Test(restart_stopped, a_broker_that_dies_while_its_keeper_stands_still_is_replaced_later)
{
	struct child *both[2];

	start_both(both);
	broker_kill_serving_for_now();
	child_go(both[0]);
	child_go(both[1]);
	for (int i = 0; i < 100; i++)
		pass_on();
	broker_let_keeper_go_on();
	finish_both(both);
}
