/* SPDX-License-Identifier: MIT */

/*
 * The library when the process is out of memory, or the system says no: whichever allocation or
 * call it is, the answer is a clean error or success, nothing is lost, and the broker knows of
 * nothing that stayed behind.
 *
 * The runs are made by processes of their own (failure_runner.c), as a lost connection is
 * quarantined until its process exits.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/themes/failure/failing.h"

TestSuite(library_failure, .init = fixture_start, .fini = fixture_stop, .timeout = 500);

struct plan {
	enum failing what;
	int error;
	bool all_after;
	unsigned long nth;
};

/* Most of a run is the start and the end of its process. What the broker has not got is with it
 * until the process exits, and would be in the way of the next run. */
static const char *runs_each(enum failing what)
{
	return what & (FAILING_SEND | FAILING_RECVMSG) ? "1" : "24";
}

static void run(struct child *self, void *data)
{
	const struct plan *plan = data;
	char kind[16], nth[16], error[16];

	(void)self;
	snprintf(kind, sizeof(kind), "%d", (int)plan->what);
	snprintf(nth, sizeof(nth), "%lu", plan->nth);
	snprintf(error, sizeof(error), "%d", plan->error);
	execl(FAILURE_RUNNER, FAILURE_RUNNER, broker_socket(), kind, nth, runs_each(plan->what),
	      error, plan->all_after ? "1" : "0", (char *)NULL);
	check_failed(__FILE__, __LINE__, "%s: %s", FAILURE_RUNNER, strerror(errno));
}

/* Lets @plan->nth and some calls after it fail. @plan->nth is the next one then. True while there
 * is one. */
static bool run_in_a_child(struct plan *plan)
{
	int status = child_status(child_start(run, plan)), code = WEXITSTATUS(status);

	if (!WIFEXITED(status) || code < RUNNER_ENDED)
		check_failed(__FILE__, __LINE__,
			     "failure %lu, or one soon after it, ended badly (wait status 0x%x)",
			     plan->nth, status);
	if (code >= RUNNER_PAST_THE_LAST) {
		plan->nth += (unsigned long)(code - RUNNER_PAST_THE_LAST);
		return false;
	}
	plan->nth += (unsigned long)(code - RUNNER_ENDED);
	return true;
}

static size_t channels(share_client *c)
{
	json_t *rows = report(c, "channels");
	size_t n = json_array_size(rows);

	json_decref(rows);
	return n;
}

/* Until the scenario has no such call that could fail. Returns how many it had. */
static unsigned long fail_one_after_the_other(enum failing what, int error, bool all_after)
{
	share_client *c = connect_as("witness");
	struct plan plan = {what, error, all_after, 1};
	bool is_one;

	do {
		is_one = run_in_a_child(&plan);
		settle(c, s.clients == 1);
		end_messages(c);
		settle(c, s.clients == 1 && s.buffers == 0 && s.leases == 0 && s.names == 0 &&
			      s.tokens == 0 && s.pools == 1);
		until(channels(c) == 0);
	} while (is_one);
	share_disconnect(c);
	return plan.nth - 1;
}

Test(library_failure, any_allocation)
{
	check(fail_one_after_the_other(FAILING_MEMORY, ENOMEM, false) > 20);
}

Test(library_failure, any_allocation_and_all_after_it)
{
	check(fail_one_after_the_other(FAILING_MEMORY, ENOMEM, true) > 0);
}

Test(library_failure, any_mapping)
{
	check(fail_one_after_the_other(FAILING_MMAP, ENOMEM, false) > 3);
}

Test(library_failure, any_send)
{
	check(fail_one_after_the_other(FAILING_SEND, ENOBUFS, false) > 20);
}

Test(library_failure, any_send_because_the_broker_is_gone)
{
	check(fail_one_after_the_other(FAILING_SEND, EPIPE, false) > 20);
}

Test(library_failure, any_receive)
{
	check(fail_one_after_the_other(FAILING_RECVMSG, ENOMEM, false) > 20);
}

Test(library_failure, any_receive_because_the_broker_is_gone)
{
	check(fail_one_after_the_other(FAILING_RECVMSG, ECONNRESET, true) > 20);
}

Test(library_failure, the_socket)
{
	check_eq(fail_one_after_the_other(FAILING_SOCKET, EMFILE, false), 1);
}

Test(library_failure, any_descriptor_for_event_loops)
{
	check(fail_one_after_the_other(FAILING_EPOLL, EMFILE, false) > 0);
}

Test(library_failure, the_descriptor_for_wake_ups)
{
	check(fail_one_after_the_other(FAILING_EVENTFD, EMFILE, false) > 0);
}

Test(library_failure, any_look_at_a_segment)
{
	check(fail_one_after_the_other(FAILING_FSTAT, EIO, false) > 0);
}

Test(library_failure, any_thread)
{
	check(fail_one_after_the_other(FAILING_THREAD, EAGAIN, false) > 0);
}
