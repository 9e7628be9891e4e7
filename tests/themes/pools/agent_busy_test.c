/* SPDX-License-Identifier: MIT */

/*
 * Somebody waits in a pool while an agent makes a segment for somebody else. What it waits for has
 * nothing to do with the agent, nor has its time limit: it gets its answer while the agent is still
 * at work. Over the stand-in driver, in whose call the agent stays until it is killed.
 */

#include <signal.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/support/drivers.h"
#include "tests/support/kinds.h"
#include "tests/support/visit.h"

#define MIB  (UINT64_C(1) << 20)
#define HALF MIB /* of a segment */

/* The agent has more time than the test. */
static const char config[] =
    "{\"agent_timeout_ms\": 600000, \"limits\": {\"bytes\": \"8MiB\"}, \"pools\": ["
    "{\"name\": \"device\", \"kind\": \"vmm\", \"limit\": \"64MiB\", \"segment_size\": \"2MiB\", "
    "\"release_threshold\": 0, \"reuse\": \"gate\"}, "
    "{\"name\": \"host\", \"kind\": \"host\", \"limit\": \"64MiB\", \"reuse\": \"gate\"}]}";

static share_client *client;

static void start(void)
{
	skip_unless_standin();
	drivers_prepare();
	kinds_start_on("", config);
	client = connect_as("test");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_uses_devices();
	fixture_stop();
	drivers_done();
}

TestSuite(agent_busy, .timeout = 120);
#define AgentBusy(sentence) Test(agent_busy, sentence, .init = start, .fini = stop)

/* @timeline: 0: nothing is done with it any more. */
static void release(struct raw *r, uint64_t buffer, uint64_t timeline)
{
	struct wire_message m = {.type = WIRE_RELEASE};

	m.release.buffer = buffer;
	m.release.count = 1;
	m.release.timeline = timeline;
	m.release.value = timeline ? 1 : 0;
	raw_ask(r, &m, WIRE_DONE);
}

/* That there is no answer yet is known when a later request has one. */
static void expect_no_answer(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_PING}, WIRE_DONE);
}

/* Asks for memory, for which it may wait for others as long as @patience says. */
static void ask(struct raw *r, const char *pool, uint64_t size, uint32_t patience)
{
	struct wire_message m = {.type = WIRE_ALLOC};

	m.alloc.pool = raw_pool(r, pool);
	m.alloc.size = size;
	m.alloc.patience = patience;
	m.serial = ++r->serial;
	check_eq(raw_send(r, &m), 0);
}

static uint64_t granted(struct raw *r)
{
	check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r->m.type, WIRE_GRANT);
	fd_list_close(&r->fds);
	return r->m.grant.buffer;
}

static void say_goodbye(struct raw *r)
{
	raw_ask(r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(r);
}

/* Asks for more than there is, and the agent stays in the driver's call. */
static void occupy_agent(struct raw *r)
{
	raw_open(r, "maker");
	drivers_do("cuMemCreate hang\n");
	ask(r, "device", HALF, 0);
	expect_no_answer(r);
}

/* The next agent makes what this one was to make. */
static void free_agent(void)
{
	drivers_do("");
	check_eq(kill(agent_there(client), SIGKILL), 0);
}

AgentBusy(who_waits_at_its_limit_is_refused_when_its_own_time_is_over)
{
	static struct raw r, maker;

	raw_open(&r, "raw");
	release(&r, raw_alloc(&r, raw_pool(&r, "host"), 5 * MIB), WIRE_TIMELINE(r.page_id, 1));
	occupy_agent(&maker);
	/* the work on what it has given back may end, but does not in 100 ms */
	ask(&r, "device", 4 * MIB, 101);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_ERROR);
	check_error(r.m.error.error, SHARE_EQUOTA);
	expect_no_answer(&maker);
	free_agent();
	release(&maker, granted(&maker), 0);
	say_goodbye(&maker);
	timeline_signal(r.page, 1, 1);
	say_goodbye(&r);
}

AgentBusy(who_waits_gets_what_another_gives_back)
{
	static struct raw r, maker;
	uint64_t pool, kept, given_back;

	raw_open(&r, "raw");
	pool = raw_pool(&r, "device");
	kept = raw_alloc(&r, pool, HALF);
	given_back = raw_alloc(&r, pool, HALF);
	occupy_agent(&maker);
	release(&r, given_back, 0);
	release(&maker, granted(&maker), 0);
	release(&r, kept, 0);
	free_agent();
	say_goodbye(&maker);
	say_goodbye(&r);
}
