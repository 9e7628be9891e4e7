/* SPDX-License-Identifier: MIT */

/*
 * An agent dies, stands still, or its device is lost, at each step of each request that the broker
 * makes of it. Who has asked for what that is about gets it from the next agent where that is
 * possible, and else an error that says why; who comes afterwards is served; and nothing is left:
 * no memory, neither the broker's nor the device's, no descriptor, no account that is not empty
 * (which the broker looks at itself when it ends).
 *
 * Or it is the broker that dies at that step, and the next one goes on with the same agent: who has
 * asked gets it, and what came of the first time is not left over.
 *
 * The request, as the program makes it, is one row of a table, and what happens to the agent is
 * another. Over the stand-in driver; root only, as memory is zeroed only for another user.
 */

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <share/event.h>

#include "tests/harness/plan.h"
#include "tests/support/drivers.h"
#include "tests/support/free_memory.h"
#include "tests/support/visit.h"
#include "tests/themes/failure/between.h"
#include "tests/themes/pools/conformance.h"
#include "wire/wire.h"

TestSuite(agent_step, .timeout = 180);

/* An agent has to start and to answer in this time, on a busy machine, too. */
#define LIMIT_MS "3000"

static char plan_file[] = "/tmp/share-plan-XXXXXX";
static struct between_plan *plan;
static share_client *client;
static share_pool *pool;

/* ------------------------------------------------------------------------------------------- */
/* What programs ask for. Each returns what the library says; 0: all that it got is good.         */

struct asking {
	const char *name;
	enum wire_type request; /* that the broker makes of the agent for it */
	const char *kind;       /* of the pool "test" */
	const char *call;       /* one of the driver's that the agent makes for it */
	void (*prepare)(void);
	int (*ask)(const char **why);
	/* The program has its answer before the agent is asked, and hears of nothing. */
	bool is_unasked;
	/* Another agent can be asked the same again. */
	bool is_repeatable;
};

static int find_devices(const char **why)
{
	share_pool_options options = OPTIONS;
	share_pool *p;
	int r;

	options.kind = "vmm";
	r = share_pool_create(client, "other", &options, &p);
	*why = share_error_detail();
	if (r == 0)
		share_pool_close(p);
	return r;
}

static int use_memory(const char **why)
{
	share_buffer *b;
	char got[6] = "";
	int r = share_alloc(pool, UNIT, NULL, &b);

	*why = share_error_detail();
	if (r != 0)
		return r;
	r = share_copy_from_host(b, 0, "hello", 6, NULL);
	if (r == 0)
		r = share_copy_to_host(b, 0, got, 6, NULL);
	*why = share_error_detail();
	check(r != 0 || strcmp(got, "hello") == 0);
	check_ok(share_release(b, NULL));
	return r;
}

static void have_used_memory(void)
{
	const char *why;

	check_ok(use_memory(&why));
	settle(client, s.segments == 0);
}

static int use_event(const char **why)
{
	share_event *e;
	int r = share_event_create(client, NULL, &e);

	*why = share_error_detail();
	if (r == 0)
		share_event_release(e);
	return r;
}

static void have_used_event(void)
{
	const char *why;

	check_ok(use_event(&why));
}

struct outcome {
	int result;
	char why[512];
};

static void bob_asks(struct child *self, void *data)
{
	struct outcome o = {.result = 0};
	share_client *c;
	share_buffer *b;
	share_pool *p;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	p = open_test(c);
	o.result = share_alloc(p, UNIT, NULL, &b);
	snprintf(o.why, sizeof(o.why), "%s", share_error_detail());
	if (o.result == 0) {
		buffer_expect(b, 0);
		check_ok(share_release(b, NULL));
	}
	share_pool_close(p);
	share_disconnect(c);
	child_point_with(self, "answered", &o, sizeof(o));
}

static void alice_leaves_something(void)
{
	visit(ALICE, UNIT, 0, 0xaa);
}

static int bob_gets_zeros(const char **why)
{
	struct child *bob = child_start(bob_asks, NULL);
	static struct outcome o;

	child_wait_with(bob, "answered", &o, sizeof(o));
	child_go(bob);
	child_finish(bob);
	*why = o.why;
	return o.result;
}

