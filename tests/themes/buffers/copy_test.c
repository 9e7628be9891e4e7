/* SPDX-License-Identifier: MIT */

/* Copies between buffers of every kind and the memory of this process. */

#include <string.h>

#include "tests/harness/gate.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

#define SIZE 10000

ConformanceTest(a_copy_changes_what_it_is_for_and_nothing_else)
{
	static const struct {
		uint64_t offset, size;
	} parts[] = {{0, 1}, {1, 1}, {511, 3}, {4095, 2}, {SIZE - 1, 1}, {700, 5000}, {0, SIZE}};
	static unsigned char model[SIZE], got[SIZE];
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *before = allocate(p, SIZE, NULL), *b = allocate(p, SIZE, NULL),
		     *after = allocate(p, SIZE, NULL);

	buffer_fill(before, 0xb0);
	buffer_fill(b, 0);
	buffer_fill(after, 0xaf);
	memset(model, 0, SIZE);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		unsigned char bytes[SIZE];

		for (size_t k = 0; k < parts[i].size; k++)
			bytes[k] = (unsigned char)(i * 31 + k + 1);
		memcpy(model + parts[i].offset, bytes, parts[i].size);
		check_ok(share_copy_from_host(b, parts[i].offset, bytes, parts[i].size, NULL));
		memset(got, 0xee, SIZE);
		check_ok(share_copy_to_host(b, 0, got, SIZE, NULL));
		check(memcmp(got, model, SIZE) == 0);
		memset(got, 0xee, SIZE);
		check_ok(share_copy_to_host(b, parts[i].offset, got, parts[i].size, NULL));
		check(memcmp(got, model + parts[i].offset, parts[i].size) == 0);
		check(parts[i].size == SIZE || got[parts[i].size] == 0xee);
	}
	buffer_expect(before, 0xb0);
	buffer_expect(after, 0xaf);
	check_ok(share_release(before, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_release(after, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_copy_outside_of_the_buffer_is_refused)
{
	static const struct {
		uint64_t offset, size;
	} outside[] = {{0, SIZE + 1},           {SIZE, 1},       {1, SIZE},
		       {SIZE + 1, 0},           {UINT64_MAX, 1}, {1, UINT64_MAX},
		       {UINT64_MAX, UINT64_MAX}};
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, SIZE, NULL);
	unsigned char bytes[8] = {0};

	buffer_fill(b, 5);
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		check_error(share_copy_to_host(b, outside[i].offset, bytes, outside[i].size, NULL),
			    SHARE_EINVAL);
		check_error(
		    share_copy_from_host(b, outside[i].offset, bytes, outside[i].size, NULL),
		    SHARE_EINVAL);
		check_detail("outside of the buffer, which has 10000");
	}
	check_error(share_copy_to_host(b, 0, NULL, 1, NULL), SHARE_EINVAL);
	check_error(share_copy_from_host(b, 0, NULL, 1, NULL), SHARE_EINVAL);
	check_error(share_copy_to_host(NULL, 0, bytes, 1, NULL), SHARE_EINVAL);
	check_error(share_copy_from_host(NULL, 0, bytes, 1, NULL), SHARE_EINVAL);
	/* nothing, at the very end */
	check_ok(share_copy_to_host(b, SIZE, NULL, 0, NULL));
	check_ok(share_copy_from_host(b, SIZE, NULL, 0, NULL));
	buffer_expect(b, 5);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

static void copies(struct child *self, void *data)
{
	char byte;

	(void)self;
	check_error(share_copy_to_host(data, 0, &byte, 1, NULL), SHARE_EFORK);
	check_error(share_copy_from_host(data, 0, "x", 1, NULL), SHARE_EFORK);
}

ConformanceTest(a_forked_child_copies_nothing)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, SIZE, NULL);

	child_finish(child_start(copies, b));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Order                                                                                       */

struct step {
	share_buffer *buffer;
	struct gate *wait, *open;
};

#define PER_THREAD_STREAM ((void *)2) /* CU_STREAM_PER_THREAD */

/* Copies from within a stream, once the other stream has come to its work. Not on the stream that
 * may wait for this one by then. */
static void fills(void *data)
{
	struct step *s = data;
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	char bytes[SIZE];

	check_ok(share_buffer_get_info(s->buffer, &info));
	memset(bytes, 9, sizeof(bytes));
	check_ok(share_copy_from_host(s->buffer, 0, bytes, sizeof(bytes),
				      info.device ? PER_THREAD_STREAM : NULL));
	gate_open(s->open);
}

