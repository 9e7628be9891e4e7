/* SPDX-License-Identifier: MIT */

/*
 * Chains of hand-overs whose middle dies. Each receiver waits for its giver, and so for those
 * before it: as long as the giver lives. When it is killed, waiting for it is over, while the work
 * that it had to wait for itself goes on elsewhere, in the same memory.
 */

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

#define SIZE 65536

static struct gate *gate;
static share_client *client;
static share_pool *pool;
static share_host_stream *first, *last;

static void start(void)
{
	fixture_start();
	gate = gate_new();
	client = connect_as("test");
	pool = open_pool(client);
	check_ok(share_host_stream_create(client, &first));
	check_ok(share_host_stream_create(client, &last));
}

static void stop(void)
{
	gate_open(gate);
	if (!check_has_failed()) {
		share_host_stream_destroy(first);
		share_host_stream_destroy(last);
		share_pool_close(pool);
		share_disconnect(client);
	}
	fixture_stop();
	gate_free(gate);
}

TestSuite(fence_chain, .init = start, .fini = stop, .timeout = 60);

static share_token export_for_writing(share_buffer *b, share_host_stream *s)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_token token;

	options.mode = SHARE_RDWR;
	check_ok(share_export_with(b, &options, s, &token));
	return token;
}

enum way { BY_TOKEN, BY_NAME };
struct order {
	enum way way;
	share_token token;
};

/* Takes it over while the work on it is not done, and hands it on. */
static void hands_on(struct child *self, void *data)
{
	share_client *c = child_connect("middle");
	struct order *order = data;
	share_host_stream *s;
	share_buffer *b;

	check_ok(share_host_stream_create(c, &s));
	check_ok(share_import(c, &order->token, SHARE_RDWR, s, &b));
	if (order->way == BY_TOKEN)
		order->token = export_for_writing(b, s);
	else
		check_ok(share_publish(b, "work", s));
	check_ok(share_release(b, s));
	child_point_with(self, "handed on", order, sizeof(*order));
}

static void expect_the_last_to_wait_for_the_first(enum way way)
{
	share_buffer *b = allocate(pool, SIZE, first);
	struct order order = {.way = way};
	share_host_stream *probe;
	struct child *middle;

	gate_hold(gate, first);
	gate_fill(gate, first, share_ptr(b), 1, SIZE);
	order.token = export_for_writing(b, first);
	check_ok(share_release(b, first));
	middle = child_start(hands_on, &order);
	child_wait_with(middle, "handed on", &order, sizeof(order));
	if (way == BY_TOKEN)
		check_ok(share_import(client, &order.token, SHARE_RDWR, last, &b));
	else
		check_ok(share_lookup(client, "work", SHARE_RDWR, 0, last, &b));
	gate_expect(gate, last, share_ptr(b), 1, SIZE, 1);
	child_kill(middle);
	/* all who wait for the one in the middle have been released */
	until(share_buffer_status(b) == SHARE_EOWNERDEAD);
	check_ok(share_host_stream_create(client, &probe));
	check_ok(share_host_stream_synchronize(probe));
	share_host_stream_destroy(probe);
	check_eq(gate->done, 0);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(last));
	check_ok(share_release(b, last));
}

Test(fence_chain, who_may_write_waits_for_all_before_the_exporter_that_was_killed)
{
	expect_the_last_to_wait_for_the_first(BY_TOKEN);
}

Test(fence_chain, who_may_write_waits_for_all_before_the_publisher_that_was_killed)
{
	expect_the_last_to_wait_for_the_first(BY_NAME);
}

/* Those who only read wait for nobody but the giver: readers do not hold up each other. */
Test(fence_chain, who_only_reads_does_not_wait_for_other_readers)
{
	share_buffer *b = allocate(pool, SIZE, NULL), *read;

	gate_hold(gate, first);
	check_ok(share_publish(b, "work", NULL));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, NULL, &read));
	check_ok(share_release(read, first));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, last, &read));
	check_ok(share_host_stream_synchronize(last));
	check_ok(share_release(read, last));
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(client, "work"));
}
