/* SPDX-License-Identifier: MIT */

/*
 * What is sent while a GPU still works on it: the bridge waits for that work, and goes on with
 * everything else meanwhile; and what its producer never finished goes nowhere.
 */

#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_work, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define WORK         0 /* gate */

/* Sends a block that becomes full of sevens when the gate is open. */
static void produce(struct child *self, void *data)
{
	share_client *c = child_connect("producer");
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	share_buffer *b;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	options.mode = SHARE_QUEUE;
	check_ok(share_channel_open(c, "q", SHARE_PRODUCER, &options, &ch));
	b = gpu_allocate(c, s);
	gpu_hold(s, WORK);
	gpu_fill(s, b, 7);
	check_ok(share_give(ch, b, NULL, 0, s));
	child_point(self, "sent");
	gpu_wait(s);
	gpu_stream_destroy(s);
	share_channel_close(ch);
	share_disconnect(c);
}

/* "default" of the far side has a single block, and that of the near side is of a GPU, too. */
static share_pool *host, *near_host;

static share_channel *begin(struct sides *s, struct child **producer)
{
	share_pool_options pool_options = SHARE_POOL_OPTIONS_INIT;

	*producer = child_start(produce, NULL);
	sides_begin(s);
	pool_options.kind = "host";
	check_ok(share_pool_create(s->far, "host", &pool_options, &host));
	check_ok(share_pool_create(s->near, "host", &pool_options, &near_host));
	child_wait(*producer, "sent");
	far_start(s, OPTIONS("--pool", "host", "--export", "*", "--export-channel", "q"));
	near_start(s, OPTIONS("--pool", "host", "--import", "*", "--import-channel", "q"));
	return mirror_open(s->near);
}

static void expect_names_pass(struct sides *s, const char *name)
{
	share_buffer *b = allocate(host, 100000, NULL);

	content_fill(b, 1);
	check_ok(share_publish(b, name, NULL));
	check_ok(share_release(b, NULL));
	until(content_at(s->near, name, 100000, 1));
}

static void expect_sevens(share_channel *in)
{
	const unsigned char *bytes;
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_recv(in, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(share_size(m.buffer), GPU_BLOCK);
	bytes = share_ptr(m.buffer);
	for (size_t i = 0; i < GPU_BLOCK; i++)
		check_eq(bytes[i], 7);
	check_ok(share_ack(&m, NULL));
}

/* The bridge gives it back after it has said that the message is lost; what names have is small. */
static void expect_block_comes_back(share_client *far)
{
	settle(far, s.buffer_bytes < (int64_t)GPU_BLOCK);
}

static void finish(struct sides *s, share_channel *in)
{
	share_channel_close(in);
	bridge_stop(&s->near_bridge);
	bridge_stop(&s->far_bridge);
	share_pool_close(host);
	share_pool_close(near_host);
	sides_end(s);
}

Test(bridge_work, the_bridge_waits_for_the_work_and_serves_others_meanwhile)
{
	struct child *producer;
	struct sides s;
	share_channel *in = begin(&s, &producer);
	share_message m = SHARE_MESSAGE_INIT;

	expect_names_pass(&s, "a");
	check_error(share_recv(in, 0, NULL, &m), SHARE_EAGAIN);
	gpu_open(WORK);
	expect_sevens(in);
	child_go(producer);
	child_finish(producer);
	finish(&s, in);
}

Test(bridge_work, what_a_producer_did_not_finish_goes_nowhere)
{
	struct child *producer, *next;
	struct sides s;
	share_channel *in = begin(&s, &producer);

	expect_names_pass(&s, "a");
	child_kill(producer);
	until(bridge_said(&s.far_bridge, "a message of channel 'q' is lost") == 1);
	gpu_open(WORK);
	expect_block_comes_back(s.far);
	next = child_start(produce, NULL);
	child_wait(next, "sent");
	expect_sevens(in);
	child_go(next);
	child_finish(next);
	finish(&s, in);
}

/* Whether a consumer, which is the bridge, has a message of the channel. */
static bool bridge_holds_one(share_client *far)
{
	json_t *rows = report(far, "channels"), *member;
	bool holds = false;
	size_t i;

	json_array_foreach (json_object_get(row_named(rows, "channel", "q"), "members"), i, member)
		holds |= json_integer_value(json_object_get(member, "held")) == 1;
	json_decref(rows);
	return holds;
}

static size_t count_consumers(share_client *far)
{
	json_t *rows = report(far, "channels"), *members, *member;
	size_t i, n = 0;

	members = json_object_get(row_named(rows, "channel", "q"), "members");
	json_array_foreach (members, i, member)
		n += strcmp(json_string_value(json_object_get(member, "role")), "consumer") == 0;
	json_decref(rows);
	return n;
}

/* The only message for a peer that stays away is lost, so there is nothing that others could get.
 */
Test(bridge_work, a_bridge_that_has_nothing_for_a_lost_peer_goes_on)
{
	const char *const far[] = {"--pool", "host", "--export-channel", "q", "--grace",
				   "0.2",    NULL};
	struct child *producer, *next;
	struct bridge_process third;
	struct sides s;
	share_channel *in = begin(&s, &producer);

	bridge_stop(&s.near_bridge);
	bridge_stop(&s.far_bridge);
	share_channel_close(in);
	far_start(&s, far);
	near_start(&s, OPTIONS("--pool", "host", "--site", "third"));
	third = s.near_bridge;
	until(bridge_said(&s.far_bridge, "linked to third") > 0);
	near_start(&s, OPTIONS("--pool", "host", "--import-channel", "q"));
	in = mirror_open(s.near);
	until(bridge_holds_one(s.far));
	bridge_kill(&s.near_bridge);
	until(bridge_said(&s.far_bridge, "the link to near at") > 0);
	child_kill(producer);
	until(bridge_said(&s.far_bridge, "a message of channel 'q' is lost") == 1);
	bridge_stop(&third); /* as long as there is a link, no grace ends */
	until(count_consumers(s.far) == 0);
	gpu_open(WORK);
	expect_block_comes_back(s.far);
	share_channel_close(in);
	next = child_start(produce, NULL);
	child_wait(next, "sent");
	near_start(&s, OPTIONS("--pool", "host", "--import-channel", "q"));
	in = mirror_open(s.near);
	expect_sevens(in);
	child_go(next);
	child_finish(next);
	finish(&s, in);
}
