/* SPDX-License-Identifier: MIT */

/*
 * Who pays for memory that its user has let go: another user who keeps it, in whatever way. Root
 * only, who can be anybody; the user who keeps it is in a process of its own, and may only read.
 */

#include <stdio.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/channel_work.h"

#define BOB   4712
#define FRAME (1 << 20)

static share_client *client;
static share_pool *pool;
static struct gate *gate;

static void start(void)
{
	fixture_start();
	client = connect_as("root");
	gate = gate_new();
}

static void stop(void)
{
	gate_free(gate);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(holder, .init = start, .fini = stop, .timeout = 60);

/* With room for so many frames. */
static void make_pool(uint32_t reuse, uint64_t frames)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;

	o.kind = "host";
	o.limit = o.segment_size = frames * FRAME;
	o.reuse = reuse;
	o.access = "[{\"user\": 4712, \"mode\": \"ro\"}]";
	check_ok(share_pool_create(client, "frames", &o, &pool));
	check_ok(share_pool_set_cache(pool, 0));
}

static share_buffer *publish_frame(void)
{
	share_buffer *b = allocate(pool, FRAME, NULL);

	check_ok(share_publish(b, "frame", NULL));
	return b;
}

/* It is kept by bob alone from now on. */
static void let_go(share_buffer *b)
{
	check_eq(used_by(client, 0, "bytes"), FRAME);
	check_eq(used_by(client, BOB, "bytes"), 0);
	check_ok(share_release(b, NULL));
	/* a name is kept by who has published it */
	check_eq(used_by(client, 0, "bytes"), FRAME);
	check_ok(share_unpublish(client, "frame"));
}

static void expect_payer(uid_t uid)
{
	check_eq(used_by(client, uid, "bytes"), FRAME);
	check_eq(used_by(client, uid ? 0 : BOB, "bytes"), 0);
}

/* ------------------------------------------------------------------------------------------- */

static void bob_keeps_a_name_and_a_token(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;
	share_token token;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_lookup(c, "frame", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_publish(b, "bob's", NULL));
	check_ok(share_export(b, NULL, &token));
	check_ok(share_release(b, NULL));
	check_ok(share_ping(c));
	child_point(self, "keeps both");
	check_ok(share_unpublish(c, "bob's"));
	child_point(self, "keeps the token");
	check_ok(share_revoke(c, &token));
	share_disconnect(c);
}

Test(holder, a_name_or_a_token_is_kept_by_who_has_made_it)
{
	struct child *bob;
	share_buffer *b;

	skip_unless_root();
	make_pool(SHARE_REUSE_CLEAN, 1);
	b = publish_frame();
	bob = child_start(bob_keeps_a_name_and_a_token, NULL);
	child_wait(bob, "keeps both");
	let_go(b);
	expect_payer(BOB);
	child_go(bob);
	child_wait(bob, "keeps the token");
	expect_payer(BOB);
	child_go(bob);
	child_finish(bob);
	settle(client, s.buffers == 0);
	check_eq(used_by(client, BOB, "bytes"), 0);
	share_pool_close(pool);
}

/* Of several that keep it, one pays; who has it again pays again once the others have let it go. */
Test(holder, who_pays_goes_on_paying_until_it_has_nothing_of_it)
{
	struct child *bob;
	share_buffer *b, *again;

	skip_unless_root();
	make_pool(SHARE_REUSE_CLEAN, 1);
	b = publish_frame();
	bob = child_start(bob_keeps_a_name_and_a_token, NULL);
	child_wait(bob, "keeps both");
	let_go(b);
	check_ok(share_lookup(client, "bob's", SHARE_RDONLY, 0, NULL, &again));
	expect_payer(BOB);
	child_go(bob);
	child_wait(bob, "keeps the token");
	expect_payer(BOB);
	child_go(bob);
	child_finish(bob);
	expect_payer(0);
	check_ok(share_release(again, NULL));
	share_pool_close(pool);
}

/* ------------------------------------------------------------------------------------------- */

static void bob_does_not_acknowledge(struct child *self, void *data)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);
	share_channel *ch;
	share_client *c;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	o.flags = SHARE_CHANNEL_EXISTING;
	ch = open_channel(c, SHARE_CONSUMER, &o);
	child_point(self, "is there");
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	child_point(self, "has it");
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

static share_channel *open_producer(void)
{
	share_channel_options o = options(SHARE_BROADCAST, SHARE_FULL_FAIL);

	o.pool = "frames";
	o.depth = 1;
	o.in_flight = 1;
	o.stall_ms = 1;
	return open_channel(client, SHARE_PRODUCER, &o);
}