ConformanceTest(a_copy_on_a_host_stream_comes_after_what_is_enqueued_there)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	struct step step = {allocate(p, SIZE, NULL), NULL, gate_new()};
	share_host_stream *busy, *other;
	unsigned char got[SIZE];

	buffer_fill(step.buffer, 1);
	check_ok(share_host_stream_create(c, &busy));
	check_ok(share_host_stream_create(c, &other));
	/* `busy` stands still until `other` has filled the buffer */
	gate_hold(step.open, busy);
	check_ok(share_host_stream_launch(other, fills, &step));
	check_ok(share_copy_to_host(step.buffer, 0, got, SIZE, busy));
	expect_filled(got, 9, SIZE);
	check_ok(share_host_stream_synchronize(other));
	share_host_stream_destroy(busy);
	share_host_stream_destroy(other);
	gate_free(step.open);
	check_ok(share_release(step.buffer, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

struct itself {
	share_host_stream *stream;
	share_buffer *buffer;
};

static void copies_on_its_own_stream(void *data)
{
	struct itself *s = data;
	char bytes[2] = "x";

	check_error(share_copy_from_host(s->buffer, 0, bytes, 1, s->stream), SHARE_EINVAL);
	check_detail("a function on a host stream cannot wait for what is enqueued behind it");
	check_error(share_copy_to_host(s->buffer, 0, bytes, 1, s->stream), SHARE_EINVAL);
	check_error(share_copy(s->buffer, 0, s->buffer, 1, 1, s->stream), SHARE_EINVAL);
	check_error(share_host_stream_synchronize(s->stream), SHARE_EINVAL);
	check_ok(share_copy_to_host(s->buffer, 0, bytes, 1, NULL));
	check_eq(bytes[0], 6);
}

ConformanceTest(a_function_on_a_host_stream_is_refused_to_wait_for_that_stream)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	struct itself itself = {NULL, allocate(p, SIZE, NULL)};

	buffer_fill(itself.buffer, 6);
	check_ok(share_host_stream_create(c, &itself.stream));
	check_ok(share_host_stream_launch(itself.stream, copies_on_its_own_stream, &itself));
	check_ok(share_host_stream_synchronize(itself.stream));
	buffer_expect(itself.buffer, 6);
	share_host_stream_destroy(itself.stream);
	check_ok(share_release(itself.buffer, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(the_streams_of_the_gpu_order_its_memory_and_no_other)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *b = allocate(p, SIZE, NULL), *v = NULL, *none = NULL;
	unsigned char got[4] = {0};
	share_fence f;

	if (is_host(kind)) {
		check_error(share_alloc(p, 1, PER_THREAD_STREAM, &none), SHARE_EINVAL);
		check_error(share_copy_from_host(b, 0, "abc", 4, PER_THREAD_STREAM), SHARE_EINVAL);
		check_error(share_fence_record(c, -1, PER_THREAD_STREAM, &f), SHARE_EINVAL);
		check_error(share_publish(b, "name", PER_THREAD_STREAM), SHARE_EINVAL);
		check_error(share_release(b, PER_THREAD_STREAM), SHARE_EINVAL);
		check_ok(share_publish(b, "name", NULL));
		check_error(share_lookup(c, "name", SHARE_RDONLY, 0, PER_THREAD_STREAM, &none),
			    SHARE_EINVAL);
		check(none == NULL);
	} else {
		check_ok(share_copy_from_host(b, 0, "abc", 4, PER_THREAD_STREAM));
		check_ok(share_publish(b, "name", PER_THREAD_STREAM));
		check_ok(share_fence_record(c, 0, PER_THREAD_STREAM, &f));
		check_ok(share_fence_wait(c, &f, 0, PER_THREAD_STREAM));
		check_ok(share_fence_synchronize(c, &f, HARNESS_LIMIT_MS));
		check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, PER_THREAD_STREAM, &v));
		check_ok(share_copy_to_host(v, 0, got, 4, PER_THREAD_STREAM));
		check(memcmp(got, "abc", 4) == 0);
		check_ok(share_release(v, PER_THREAD_STREAM));
	}
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	settle(c, s.leases == 0 && s.buffers == 0);
	share_pool_close(p);
	share_disconnect(c);
}

/* The giver is a host stream that has to do something yet; the taker a stream of another sort. */
ConformanceTest(a_hand_over_is_ordered_between_streams_of_different_sorts)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	struct step step = {allocate(p, SIZE, NULL), NULL, gate_new()};
	/* the giver's thread copies on a stream that waits for all that is on the default one */
	void *taker = is_host(kind) ? NULL : PER_THREAD_STREAM;
	share_host_stream *giver;
	unsigned char got[SIZE];
	share_buffer *v;

	buffer_fill(step.buffer, 1);
	check_ok(share_host_stream_create(c, &giver));
	check_ok(share_host_stream_launch(giver, fills, &step));
	check_ok(share_publish(step.buffer, "name", giver));
	check_ok(share_lookup(c, "name", SHARE_RDONLY, -1, taker, &v));
	check_ok(share_copy_to_host(v, 0, got, SIZE, taker));
	expect_filled(got, 9, SIZE);
	check(step.open->open);
	check_ok(share_buffer_status(v));
	check_ok(share_release(v, giver));
	share_host_stream_destroy(giver);
	gate_free(step.open);
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(step.buffer, NULL));
	share_pool_close(p);
	share_disconnect(c);
}
