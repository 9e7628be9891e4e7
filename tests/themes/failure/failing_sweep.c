/* SPDX-License-Identifier: MIT */

/* The broker whose calls fail, the processes that meet it, and the witness. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/admin.h>

#include "tests/harness/fixture.h"
#include "tests/harness/plan.h"
#include "tests/support/visit.h"
#include "tests/themes/failure/failing_sweep.h"
#include "tests/themes/failure/scenario.h"

#define RUNS      20
#define HANG_S    60 /* ends a scenario that hangs: no other meaning */
#define PLAN_ROOM 4096

struct failing_plan *sweep_plan;

/* What a process of a scenario tells the test. */
static struct outcome {
	int failures, disconnects;
} * outcome;

void sweep_prepare(void)
{
	sweep_plan = plan_new(FAILING_PLAN_VARIABLE, PLAN_ROOM);
	outcome = (struct outcome *)((char *)sweep_plan + PLAN_ROOM / 2);
	broker_use_program(FAILING_BROKER);
}

/* ------------------------------------------------------------------------------------------- */

/* As a user of its own, whose account ends with it: it has to be empty then. */
static void play(struct child *self, void *data)
{
	sweep_scenario run = *(const sweep_scenario *)data;

	(void)self;
	alarm(HANG_S);
	scenario_fails_elsewhere(sweep_plan->error);
	if (geteuid() == 0 && run != scenario_devices)
		child_become(ALICE, 0);
	outcome->failures = run();
	outcome->disconnects = scenario_disconnects();
}

void witness_start(struct witness *w)
{
	struct status s;

	w->client = connect_as("witness");
	w->pool = open_pool(w->client);
	w->kept = allocate(w->pool, 5000, NULL);
	memset(share_ptr(w->kept), 0x5a, 5000);
	check_ok(share_publish(w->kept, "witness/kept", NULL));
	status_read(w->client, &s);
	w->clients = s.clients;
}

static size_t rows_of(share_client *c, const char *what)
{
	json_t *rows = report(c, what);
	size_t n = json_array_size(rows);

	json_decref(rows);
	return n;
}

/* A newcomer is served, what is kept is untouched, and of the scenario nothing is left. */
static void expect_all_is_well(const struct witness *w)
{
	share_client *c = connect_as("newcomer");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 5000, NULL), *v;

	check_ok(share_publish(b, "witness/new", NULL));
	check_ok(share_lookup(w->client, "witness/new", SHARE_RDONLY, 0, NULL, &v));
	check_ok(share_release(v, NULL));
	check_ok(share_lookup(c, "witness/kept", SHARE_RDONLY, 0, NULL, &v));
	for (size_t i = 0; i < 5000; i++)
		check(((const unsigned char *)share_ptr(v))[i] == 0x5a);
	check_ok(share_release(v, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
	settle(w->client, s.clients == w->clients && s.leases == 1);
	end_messages(w->client);
	settle(w->client, s.clients == w->clients && s.buffers == 1 && s.leases == 1 &&
			      s.names == 1 && s.tokens == 0);
	until(rows_of(w->client, "channels") == 0 && rows_of(w->client, "events") == 0);
}

void witness_end(struct witness *w)
{
	check_ok(share_release(w->kept, NULL));
	share_pool_close(w->pool);
	share_disconnect(w->client);
}

static size_t log_size(void)
{
	char *text = broker_log();
	size_t n = strlen(text);

	free(text);
	return n;
}

static bool agents_are_lost; /* before each scenario */

void sweep_lose_agents(void)
{
	agents_are_lost = true;
}

static int kill_agent(const char *json, void *data)
{
	json_t *device = json_loads(json, 0, NULL);

	(void)data;
	if (number_of(device, "agent") > 0)
		kill((pid_t)number_of(device, "agent"), SIGKILL);
	json_decref(device);
	return 0;
}

/* That devices could not be looked at is an answer for a second. */
static void lose_agent(share_client *c)
{
	until(share_inspect(c, "devices", kill_agent, NULL) == 0);
}

unsigned long sweep_once(const struct witness *w, sweep_scenario run, unsigned what, int error,
			 bool all_after, unsigned long nth)
{
	size_t said = log_size();
	unsigned long calls;
	int status;

	if (agents_are_lost)
		lose_agent(w->client);
	*outcome = (struct outcome){0};
	failing_plan_set(sweep_plan, what, nth, error, all_after);
	status = child_status(child_start(play, &run));
	calls = sweep_plan->count;
	failing_plan_set(sweep_plan, FAILING_NOTHING, 0, 0, false);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		check_failed(__FILE__, __LINE__,
			     "with call %lu of %lu failing a scenario ended badly (wait status "
			     "0x%x)",
			     nth, calls, status);
	if (outcome->disconnects > 0 && log_size() == said)
		check_failed(__FILE__, __LINE__,
			     "with call %lu failing the broker hung up without a word", nth);
	expect_all_is_well(w);
	return calls;
}

unsigned long sweep_step(unsigned long calls)
{
	const char *full = getenv("SHARE_TEST_FULL");

	return full && *full == '1' ? 1 : calls / RUNS + 1;
}

void sweep(sweep_scenario run, unsigned what, int error, bool all_after)
{
	unsigned long calls, failed = 0, step;
	struct witness w;

	witness_start(&w);
	calls = sweep_once(&w, run, what, error, all_after, 0);
	check(calls > 0 && outcome->failures <= 3);
	step = sweep_step(calls);
	for (unsigned long nth = 1; nth <= calls; nth += step) {
		sweep_once(&w, run, what, error, all_after, nth);
		failed += outcome->failures > 0;
	}
	witness_end(&w);
	fprintf(stderr, "%lu calls, of which every %luth failed; %lu times that was noticed\n",
		calls, step, failed);
}
