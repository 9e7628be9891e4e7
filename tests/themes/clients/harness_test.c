/* SPDX-License-Identifier: MIT */

/*
 * The harness itself, so that the other tests can be believed: a broker starts and ends, children
 * stop where they are told, and what is left behind is noticed.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

TestSuite(harness, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

Test(harness, a_broker_starts_answers_and_ends)
{
	share_client *c = connect_as("test");

	check_ok(share_ping(c));
	check(strcmp(share_address(c), broker_socket()) == 0);
	settle(c, s.clients == 1 && s.pools == 1 && s.segments == 0);
	share_disconnect(c);
}

Test(harness, a_broker_ends_when_its_lifeline_does)
{
	check_eq(broker_let_go(), 0);
}

Test(harness, a_raw_client_is_a_client)
{
	share_client *c = connect_as("test");
	struct raw r;

	raw_open(&r, "raw");
	check(client_state_is(c, "raw", "ready"));
	raw_close(&r);
	settle(c, s.clients == 1);
	share_disconnect(c);
}

static int answers_what_is_on_no_page(const share_name_info *info, void *data)
{
	(void)info, (void)data;
	return SHARE_EPIPE;
}

Test(harness, a_function_that_returns_what_is_not_on_its_page_ends_the_test, .signal = SIGABRT)
{
	share_client *c = connect_as("test");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);

	check_ok(share_publish(b, "name", NULL));
	/* ctest takes what it says for a failure */
	check(freopen("/dev/null", "w", stderr) != NULL);
	share_list(c, NULL, answers_what_is_on_no_page, NULL);
	_exit(0);
}

static void adds_one(struct child *self, void *data)
{
	int number = 0;

	child_exchange(self, "ask", data, sizeof(int), &number, sizeof(number));
	check_eq(number, 42);
	child_point(self, "done");
}

Test(harness, a_child_goes_from_point_to_point)
{
	int number = 41;
	struct child *c = child_start(adds_one, &number);

	number = 0;
	child_wait_with(c, "ask", &number, sizeof(number));
	number++;
	child_go_with(c, &number, sizeof(number));
	child_wait(c, "done");
	child_go(c);
	child_finish(c);
}

static void waits_for_ever(struct child *self, void *data)
{
	(void)data;
	child_point(self, "here");
	for (;;)
		pause();
}

Test(harness, a_child_is_killed_at_its_point)
{
	struct child *c = child_start(waits_for_ever, NULL);

	child_wait(c, "here");
	child_kill(c);
}

static void fails(struct child *self, void *data)
{
	(void)self, (void)data;
	check(false);
}

Test(harness, a_child_that_fails_is_noticed)
{
	int status = child_status(child_start(fails, NULL));

	check(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}