static const struct asking askings[] = {
    {"look for devices", WIRE_AGENT_DEVICE_GET, "", "cuInit", NULL, find_devices, false, true},
    {"vmm segment", WIRE_AGENT_SEGMENT_CREATE, "vmm", "cuMemCreate", NULL, use_memory, false, true},
    {"another vmm segment", WIRE_AGENT_SEGMENT_CREATE, "vmm", "cuMemExportToShareableHandle",
     have_used_memory, use_memory, false, true},
    {"mempool segment", WIRE_AGENT_SEGMENT_CREATE, "mempool", "cuMemPoolExportPointer", NULL,
     use_memory, false, true},
    {"end of a mempool segment", WIRE_AGENT_SEGMENT_DESTROY, "mempool", "cuMemPoolDestroy", NULL,
     use_memory, true, false},
    {"legacy segment", WIRE_AGENT_SEGMENT_CREATE, "legacy", "cuIpcGetMemHandle", NULL, use_memory,
     false, true},
    {"end of a legacy segment", WIRE_AGENT_SEGMENT_DESTROY, "legacy", "cuMemFree", NULL, use_memory,
     true, false},
    {"pinned segment", WIRE_AGENT_SEGMENT_CREATE, "pinned", "cuMemCreate", NULL, use_memory, false,
     true},
    {"event", WIRE_AGENT_EVENT_CREATE, "", "cuIpcGetEventHandle", NULL, use_event, false, true},
    {"another event", WIRE_AGENT_EVENT_CREATE, "", "cuEventCreate", have_used_event, use_event,
     false, true},
    {"end of an event", WIRE_AGENT_EVENT_DESTROY, "", "cuEventDestroy", NULL, use_event, true,
     false},
    {"zeroing vmm memory", WIRE_AGENT_SCRUB, "vmm", "cuMemsetD8Async", alice_leaves_something,
     bob_gets_zeros, false, false},
    {"zeroing mempool memory", WIRE_AGENT_SCRUB, "mempool", "cuMemsetD8Async",
     alice_leaves_something, bob_gets_zeros, false, false},
    {"zeroing pinned memory", WIRE_AGENT_SCRUB, "pinned", "cuMemsetD8Async", alice_leaves_something,
     bob_gets_zeros, false, false},
};

#define N_ASKINGS (sizeof(askings) / sizeof(askings[0]))

/* ------------------------------------------------------------------------------------------- */
/* What happens to agents                                                                      */

struct mishap {
	const char *name;
	enum between_step step;
	int signal; /* 0: its driver fails for good, with an error that says that the device is lost
		     */
	int times;
	const char *says;
	bool is_the_brokers;
};

static const struct mishap mishaps[] = {
    {"killed before it sees the request", BETWEEN_UNSEEN, SIGKILL, 1, "has ended", false},
    {"killed before its answer", BETWEEN_UNANSWERED, SIGKILL, 1, "has ended", false},
    {"killed behind its answer", BETWEEN_ANSWERED, SIGKILL, 1, NULL, false},
    {"killed, and so is the next one", BETWEEN_UNANSWERED, SIGKILL, 2, "has ended", false},
    {"stopped before it sees the request", BETWEEN_UNSEEN, SIGSTOP, 1,
     "did not answer within " LIMIT_MS " ms", false},
    {"stopped before its answer", BETWEEN_UNANSWERED, SIGSTOP, 1,
     "did not answer within " LIMIT_MS " ms", false},
    {"its device is lost", BETWEEN_UNSEEN, 0, 0, "CUDA_ERROR_ECC_UNCORRECTABLE", false},
    {"without a broker before it sees the request", BETWEEN_UNSEEN, SIGKILL, 1, NULL, true},
    {"without a broker before its answer", BETWEEN_UNANSWERED, SIGKILL, 1, NULL, true},
    {"without a broker behind its answer", BETWEEN_ANSWERED, SIGKILL, 1, NULL, true},
};

#define N_MISHAPS (sizeof(mishaps) / sizeof(mishaps[0]))

static void begin(const struct asking *a, const struct mishap *m)
{
	char line[128];

	if (!m->signal) {
		snprintf(line, sizeof(line), "%s fail CUDA_ERROR_ECC_UNCORRECTABLE\n", a->call);
		drivers_do(line);
		return;
	}
	plan->victim = m->is_the_brokers ? broker_pid() : 0;
	plan->step = m->step;
	plan->signal = m->signal;
	plan->times = m->times;
	plan->request = a->request;
}

static void end(void)
{
	plan->request = 0;
	drivers_do("");
}

/* It happens at all, if perhaps behind the answer that the program has. Segments end when this
 * process has unmapped them, which it does in its next request. */
static void expect_met(const struct asking *a, const struct mishap *m)
{
	bool is_let_go = a->request == WIRE_AGENT_DEVICE_GET; /* when it has answered */
	bool is_met = m->signal && !(is_let_go && m->step == BETWEEN_ANSWERED);

	if (is_met)
		until(share_ping(client) == 0 && plan->met > 0);
	if (m->is_the_brokers) {
		until(!is_met || broker_said("this one goes on") > 0);
		check(broker_said("another one takes over") == 0);
		return;
	}
	if (!is_let_go)
		until(share_ping(client) == 0 && broker_said("another one takes over") > 0);
}

/* Whether a program hears of it. */
static bool is_heard_of(const struct asking *a, const struct mishap *m)
{
	if (a->is_unasked || m->step == BETWEEN_ANSWERED || m->is_the_brokers)
		return false;
	/* who has killed one may have meant the process and not the request */
	return !(m->signal == SIGKILL && a->is_repeatable && m->times == 1);
}

