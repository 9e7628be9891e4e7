/* SPDX-License-Identifier: MIT */

/*
 * The rules about fences, each under the number that docs/architecture.md gives it, for host
 * memory. Rules 7 and 8 are about GPUs only, and poison_test.c is about rule 6.
 *
 * The pool has room for one block, so an allocation gets the block that was released last.
 */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

#define SIZE 65536

static struct gate *gate;
static share_client *client;
static share_pool *pool;
static share_host_stream *stream;

static void start(void)
{
	fixture_start_with(
	    "{\"pools\": [{\"name\": \"default\", \"kind\": \"host\", \"limit\": \"64KiB\"}]}");
	gate = gate_new();
	client = connect_as("test");
	pool = open_pool(client);
	check_ok(share_host_stream_create(client, &stream));
}

static void stop(void)
{
	if (!check_has_failed()) {
		share_host_stream_destroy(stream);
		share_pool_close(pool);
		share_disconnect(client);
	}
	gate_open(gate);
	fixture_stop();
	gate_free(gate);
}

TestSuite(fence_rules, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */
/* Another process, whose stream is busy until the gate opens                                   */

static void releases_while_busy(struct child *self, void *data)
{
	share_client *c = child_connect("busy one");
	share_pool *p = open_pool(c);
	share_host_stream *s;
	share_buffer *b;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	b = allocate(p, SIZE, s);
	gate_hold(gate, s);
	gate_fill(gate, s, share_ptr(b), 1, SIZE);
	/* rule 2: returns at once, or the gate would never open */
	check_ok(share_release(b, s));
	child_point(self, "released");
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
}

static void allocates_by_hand(struct child *self, void *data)
{
	share_client *c = child_connect("next one");
	share_pool *p = open_pool(c);
	share_buffer *b;

	(void)data;
	child_point(self, "asking");
	check_ok(share_alloc(p, SIZE, NULL, &b));
	check_eq(gate->done, 1);
	memset(share_ptr(b), 2, SIZE);
	child_point(self, "got it");
	expect_filled(share_ptr(b), 2, SIZE);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(fence_rules, rule_1_work_after_an_allocation_waits_for_the_last_users_and_the_host_does_not)
{
	struct child *busy = child_start(releases_while_busy, NULL);
	share_buffer *b;

	child_wait(busy, "released");
	b = allocate(pool, SIZE, stream);
	check_eq(gate->done, 0);
	gate_expect(gate, stream, share_ptr(b), 1, SIZE, 1);
	gate_fill(gate, stream, share_ptr(b), 2, SIZE);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	expect_filled(share_ptr(b), 2, SIZE);
	check_eq(gate->done, 2);
	child_go(busy);
	child_finish(busy);
	expect_filled(share_ptr(b), 2, SIZE);
	check_ok(share_release(b, stream));
}

Test(fence_rules, rule_2_nobody_elses_thread_touches_a_released_block_before_the_work_is_done)
{
	struct child *busy = child_start(releases_while_busy, NULL), *next;

	child_wait(busy, "released");
	next = child_start(allocates_by_hand, NULL);
	child_wait(next, "asking");
	child_go(next);
	/* it has been given the block, and waits for the work */
	settle(client, s.leases == 1);
	check_eq(gate->done, 0);
	gate_open(gate);
	child_wait(next, "got it");
	child_go(busy);
	child_finish(busy);
	child_go(next);
	child_finish(next);
}

/* ------------------------------------------------------------------------------------------- */
/* Rule 3: hand-over                                                                           */

static void gives_while_busy(struct child *self, void *data)
{
	share_client *c = child_connect("giver");
	share_pool *p = open_pool(c);
	share_host_stream *s;
	share_token token;
	share_buffer *b;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	b = allocate(p, SIZE, s);
	gate_hold(gate, s);
	gate_fill(gate, s, share_ptr(b), 3, SIZE);
	check_ok(share_publish(b, "work", s));
	check_ok(share_export(b, s, &token));
	check_ok(share_release(b, s));
	child_point_with(self, "given", &token, sizeof(token));
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
}

Test(fence_rules, rule_3_a_stream_that_looks_a_name_up_is_ordered_after_the_publisher)
{
	struct child *giver = child_start(gives_while_busy, NULL);
	share_buffer *b, *imported;
	share_token token;

	child_wait_with(giver, "given", &token, sizeof(token));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, stream, &b));
	check_ok(share_import(client, &token, 0, stream, &imported));
	check_eq(share_id(imported), share_id(b));
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	check_error(share_buffer_status(imported), SHARE_EAGAIN);
	gate_expect(gate, stream, share_ptr(b), 3, SIZE, 1);
	gate_expect(gate, stream, share_ptr(imported), 3, SIZE, 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	check_ok(share_buffer_status(b));
	check_ok(share_buffer_status(imported));
	check_ok(share_release(b, stream));
	check_ok(share_release(imported, stream));
	child_go(giver);
	child_finish(giver);
}

static void receives_by_hand(struct child *self, void *data)
{
	share_client *c = child_connect("receiver");
	share_buffer *b;

	child_point(self, "asking");
	if (data)
		check_ok(share_import(c, data, 0, NULL, &b));
	else
		check_ok(share_lookup(c, "work", SHARE_RDONLY, -1, NULL, &b));
	check_eq(gate->done, 1);
	expect_filled(share_ptr(b), 3, SIZE);
	check_ok(share_buffer_status(b));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

static void expect_a_receiver_that_waits(bool by_token)
{
	struct child *giver = child_start(gives_while_busy, NULL), *receiver;
	share_token token;

	child_wait_with(giver, "given", &token, sizeof(token));
	receiver = child_start(receives_by_hand, by_token ? &token : NULL);
	child_wait(receiver, "asking");
	child_go(receiver);
	settle(client, s.leases == 1);
	check_eq(gate->done, 0);
	gate_open(gate);
	child_finish(receiver);
	child_go(giver);
	child_finish(giver);
}

Test(fence_rules, rule_3_a_thread_that_looks_a_name_up_waits_for_the_publisher)
{
	expect_a_receiver_that_waits(false);
}

Test(fence_rules, rule_3_a_thread_that_imports_a_token_waits_for_the_exporter)
{
	expect_a_receiver_that_waits(true);
}

Test(fence_rules, rule_3_waiting_for_the_publisher_counts_against_the_time_limit)
{
	struct child *giver = child_start(gives_while_busy, NULL);
	share_buffer *b = NULL;
	share_token token;

	child_wait_with(giver, "given", &token, sizeof(token));
	check_error(share_lookup(client, "work", SHARE_RDONLY, 20, NULL, &b), SHARE_ETIMEDOUT);
	check_error(share_lookup(client, "work", SHARE_RDONLY, 0, NULL, &b), SHARE_ETIMEDOUT);
	check(b == NULL);
	settle(client, s.leases == 0);
	gate_open(gate);
	child_go(giver);
	child_finish(giver);
}

/* ------------------------------------------------------------------------------------------- */
/* Rule 4: the last release frees                                                              */

Test(fence_rules, rule_4_every_stream_that_released_a_buffer_gates_its_block)
{
	share_host_stream *fast;
	share_buffer *b, *again;

	check_ok(share_host_stream_create(client, &fast));
	b = allocate(pool, SIZE, stream);
	gate_hold(gate, stream);
	gate_fill(gate, stream, share_ptr(b), 4, SIZE);
	check_ok(share_publish(b, "work", NULL));
	check_ok(share_lookup(client, "work", SHARE_RDWR, 0, fast, &again));
	check_ok(share_unpublish(client, "work"));
	/* the slow one first: what comes later must not make it forgotten */
	check_ok(share_release(b, stream));
	check_ok(share_release(again, fast));
	b = allocate(pool, SIZE, fast);
	gate_expect(gate, fast, share_ptr(b), 4, SIZE, 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(fast));
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(fast);
}

Test(fence_rules, rule_4_a_reference_given_up_on_a_busy_stream_gates_though_it_was_not_the_last)
{
	share_host_stream *other;
	share_buffer *b = allocate(pool, SIZE, NULL);

	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, stream);
	gate_fill(gate, stream, share_ptr(b), 5, SIZE);
	check(share_retain(b) == b);
	check_ok(share_release(b, stream));
	check_ok(share_release(b, NULL));
	b = allocate(pool, SIZE, other);
	gate_expect(gate, other, share_ptr(b), 5, SIZE, 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(other));
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(other);
}

static void allocates_and_dies(struct child *self, void *data)
{
	share_client *c = child_connect("short-lived");
	share_pool *p = open_pool(c);
	share_host_stream *s;
	share_buffer *b;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_alloc(p, SIZE, s, &b));
	child_point(self, "allocated");
}

