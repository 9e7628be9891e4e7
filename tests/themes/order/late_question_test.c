/* SPDX-License-Identifier: MIT */

/*
 * Fences of owners who ended some time ago. The broker cannot remember everybody for ever; what it
 * has forgotten it must not take for finished, as then the data of the dead would pass for good.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"

static const char config[] =
    "{\"limits\": {\"connections\": 10000}, \"pools\": [{\"name\": \"default\", \"kind\": "
    "\"host\"}]}";

static struct gate *gate;
static share_client *client;

static void start(void)
{
	fixture_start_with(config);
	gate = gate_new();
	client = connect_as("asker");
}

static void stop(void)
{
	gate_open(gate);
	share_disconnect(client);
	fixture_stop();
	gate_free(gate);
}

TestSuite(late_question, .init = start, .fini = stop, .timeout = 120);

static void connects(struct child *self, void *data)
{
	share_client *c = child_connect("old one");

	(void)c, (void)data;
	child_point(self, "here");
}

/* Dies owing a fence; the other one was reached. */
static void owes_a_fence(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_host_stream *s;
	share_fence fences[2];

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_fence_record(c, -1, s, &fences[0]));
	check_ok(share_fence_synchronize(c, &fences[0], -1));
	gate_hold(gate, s);
	check_ok(share_fence_record(c, -1, s, &fences[1]));
	child_point_with(self, "recorded", fences, sizeof(fences));
}

#define CROWD 1500

static void is_a_crowd(struct child *self, void *data)
{
	static struct raw r;

	(void)data;
	for (int i = 0; i < CROWD; i++) {
		raw_open(&r, "one of many");
		timeline_unmap(r.page);
	}
	child_point(self, "here");
}

static void let_a_crowd_die(void)
{
	struct child *crowd = child_start(is_a_crowd, NULL);

	child_wait(crowd, "here");
	child_kill(crowd);
}

Test(late_question, about_a_fence_that_a_dead_process_owes_is_never_answered_with_reached)
{
	struct child *oldest = child_start(connects, NULL), *victim;
	share_fence fences[2];

	child_wait(oldest, "here");
	victim = child_start(owes_a_fence, NULL);
	child_wait_with(victim, "recorded", fences, sizeof(fences));
	child_kill(victim);
	settle(client, s.clients == 2);
	check_error(share_fence_query(client, &fences[1]), SHARE_EOWNERDEAD);
	/* more deaths than anybody counts, the last of them of the oldest page */
	for (int i = 0; i < 4; i++) {
		let_a_crowd_die();
		settle(client, s.clients == 2);
		check(share_fence_query(client, &fences[1]) != 0);
	}
	child_kill(oldest);
	settle(client, s.clients == 1);
	check(share_fence_query(client, &fences[1]) != 0);
	check(share_fence_synchronize(client, &fences[1], -1) != 0);
	check(share_fence_wait(client, &fences[1], -1, NULL) != 0);
}

Test(late_question, about_a_fence_of_one_who_said_goodbye_is_answered_while_it_is_remembered)
{
	share_client *c = connect_as("polite one");
	share_host_stream *stream;
	share_fence fence;
	int r;

	check_ok(share_host_stream_create(c, &stream));
	check_ok(share_fence_record(c, -1, stream, &fence));
	share_host_stream_destroy(stream);
	share_disconnect(c);
	check_ok(share_fence_query(client, &fence));
	for (int i = 0; i < 4; i++) {
		let_a_crowd_die();
		settle(client, s.clients == 1);
		r = share_fence_query(client, &fence);
		check(r == 0 || r == SHARE_ESTALE);
	}
}