/* Memory of kind legacy is gone with the agent that has just answered: the program hears of it,
 * unless it was done before. */
static bool may_be_gone(const struct asking *a, const struct mishap *m)
{
	return strcmp(a->kind, "legacy") == 0 && !a->is_unasked && !m->is_the_brokers &&
	       m->step == BETWEEN_ANSWERED;
}

/* ------------------------------------------------------------------------------------------- */

static void start(void)
{
	char agent_program[PATH_MAX];
	int fd;

	skip_unless_standin();
	skip_unless_root();
	/* not by /proc, as plan_new() has it: agents have fewer rights than this process */
	fd = mkostemp(plan_file, O_CLOEXEC);
	check(fd >= 0 && ftruncate(fd, sizeof(*plan)) == 0);
	plan = plan_map(fd, sizeof(*plan));
	close(fd);
	drivers_prepare();
	snprintf(agent_program, sizeof(agent_program), "%s/share-agent", getenv("SHARE_TEST_BIN"));
	setenv(BETWEEN_AGENT_VARIABLE, agent_program, 1);
	setenv(BETWEEN_PLAN_VARIABLE, plan_file, 1);
	setenv("SHARE_AGENT", AGENT_BETWEEN, 1);
	/* one event: another one that was left over would be too many */
	kinds_start_on("events=1",
		       "{\"agent_timeout_ms\": " LIMIT_MS ", \"create_pools\": [\"*\"]}");
	fixture_uses_devices();
	/* the driver fails in agents alone: a program to which it fails keeps what it has */
	unsetenv("SHARE_STANDIN_FAULTS");
	free_memory_start();
	client = connect_as("test");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_stop();
	munmap(plan, sizeof(*plan));
	unlink(plan_file);
	free_memory_stop();
	drivers_done();
}

static void ask_until_served(const struct asking *a)
{
	struct deadline d = deadline_in(HARNESS_LIMIT_MS);
	const char *why;

	/* what a look for devices came to is kept for a second */
	while (a->ask(&why) != 0)
		if (a->request != WIRE_AGENT_DEVICE_GET || !deadline_pause(&d))
			check_failed(__FILE__, __LINE__, "%s, afterwards: %s", a->name, why);
}

static void open_pool_of(const struct asking *a)
{
	share_pool_options options = OPTIONS;

	if (!a->kind[0])
		return;
	if (a->request == WIRE_AGENT_SCRUB) {
		pool = scrubbed_pool(client, a->kind);
		return;
	}
	options.limit = 2 * UNIT;
	options.segment_size = UNIT;
	options.release_threshold = SHARE_KEEP_NONE;
	pool = conformance_pool(client, a->kind, options);
}

static void expect_nothing_left(uint64_t free_before)
{
	static const char *const resources[] = {"bytes",  "leases", "segments",
						"unsent", "events", "fences"};

	settle(client, s.clients == 1 && s.buffers == 0 && s.leases == 0);
	share_pool_close(pool);
	pool = NULL;
	settle(client, s.segments == 0 && s.segment_bytes == 0 && s.pools == 1);
	for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++)
		until(used_of(client, resources[i]) == 0);
	/* an agent that was killed has perhaps not ended yet */
	until(free_memory() == free_before);
}

static void try(const struct asking *a, const struct mishap *m)
{
	bool fails = is_heard_of(a, m);
	uint64_t free_before = free_memory();
	pid_t before = 0;
	const char *why;
	int r;

	open_pool_of(a);
	if (a->prepare)
		a->prepare();
	if (a->request != WIRE_AGENT_DEVICE_GET && m->is_the_brokers)
		before = agent(client);
	begin(a, m);
	r = a->ask(&why);
	if (r == SHARE_EOWNERDEAD && may_be_gone(a, m))
		r = 0;
	if (fails != (r != 0) || (r != 0 && (r != SHARE_EDEVICE && r != SHARE_ENODEV)) ||
	    (fails && !strstr(why, m->says)))
		check_failed(__FILE__, __LINE__, "%s, and the agent is %s: %s: %s", a->name,
			     m->name, share_error_name(r), why);
	expect_met(a, m);
	end();
	ask_until_served(a);
	check(before == 0 || agent(client) == before);
	expect_nothing_left(free_before);
}

struct row {
	unsigned asking, mishap;
};

ParameterizedTestParameters(agent_step, what_was_asked_is_done_or_refused_and_nothing_is_left)
{
	static struct row rows[N_ASKINGS * N_MISHAPS];
	size_t n = 0;

	for (unsigned i = 0; i < N_ASKINGS; i++)
		for (unsigned j = 0; j < N_MISHAPS; j++)
			rows[n++] = (struct row){i, j};
	return cr_make_param_array(struct row, rows, n);
}

ParameterizedTest(struct row *row, agent_step,
		  what_was_asked_is_done_or_refused_and_nothing_is_left, .fini = stop)
{
	start();
	try(&askings[row->asking], &mishaps[row->mishap]);
}