static struct child *send_to_bob(share_channel *p)
{
	struct child *bob = child_start(bob_does_not_acknowledge, NULL);
	share_buffer *b = allocate(pool, FRAME, NULL);

	child_wait(bob, "is there");
	check_ok(share_give(p, b, NULL, 0, NULL));
	child_go(bob);
	child_wait(bob, "has it");
	return bob;
}

Test(holder, what_a_consumer_that_was_left_behind_has_is_its_own_to_pay_for)
{
	share_channel *p;
	struct child *bob;
	int64_t mine, bobs;

	skip_unless_root();
	make_pool(SHARE_REUSE_CLEAN, 2);
	p = open_producer();
	bob = send_to_bob(p);
	mine = used_by(client, 0, "bytes");
	bobs = used_by(client, BOB, "bytes");
	/* there is one ticket, which is missing until bob is left behind */
	until(share_send(p, NULL, NULL, 0, NULL) == SHARE_OK);
	until(used_by(client, BOB, "bytes") == bobs + FRAME);
	check_eq(used_by(client, 0, "bytes"), mine - FRAME);
	child_go(bob);
	child_finish(bob);
	settle(client, s.buffers == 0);
	share_channel_close(p);
	share_pool_close(pool);
}

/* Bob may not even know that it was sent to him. */
Test(holder, what_a_producer_leaves_in_flight_is_its_own_to_pay_for)
{
	share_channel *p;
	struct child *bob;
	int64_t bobs;

	skip_unless_root();
	make_pool(SHARE_REUSE_CLEAN, 1);
	p = open_producer();
	bob = send_to_bob(p);
	bobs = used_by(client, BOB, "bytes");
	share_channel_close(p);
	settle(client, s.leases == 0 && s.buffers == 1);
	check_eq(used_by(client, 0, "bytes") >= FRAME, true);
	check_eq(used_by(client, BOB, "bytes"), bobs);
	child_go(bob);
	child_finish(bob);
	settle(client, s.buffers == 0);
	share_pool_close(pool);
}

/* ------------------------------------------------------------------------------------------- */

/* Looks at the frame, and lets it go behind work that has yet to be done. */
static void bob_gates(struct child *self, void *data)
{
	share_host_stream *stream;
	share_client *c;
	share_buffer *b;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	check_ok(share_host_stream_create(c, &stream));
	check_ok(share_lookup(c, "frame", SHARE_RDONLY, 0, stream, &b));
	gate_hold(gate, stream);
	check_ok(share_release(b, stream));
	check_ok(share_ping(c));
	child_point_with(self, "gates it", &(pid_t){getpid()}, sizeof(pid_t));
	share_host_stream_destroy(stream);
	share_disconnect(c);
}

static void expect_refusal_by(uint32_t reuse)
{
	share_buffer *b, *next = NULL;
	struct child *bob;
	char who[64];
	pid_t pid;

	make_pool(reuse, 1);
	b = publish_frame();
	bob = child_start(bob_gates, NULL);
	child_wait_with(bob, "gates it", &pid, sizeof(pid));
	let_go(b);
	expect_payer(BOB);
	/* in time, and not handed out with a fence that this thread would wait for */
	check_error(share_alloc(pool, FRAME, NULL, &next), SHARE_EAGAIN);
	check_detail("user 4712's work still runs on 1MiB");
	snprintf(who, sizeof(who), "'bob' (pid %d)", (int)pid);
	check_detail(who);
	gate_open(gate);
	until(share_alloc(pool, FRAME, NULL, &next) == SHARE_OK);
	expect_payer(0);
	check_ok(share_release(next, NULL));
	child_go(bob);
	child_finish(bob);
	check_ok(share_pool_destroy(client, "frames"));
	share_pool_close(pool);
}

Test(holder, whoever_has_work_on_it_is_named_where_memory_is_handed_out_behind_work)
{
	skip_unless_root();
	expect_refusal_by(SHARE_REUSE_GATE);
}

Test(holder, whoever_has_work_on_it_is_named_where_memory_is_handed_out_clean)
{
	skip_unless_root();
	expect_refusal_by(SHARE_REUSE_CLEAN);
}

Test(holder, whoever_has_work_on_it_is_named_where_memory_is_scrubbed)
{
	skip_unless_root();
	expect_refusal_by(SHARE_REUSE_SCRUB);
}
