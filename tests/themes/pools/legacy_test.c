/* SPDX-License-Identifier: MIT */

/*
 * Memory of kind legacy when the agent that made it ends: it is gone, and nobody is told that it is
 * good, whoever has it and by whatever way it is asked for. What is not of that agent goes on. The
 * agent is killed, so that the broker may or may not have seen it yet: what a client is told does
 * not depend on that.
 */

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/memory.h"
#include "tests/standin/calls.h"
#include "tests/support/kinds.h"

#define MIB     (UINT64_C(1) << 20)
#define UNIT    (2 * MIB)
#define FOREVER 30000 /* only so that a test which hangs ends */

static const char config[] = "{\"create_pools\": [\"*\"], \"pools\": []}";

static share_client *client;

static void start_on(const char *machine)
{
	skip_unless_standin();
	kinds_start_on(machine, config);
	client = connect_as("test");
}

static void start(void)
{
	start_on("devices=1");
}

static void stop(void)
{
	share_disconnect(client);
	fixture_uses_devices();
	fixture_stop();
}

TestSuite(legacy, .timeout = 120);
#define Legacy(sentence) Test(legacy, sentence, .init = start, .fini = stop)

static share_pool *make_pool(void)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *p;

	options.kind = "legacy";
	options.limit = 64 * MIB;
	options.segment_size = UNIT;
	options.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(client, "test", &options, &p));
	return p;
}

static pid_t agent(void)
{
	json_t *rows = report(client, "devices");
	pid_t pid = (pid_t)number_of(json_array_get(rows, 0), "agent");

	json_decref(rows);
	return pid;
}

static uint64_t segment_of(const share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	return info.segment;
}

static void kill_agent(void)
{
	pid_t dead = agent();

	check_eq(kill(dead, SIGKILL), 0);
	/* dead, and seen to be: the broker has let go of it */
	until(agent() != dead);
}

/* ------------------------------------------------------------------------------------------- */

static void tell(int status, void *data)
{
	*(int *)data = status;
}

static int watched(share_buffer *b)
{
	int status = 1;

	check_ok(share_buffer_watch(b, tell, &status, NULL));
	until(share_dispatch(client) >= 0 && status != 1);
	return status;
}

Legacy(whoever_holds_what_a_dead_agent_made_is_told)
{
	share_pool *p = make_pool();
	share_buffer *b = allocate(p, 100, NULL), *to = allocate(p, 100, NULL);
	share_recipe recipe = SHARE_RECIPE_INIT;
	share_token token;
	char out[6] = "";

	check_ok(share_copy_from_host(b, 0, "hello", 6, NULL));
	check_ok(share_copy_to_host(b, 0, out, 6, NULL));
	check(strcmp(out, "hello") == 0);
	check_ok(share_buffer_status(b));
	check_eq(watched(b), 0);
	kill_agent();
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_detail("gone with its maker");
	check_eq(watched(b), SHARE_EOWNERDEAD);
	check_error(share_copy_to_host(b, 0, out, 6, NULL), SHARE_EOWNERDEAD);
	check_error(share_copy_from_host(b, 0, "x", 1, NULL), SHARE_EOWNERDEAD);
	check_error(share_copy(to, 0, b, 0, 100, NULL), SHARE_EOWNERDEAD);
	check_error(share_publish(b, "name", NULL), SHARE_EOWNERDEAD);
	check_error(share_export(b, NULL, &token), SHARE_EOWNERDEAD);
	check_error(share_get_recipe(b, &recipe), SHARE_EOWNERDEAD);
	check_eq(recipe.fd, -1);
	check_ok(share_release(to, NULL));
	check_ok(share_release(b, NULL));
	settle(client, s.segments == 0);
	share_pool_close(p);
}

/* One that has mapped the segment, or not. */
static void finds_nothing(struct child *self, void *data)
{
	share_client *c = child_connect("other");
	share_buffer *b = NULL;
	bool has_it = *(const bool *)data;

	child_point(self, "begun");
	if (has_it) {
		check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
		check(buffer_reads(b, "content"));
		check_ok(share_release(b, NULL));
	}
	child_point(self, "ready");
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b), SHARE_EOWNERDEAD);
	check_error(share_lookup(c, "name", SHARE_RDWR, 0, NULL, &b), SHARE_EOWNERDEAD);
	share_disconnect(c);
}

static void look_up(bool has_it)
{
	struct child *child = child_start(finds_nothing, &has_it);
	share_pool *p = make_pool();
	share_buffer *b = allocate(p, 100, NULL);

	buffer_write(b, "content");
	check_ok(share_publish(b, "name", NULL));
	child_wait(child, "begun");
	child_go(child);
	child_wait(child, "ready");
	kill_agent();
	child_go(child);
	child_finish(child);
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Legacy(a_name_leads_nobody_to_what_a_dead_agent_made)
{
	look_up(false);
}

Legacy(nor_who_has_found_something_there_before)
{
	look_up(true);
}

static void is_sent_what_is_gone(struct child *self, void *data)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c = child_connect("consumer");
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;

	(void)data;
	options.pool = "test";
	check_ok(share_channel_open(c, "channel", SHARE_CONSUMER, &options, &ch));
	child_point(self, "here");
	check_ok(share_recv(ch, FOREVER, NULL, &m));
	check(!m.buffer);
	check_eq(m.error, SHARE_EOWNERDEAD);
	check_ok(share_ack(&m, NULL));
	check_ok(share_recv(ch, FOREVER, NULL, &m));
	check_eq(m.error, 0);
	check(buffer_reads(m.buffer, "content"));
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

Legacy(a_message_with_what_a_dead_agent_made_says_so_and_the_next_one_arrives)
{
	struct child *child = NULL;
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	share_buffer *b;
	share_pool *p;

	p = make_pool();
	child = child_start(is_sent_what_is_gone, NULL);
	options.pool = "test";
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, &options, &ch));
	child_wait(child, "here");
	b = allocate(p, 100, NULL);
	check_ok(share_give(ch, b, NULL, 0, NULL));
	kill_agent();
	b = allocate(p, 100, NULL);
	buffer_write(b, "content");
	check_ok(share_give(ch, b, NULL, 0, NULL));
	child_go(child);
	child_finish(child);
	share_channel_close(ch);
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */

Legacy(what_is_allocated_afterwards_is_of_the_next_agent)
{
	share_pool *p = make_pool();
	share_buffer *kept = allocate(p, 100, NULL), *given = allocate(p, 100, NULL), *b;
	uint64_t lost = segment_of(kept);

	check_eq(segment_of(given), lost);
	check_ok(share_release(given, NULL));
	kill_agent();
	b = allocate(p, 100, NULL);
	check(segment_of(b) != lost);
	check_ok(share_buffer_status(b));
	buffer_write(b, "content");
	check(buffer_reads(b, "content"));
	/* the segment goes with the last buffer that somebody has in it */
	settle(client, s.segments == 2);
	check_ok(share_release(kept, NULL));
	settle(client, s.segments == 1);
	check_error(share_buffer_status(NULL), SHARE_EINVAL);
	check_ok(share_buffer_status(b));
	check_ok(share_release(b, NULL));
	settle(client, s.segments == 0);
	share_pool_close(p);
}

/* Nothing asks an agent for anything between its death and this. */
Legacy(an_agent_that_the_broker_has_not_seen_die_is_dead_all_the_same)
{
	share_pool *p = make_pool();
	share_buffer *kept = allocate(p, 100, NULL), *b;
	uint64_t lost = segment_of(kept);

	check_eq(kill(agent(), SIGKILL), 0);
	until(share_buffer_status(kept) == SHARE_EOWNERDEAD);
	check_error(share_buffer_status(kept), SHARE_EOWNERDEAD);
	until(share_alloc(p, 100, NULL, &b) == 0);
	check(segment_of(b) != lost);
	check_ok(share_buffer_status(b));
	check_ok(share_release(b, NULL));
	check_ok(share_release(kept, NULL));
	settle(client, s.segments == 0);
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */

Test(legacy, nobody_gets_such_memory_who_has_not_named_it)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p;

	start_on("devices=1,vmm=0,mempool=0");
	check_ok(share_pool_create(client, "any", &options, &p));
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "host") == 0);
	share_pool_close(p);
	p = make_pool();
	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.kind, "legacy") == 0);
	share_pool_close(p);
	stop();
}

/* ------------------------------------------------------------------------------------------- */

static void tell_found(share_buffer *b, int status, void *data)
{
	check_eq(b != NULL, status == 0);
	tell(status, data);
}

/* The broker has answered before the agent died, and what is waited for is done afterwards. */
Test(legacy, a_look_up_that_waits_for_work_finds_nothing_either)
{
	share_pool *p;
	share_buffer *b;
	share_host_stream *busy;
	struct gate *gate;
	int status = 1;

	start_on("devices=1,memops=0"); /* where streams cannot wait */
	gate = gate_new();
	p = make_pool();
	b = allocate(p, 100, NULL);
	check_ok(share_host_stream_create(client, &busy));
	gate_hold(gate, busy);
	check_ok(share_publish(b, "name", busy));
	check_ok(
	    share_lookup_async(client, "name", SHARE_RDONLY, -1, NULL, tell_found, &status, NULL));
	check_ok(share_ping(client));
	check_eq(share_dispatch(client), 1);
	check_eq(status, 1);
	kill_agent();
	gate_open(gate);
	until(share_dispatch(client) >= 0 && status != 1);
	check_eq(status, SHARE_EOWNERDEAD);
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(busy);
	gate_free(gate);
	share_pool_close(p);
	stop();
}

/* Once somebody waits for it. */
struct end_of_agent {
	share_buffer *made;
	pid_t agent;
};

static void end_agent(void *data)
{
	const struct end_of_agent *end = data;
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;

	until(share_fence_get_stats(client, &stats) == 0 && stats.host_waits > 0);
	check_eq(kill(end->agent, SIGKILL), 0);
	until(share_buffer_status(end->made) == SHARE_EOWNERDEAD);
}

Test(legacy, nor_does_who_waits_until_others_are_done_with_it)
{
	struct end_of_agent end;
	share_buffer *b, *found;
	share_client *other;
	share_host_stream *busy;
	share_pool *p;

	start_on("devices=1,memops=0");
	p = make_pool();
	b = allocate(p, 100, NULL);
	check_ok(share_publish(b, "name", NULL));
	other = connect_as("other");
	check_ok(share_host_stream_create(other, &busy));
	check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_unpublish(client, "name"));
	end = (struct end_of_agent){b, agent()};
	check_ok(share_host_stream_launch(busy, end_agent, &end));
	check_ok(share_release(found, busy));
	check_error(share_reclaim(b, -1, NULL), SHARE_EOWNERDEAD);
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(busy);
	share_disconnect(other);
	share_pool_close(p);
	stop();
}
