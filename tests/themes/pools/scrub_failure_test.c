/* SPDX-License-Identifier: MIT */

/*
 * Zeroing memory for its next user, and the driver fails at it, hangs or takes the agent with it;
 * or who asked for it dies meanwhile. Nobody gets memory that is not zero, nobody gets memory that
 * something may still be writing zeros to, and nothing is lost. Over the stand-in driver; root
 * only.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/drivers.h"
#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"

TestSuite(scrub_failure, .timeout = 60);

static share_client *client;

static void start_failing(void)
{
	skip_unless_standin();
	skip_unless_root();
	drivers_prepare();
	/* An agent that takes over has to start and to answer in this time, on a busy machine, too.
	 */
	kinds_start_on("", "{\"agent_timeout_ms\": 5000, \"create_pools\": [\"*\"]}");
	fixture_uses_devices();
	client = connect_as("test");
}

static void stop_failing(void)
{
	fixture_stop();
	drivers_done();
}

static void bob_is_refused(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b = NULL;
	share_pool *p;

	(void)self;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_test(c);
	check_error(share_alloc(p, UNIT, NULL, &b), SHARE_EDEVICE);
	check_detail("what another user left cannot be zeroed");
	check_detail(data);
	check(!b);
	share_pool_close(p);
	share_disconnect(c);
}

/* The driver fails at it, when it has written nothing yet (then @left is still there), or perhaps
 * something; afterwards it is zeroed all the same, and the agent is another one. */
static void expect_refused(const char *kind, const char *fault, const char *says, int left)
{
	share_pool *p = scrubbed_pool(client, kind);
	pid_t before;

	visit(ALICE, UNIT, 0, 0xaa);
	before = agent(client);
	drivers_do(fault);
	child_finish(child_start(bob_is_refused, (void *)(uintptr_t)says));
	drivers_do("");
	settle(client, s.buffers == 0);
	visit(ALICE, UNIT, left, 0xaa);
	visit(BOB, UNIT, 0, 0xbb);
	check(agent(client) != before);
	all_end(client, p);
}

#define FailingTest(sentence) \
	Test(scrub_failure, sentence, .init = start_failing, .fini = stop_failing)

FailingTest(an_agent_that_dies_zeroing_vmm_memory_costs_the_request_and_no_more)
{
	expect_refused("vmm", "cuMemsetD8Async die\n", "the agent has ended", 0xaa);
}

FailingTest(an_agent_that_dies_zeroing_mempool_memory_costs_the_request_and_no_more)
{
	expect_refused("mempool", "cuMemsetD8Async die\n", "the agent has ended", 0xaa);
}

FailingTest(an_agent_that_hangs_zeroing_vmm_memory_costs_the_request_and_no_more)
{
	expect_refused("vmm", "cuMemsetD8Async hang\n", "did not answer within 5000 ms", 0xaa);
}

FailingTest(an_agent_that_hangs_zeroing_mempool_memory_costs_the_request_and_no_more)
{
	expect_refused("mempool", "cuStreamSynchronize hang\n", "did not answer within 5000 ms",
		       ANYTHING);
}

FailingTest(an_agent_whose_driver_breaks_is_replaced)
{
	expect_refused("vmm", "cuStreamSynchronize fail CUDA_ERROR_ILLEGAL_ADDRESS\n",
		       "CUDA_ERROR_ILLEGAL_ADDRESS", ANYTHING);
}

FailingTest(memory_that_cannot_be_imported_is_not_handed_out)
{
	share_pool *p = scrubbed_pool(client, "vmm");

	visit(ALICE, UNIT, 0, 0xaa);
	drivers_do("cuMemImportFromShareableHandle fail CUDA_ERROR_INVALID_VALUE\n");
	child_finish(child_start(bob_is_refused, (void *)(uintptr_t) "CUDA_ERROR_INVALID_VALUE"));
	drivers_do("");
	/* nothing was begun: it is back at once */
	visit(BOB, UNIT, 0, 0xbb);
	all_end(client, p);
}

static void bob_asks(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_test(c);
	child_point(self, "asking");
	share_alloc(p, UNIT, NULL, &b);
	child_point(self, "answered");
}

static void alice_is_refused(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)self, (void)data;
	child_become(ALICE, 0);
	c = child_connect("alice");
	p = open_test(c);
	check_error(share_alloc(p, UNIT, NULL, &b), SHARE_ENOMEM);
	share_pool_close(p);
	share_disconnect(c);
}

/*
 * From being killed to being dead takes a process its time. Here the agent stops on the way: it is
 * traced, and told to at its end.
 */
FailingTest(what_a_killed_agent_was_zeroing_is_nobodys_until_that_process_has_ended)
{
	share_pool *p = scrubbed_pool(client, "vmm");
	pid_t dying;
	int status;

	visit(ALICE, UNIT, 0, 0xaa);
	dying = agent(client);
	if (ptrace(PTRACE_SEIZE, dying, NULL, (void *)PTRACE_O_TRACEEXIT) < 0) {
		all_end(client, p);
		cr_skip_test("an agent cannot be traced here");
	}
	drivers_do("cuMemsetD8Async hang\n");
	child_finish(
	    child_start(bob_is_refused, (void *)(uintptr_t) "did not answer within 5000 ms"));
	drivers_do("");
	check(waitpid(dying, &status, __WALL) == dying);
	if (!WIFSTOPPED(status) || status >> 16 != PTRACE_EVENT_EXIT) {
		settle(client, s.buffers == 0);
		all_end(client, p);
		cr_skip_test("this kernel does not stop who is killed");
	}
	child_finish(child_start(alice_is_refused, NULL));
	check(ptrace(PTRACE_DETACH, dying, NULL, NULL) == 0);
	settle(client, s.buffers == 0);
	visit(BOB, UNIT, 0, 0xbb);
	all_end(client, p);
}

static void die_waiting(const char *kind)
{
	share_pool *p = scrubbed_pool(client, kind);
	struct child *bob;

	visit(ALICE, UNIT, 0, 0xaa);
	drivers_do("cuMemsetD8Async hang\n");
	bob = child_start(bob_asks, NULL);
	child_wait(bob, "asking");
	child_go(bob);
	settle(client, s.buffers == 1);
	child_kill(bob);
	settle(client, s.clients == 1);
	/* who has died does not keep the agent from writing zeros: it is nobody's until that ends
	 */
	child_finish(child_start(alice_is_refused, NULL));
	drivers_do("");
	settle(client, s.buffers == 0);
	visit(BOB, UNIT, 0, 0xbb);
	all_end(client, p);
}

FailingTest(who_dies_while_vmm_memory_is_zeroed_for_it_gives_it_back)
{
	die_waiting("vmm");
}

FailingTest(who_dies_while_mempool_memory_is_zeroed_for_it_gives_it_back)
{
	die_waiting("mempool");
}