Test(fence_rules, rule_4_a_holder_who_never_waited_does_not_make_the_gate_forgotten)
{
	share_buffer *b = allocate(pool, SIZE, stream);
	share_host_stream *other;
	struct child *child;

	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, stream);
	gate_fill(gate, stream, share_ptr(b), 8, SIZE);
	check_ok(share_release(b, stream));
	child = child_start(allocates_and_dies, NULL);
	child_wait(child, "allocated");
	child_kill(child);
	settle(client, s.buffers == 0);
	b = allocate(pool, SIZE, other);
	gate_expect(gate, other, share_ptr(b), 8, SIZE, 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(other));
	check_ok(share_release(b, NULL));
	share_host_stream_destroy(other);
}

Test(fence_rules, rule_4_a_buffer_lives_until_the_last_of_all_processes_releases_it)
{
	struct child *giver = child_start(gives_while_busy, NULL);
	share_buffer *b, *none = NULL;
	share_token token;

	gate_open(gate);
	child_wait_with(giver, "given", &token, sizeof(token));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, SHARE_WAIT_FOREVER, NULL, &b));
	child_go(giver);
	child_finish(giver);
	settle(client, s.clients == 1 && s.leases == 1 && s.buffers == 1);
	check_error(share_alloc(pool, SIZE, NULL, &none), SHARE_ENOMEM);
	expect_filled(share_ptr(b), 3, SIZE);
	check_ok(share_release(b, NULL));
	check_ok(share_alloc(pool, SIZE, NULL, &b));
	check_ok(share_release(b, NULL));
}

