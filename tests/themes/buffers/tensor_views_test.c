/* SPDX-License-Identifier: MIT */

/*
 * Tensors that go with names and tokens, not with the buffer: many views of one buffer, each under
 * a name of its own, and what anybody may have written in their place.
 */

#include <stdlib.h>
#include <string.h>

#include "libshare/client/client.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"
#include "wire/wire.h"

static share_client *client;
static share_pool *pool;
static share_buffer *buffer;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
	buffer = allocate(pool, 4096, NULL);
}

static void stop(void)
{
	if (!check_has_failed())
		check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(tensor_views, .init = start, .fini = stop, .timeout = 60);

/* A row of the buffer, taken for a matrix of 32 x 32 numbers; backwards if @step is -1. */
static share_tensor row(int index, int step)
{
	share_tensor t = SHARE_TENSOR_INIT;

	check_ok(share_tensor_init(&t, SHARE_FLOAT32, 1, (int64_t[]){32}));
	t.offset = (uint64_t)(32 * index + (step < 0 ? 31 : 0)) * 4;
	t.strides[0] = step;
	return t;
}

static void publish(share_buffer *b, const char *name, const share_tensor *t)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;

	options.tensor = t;
	check_ok(share_publish_with(b, name, &options, NULL, NULL));
}

static void expect_tensor(share_buffer *b, const share_tensor *t)
{
	share_tensor got = SHARE_TENSOR_INIT;

	check_ok(share_tensor_get(b, &got));
	check(memcmp(&got, t, sizeof(got)) == 0);
}

static int64_t requests(void)
{
	struct status s;

	status_read(client, &s);
	return s.requests;
}

/* ------------------------------------------------------------------------------------------- */

static void reads_the_views(struct child *self, void *data)
{
	share_client *c = child_connect("other process");
	share_tensor last = row(3, 1), first = row(0, -1), none = SHARE_TENSOR_INIT;
	share_buffer *b;

	(void)self, (void)data;
	check_ok(share_lookup(c, "last", SHARE_RDONLY, 0, NULL, &b));
	expect_tensor(b, &last);
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(c, "first", SHARE_RDONLY, 0, NULL, &b));
	expect_tensor(b, &first);
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(c, "plain", SHARE_RDONLY, 0, NULL, &b));
	check_error(share_tensor_get(b, &none), SHARE_ENOENT);
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

Test(tensor_views, of_one_buffer_have_names_of_their_own)
{
	share_tensor last = row(3, 1), first = row(0, -1);

	publish(buffer, "last", &last);
	publish(buffer, "first", &first);
	publish(buffer, "plain", NULL);
	child_finish(child_start(reads_the_views, NULL));
}

Test(tensor_views, are_told_without_a_request)
{
	share_tensor t = row(1, 1), got = SHARE_TENSOR_INIT;
	share_buffer *b;
	int64_t before;

	publish(buffer, "name", &t);
	before = requests(); /* counts itself */
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &b));
	for (int i = 0; i < 10; i++)
		expect_tensor(b, &t);
	check_eq(requests(), before + 2);
	/* of the buffer itself it is still the metadata that tells */
	check_error(share_tensor_get(buffer, &got), SHARE_ENOENT);
	check_ok(share_release(b, NULL));
}

Test(tensor_views, come_before_what_the_metadata_says)
{
	share_tensor all = SHARE_TENSOR_INIT, part = row(2, 1);
	share_buffer *b;

	check_ok(share_tensor_init(&all, SHARE_FLOAT32, 2, (int64_t[]){32, 32}));
	check_ok(share_tensor_set(buffer, &all));
	publish(buffer, "part", &part);
	publish(buffer, "all", NULL);
	check_ok(share_lookup(client, "part", SHARE_RDWR, 0, NULL, &b));
	expect_tensor(b, &part);
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(client, "all", SHARE_RDONLY, 0, NULL, &b));
	expect_tensor(b, &all);
	check_ok(share_release(b, NULL));
}

Test(tensor_views, are_replaced_with_the_name)
{
	share_tensor old = row(1, 1), new = row(2, -1), none = SHARE_TENSOR_INIT;
	share_buffer *before, *after, *plain;

	publish(buffer, "name", &old);
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &before));
	publish(buffer, "name", &new);
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &after));
	publish(buffer, "name", NULL);
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &plain));
	check_ok(share_unpublish(client, "name"));
	expect_tensor(before, &old);
	expect_tensor(after, &new);
	check_error(share_tensor_get(plain, &none), SHARE_ENOENT);
	check_ok(share_release(before, NULL));
	check_ok(share_release(after, NULL));
	check_ok(share_release(plain, NULL));
}

