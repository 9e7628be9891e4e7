/* SPDX-License-Identifier: MIT */

/*
 * The broker is stopped for longer than an agent may take to answer, and goes on. An agent is not
 * blamed for time in which the broker could not have read its answer, nor for time in which it was
 * stopped as well. Over the stand-in driver; root only.
 */

#include <signal.h>
#include <unistd.h>

#include "tests/harness/broker_process.h"
#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"

TestSuite(agent_stopped, .timeout = 120);

/* An agent has to start and to answer in this time, on a busy machine, too. */
#define LIMIT_MS "5000"
/* Longer than that by more than the broker is ever late by itself. */
#define STOPPED_SECONDS 7

static share_client *client;

static void start(void)
{
	skip_unless_standin();
	skip_unless_root();
	/* and it may stand still for as long as it likes */
	kinds_start_on("", "{\"hang_ms\": 0, \"agent_timeout_ms\": " LIMIT_MS
			   ", \"create_pools\": [\"*\"]}");
	fixture_uses_devices();
	client = connect_as("test");
}

#define StoppedTest(sentence) Test(agent_stopped, sentence, .init = start, .fini = fixture_stop)

/* The memory was another user's, so the agent is asked to zero it. */
static void bob_allocates(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_test(c);
	child_point(self, "asking");
	b = allocate(p, UNIT, NULL);
	buffer_expect(b, 0);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* The agent goes on while the broker is stopped, and answers; or only after the broker. */
static void stop_and_go_on(bool answers_meanwhile)
{
	share_pool *p = scrubbed_pool(client, "vmm");
	struct child *bob;
	pid_t asked;

	visit(ALICE, UNIT, 0, 0xaa);
	asked = agent_there(client);
	check(kill(asked, SIGSTOP) == 0);
	bob = child_start(bob_allocates, NULL);
	child_wait(bob, "asking");
	child_go(bob);
	settle(client, s.buffers == 1);
	/* a second answer, so the loop has gone round, and the agent has been asked */
	settle(client, s.buffers == 1);
	broker_freeze();
	if (answers_meanwhile)
		check(kill(asked, SIGCONT) == 0);
	sleep(STOPPED_SECONDS);
	broker_thaw();
	check(kill(asked, SIGCONT) == 0);
	child_finish(bob);
	check(agent(client) == asked);
	check(broker_said("another one takes over") == 0);
	all_end(client, p);
}

StoppedTest(what_an_agent_answered_while_the_broker_was_stopped_counts)
{
	stop_and_go_on(true);
}

StoppedTest(an_agent_that_was_stopped_together_with_the_broker_gets_its_time_again)
{
	stop_and_go_on(false);
}