/* What is free in a pool but gated is given to others in parts, each with the same gate. */
Test(fence_rules, rule_4_parts_of_a_gated_block_are_gated_too)
{
	share_buffer *b = allocate(pool, SIZE, stream), *parts[4];
	share_host_stream *other;

	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, stream);
	gate_fill(gate, stream, share_ptr(b), 6, SIZE);
	check_ok(share_release(b, stream));
	for (int i = 0; i < 4; i++) {
		parts[i] = allocate(pool, SIZE / 4, other);
		gate_expect(gate, other, share_ptr(parts[i]), 6, SIZE / 4, 1);
	}
	gate_open(gate);
	check_ok(share_host_stream_synchronize(other));
	for (int i = 0; i < 4; i++)
		check_ok(share_release(parts[i], other));
	share_host_stream_destroy(other);
}

/* ------------------------------------------------------------------------------------------- */

Test(fence_rules, rule_5_a_fence_handed_out_is_reached_without_anything_more_being_enqueued)
{
	share_fence before, after;

	gate_hold(gate, stream);
	check_ok(share_fence_record(client, -1, stream, &before));
	gate_open(gate);
	check_ok(share_fence_synchronize(client, &before, -1));
	check_ok(share_fence_record(client, -1, stream, &after));
	check_ok(share_fence_synchronize(client, &after, -1));
}