Test(tensor_views, go_with_tokens)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = row(5, 1), none = SHARE_TENSOR_INIT;
	share_token token, plain;
	share_buffer *b;

	options.tensor = &t;
	options.uses = 2;
	check_ok(share_export_with(buffer, &options, NULL, &token));
	check_ok(share_export(buffer, NULL, &plain));
	for (int i = 0; i < 2; i++) {
		check_ok(share_import(client, &token, 0, NULL, &b));
		expect_tensor(b, &t);
		check_ok(share_release(b, NULL));
	}
	check_ok(share_import(client, &plain, 0, NULL, &b));
	check_error(share_tensor_get(b, &none), SHARE_ENOENT);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */

static void looked_up(share_buffer *b, int error, void *data)
{
	check_ok(error);
	*(share_buffer **)data = b;
}

/* Whoever waits has it from another message than who comes when it is there. */
Test(tensor_views, come_to_those_who_waited_for_the_name)
{
	share_tensor t = row(4, -1);
	share_host_stream *stream;
	struct gate *gate = gate_new();
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *now = NULL, *later = NULL;

	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_lookup_async(client, "name", SHARE_RDONLY, -1, NULL, looked_up, &now, NULL));
	/* and this one with a fence that is to be waited for */
	check_ok(share_lookup_async(client, "name", SHARE_RDWR, -1, NULL, looked_up, &later, NULL));
	gate_hold(gate, stream);
	options.tensor = &t;
	check_ok(share_publish_with(buffer, "name", &options, stream, NULL));
	gate_open(gate);
	until((share_dispatch(client), now && later));
	expect_tensor(now, &t);
	expect_tensor(later, &t);
	check_ok(share_release(now, NULL));
	check_ok(share_release(later, NULL));
	share_host_stream_destroy(stream);
	gate_free(gate);
}

/* ------------------------------------------------------------------------------------------- */

Test(tensor_views, have_to_fit_into_the_buffer)
{
	share_publish_options publish_options = SHARE_PUBLISH_OPTIONS_INIT;
	share_export_options export_options = SHARE_EXPORT_OPTIONS_INIT;
	share_tensor t = row(32, 1), empty = {0};
	share_token token;
	share_buffer *b;

	publish_options.tensor = export_options.tensor = &t;
	check_error(share_publish_with(buffer, "name", &publish_options, NULL, NULL), SHARE_EINVAL);
	check_detail("4096");
	check_error(share_export_with(buffer, &export_options, NULL, &token), SHARE_EINVAL);
	publish_options.tensor = export_options.tensor = &empty;
	check_error(share_publish_with(buffer, "name", &publish_options, NULL, NULL), SHARE_EINVAL);
	check_error(share_export_with(buffer, &export_options, NULL, &token), SHARE_EINVAL);
	check_error(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &b), SHARE_ENOENT);
}

/* The broker does not know what a tensor is: it is for the library of whoever reads to judge. */
Test(tensor_views, of_liars_are_refused_and_the_buffer_is_good)
{
	share_tensor t = row(127, 1), got = SHARE_TENSOR_INIT;
	unsigned char large[SHARE_TENSOR_ENCODED_MAX];
	const struct wire_bytes lies[] = {
	    raw_text("x"),
	    raw_text("ShT1"),
	    raw_text("a tensor of sixteen dimensions"),
	    {large, 0},
	};
	static struct raw liar;
	struct wire_message m;
	share_buffer *b;
	uint64_t id;
	int size = share_tensor_encode(&t, large, sizeof(large));

	check(size > 0); /* proper, but it would fit only into a larger buffer */
	raw_open(&liar, "liar");
	id = raw_alloc(&liar, raw_pool(&liar, "default"), 4096);
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		m = (struct wire_message){.type = WIRE_PUBLISH};
		m.publish.buffer = id;
		m.publish.name = raw_text("lie");
		m.publish.tensor = lies[i];
		if (!m.publish.tensor.size)
			m.publish.tensor.size = (uint32_t)size;
		raw_ask(&liar, &m, WIRE_PUBLISHED);
		check_ok(share_lookup(client, "lie", SHARE_RDONLY, 0, NULL, &b));
		check_error(share_tensor_get(b, &got), SHARE_EINVAL);
		check_eq(share_size(b), 4096);
		check_ok(share_release(b, NULL));
	}
	raw_ask(&liar, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&liar);
}
