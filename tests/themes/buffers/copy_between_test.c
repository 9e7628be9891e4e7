/* SPDX-License-Identifier: MIT */

/* share_copy(): from buffer to buffer, over kinds, pools, connections and devices. */

#include <string.h>

#include "tests/harness/gate.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);
TestSuite(copy_between, .fini = fixture_stop, .timeout = 120);

#define SIZE  10000
#define LARGE (9 * MIB) /* more than a piece of a copy through host memory */

static share_pool *host_pool(share_client *c)
{
	share_pool_options o = OPTIONS;
	share_pool *p;

	o.kind = "host";
	check_ok(share_pool_create(c, "other", &o, &p));
	return p;
}

/* Each byte of a buffer that had 7 everywhere is 9 in this part, and 7 elsewhere. */
static void expect_part(share_buffer *b, uint64_t offset, uint64_t size)
{
	static unsigned char got[SIZE];

	check_ok(share_copy_to_host(b, 0, got, SIZE, NULL));
	for (uint64_t i = 0; i < SIZE; i++)
		check_eq(got[i], i >= offset && i - offset < size ? 9 : 7);
}

static void copy_parts(share_buffer *to, share_buffer *from)
{
	static const struct {
		uint64_t to, from, size;
	} parts[] = {{0, 0, 1},       {1, 0, SIZE - 1},        {511, 4095, 4099},
		     {SIZE, SIZE, 0}, {SIZE - 1, SIZE - 1, 1}, {0, 0, SIZE}};

	buffer_fill(from, 9);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		buffer_fill(to, 7);
		check_ok(share_copy(to, parts[i].to, from, parts[i].from, parts[i].size, NULL));
		expect_part(to, parts[i].to, parts[i].size);
	}
	buffer_expect(from, 9);
}

ConformanceTest(a_copy_goes_from_any_kind_to_any_other)
{
	share_client *c = connect_as("test"), *other = connect_as("other");
	share_pool *p = conformance_pool(c, kind, OPTIONS), *h = host_pool(other);
	share_buffer *a = allocate(p, SIZE, NULL), *b = allocate(p, SIZE, NULL),
		     *host = allocate(h, SIZE, NULL);

	copy_parts(a, b);
	copy_parts(a, host);
	copy_parts(host, a);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_release(host, NULL));
	share_pool_close(p);
	share_pool_close(h);
	share_disconnect(c);
	share_disconnect(other);
}

ConformanceTest(a_copy_that_cannot_be_is_refused)
{
	share_client *c = connect_as("test"), *other = connect_as("other");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *a = allocate(p, SIZE, NULL), *b = allocate(p, SIZE, NULL), *same;

	buffer_fill(a, 1);
	buffer_fill(b, 2);
	check_error(share_copy(a, 1, b, 0, SIZE, NULL), SHARE_EINVAL);
	check_detail("10000 bytes at 1: that is outside of the buffer, which has 10000");
	check_error(share_copy(a, 0, b, SIZE, 1, NULL), SHARE_EINVAL);
	check_error(share_copy(a, 0, b, UINT64_MAX, 2, NULL), SHARE_EINVAL);
	check_error(share_copy(NULL, 0, b, 0, 1, NULL), SHARE_EINVAL);
	check_error(share_copy(a, 0, NULL, 0, 1, NULL), SHARE_EINVAL);
	/* within a buffer, also by another handle and connection */
	check_error(share_copy(a, 0, a, 1, 2, NULL), SHARE_EINVAL);
	check_detail("the two parts overlap");
	check_ok(share_publish(a, "same", NULL));
	check_ok(share_lookup(other, "same", SHARE_RDONLY, 0, NULL, &same));
	check_error(share_copy(a, 4, same, 0, 5, NULL), SHARE_EINVAL);
	check_detail("the two parts overlap");
	check_ok(share_copy(a, 5000, same, 0, 5000, NULL));
	check_error(share_copy(same, 0, b, 0, 1, NULL), SHARE_EACCES);
	check_detail("read-only");
	buffer_expect(a, 1);
	buffer_expect(b, 2);
	check_ok(share_unpublish(c, "same"));
	check_ok(share_release(same, NULL));
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	check_given_up(share_copy(a, 0, b, 0, 1, NULL));
	share_pool_close(p);
	share_disconnect(c);
	share_disconnect(other);
}

static void copies(struct child *self, void *data)
{
	share_buffer **two = data;

	(void)self;
	check_error(share_copy(two[0], 0, two[1], 0, 1, NULL), SHARE_EFORK);
}

ConformanceTest(a_forked_child_copies_nothing)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	share_buffer *two[] = {allocate(p, SIZE, NULL), allocate(p, SIZE, NULL)};

	child_finish(child_start(copies, two));
	check_ok(share_release(two[0], NULL));
	check_ok(share_release(two[1], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

#define PER_THREAD_STREAM ((void *)2) /* CU_STREAM_PER_THREAD */

struct step {
	share_buffer *buffer;
	struct gate *open;
};

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

ConformanceTest(a_copy_comes_after_what_is_enqueued_on_its_stream)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS);
	struct step step = {allocate(p, SIZE, NULL), gate_new()};
	share_buffer *to = allocate(p, SIZE, NULL);
	share_host_stream *busy, *other;
	unsigned char got[SIZE];

	buffer_fill(step.buffer, 1);
	check_ok(share_host_stream_create(c, &busy));
	check_ok(share_host_stream_create(c, &other));
	/* `busy` stands still until `other` has filled the buffer */
	gate_hold(step.open, busy);
	check_ok(share_host_stream_launch(other, fills, &step));
	check_ok(share_copy(to, 0, step.buffer, 0, SIZE, busy));
	check_ok(share_copy_to_host(to, 0, got, SIZE, NULL));
	expect_filled(got, 9, SIZE);
	check_ok(share_host_stream_synchronize(other));
	share_host_stream_destroy(busy);
	share_host_stream_destroy(other);
	if (is_host(kind)) {
		check_error(share_copy(to, 0, step.buffer, 0, 1, PER_THREAD_STREAM), SHARE_EINVAL);
	} else {
		/* and a stream of the device takes the copy as other work */
		buffer_fill(to, 7);
		check_ok(share_copy(to, 0, step.buffer, 0, SIZE, PER_THREAD_STREAM));
		check_ok(share_copy_to_host(to, 0, got, SIZE, PER_THREAD_STREAM));
		expect_filled(got, 9, SIZE);
	}
	gate_free(step.open);
	check_ok(share_release(step.buffer, NULL));
	check_ok(share_release(to, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

static share_pool *pool_on(share_client *c, const char *name, const char *kind,
			   const json_t *devices, size_t i)
{
	share_pool_options o = OPTIONS;
	share_pool *p;

	o.kind = kind;
	o.device = json_string_value(json_object_get(json_array_get(devices, i), "device"));
	check_ok(share_pool_create(c, name, &o, &p));
	return p;
}

/* There and back, on the default stream and on another one. */
static void copy_across(const char *machine, const char *kind)
{
	share_client *c;
	json_t *devices;
	share_pool *p, *q;
	share_buffer *a, *b, *back;

	kinds_start_on(machine, NULL);
	skip_unless_possible(kind);
	fixture_uses_devices();
	c = connect_as("test");
	devices = report(c, "devices");
	if (json_array_size(devices) < 2) {
		json_decref(devices);
		share_disconnect(c);
		cr_skip_test("needs two devices");
	}
	p = pool_on(c, "one", kind, devices, 0);
	q = pool_on(c, "two", kind, devices, 1);
	a = allocate(p, LARGE, NULL);
	b = allocate(q, LARGE, NULL);
	back = allocate(p, LARGE, NULL);
	buffer_fill(a, 3);
	buffer_fill(b, 0);
	buffer_fill(back, 0);
	check_ok(share_copy(b, 0, a, 0, LARGE, NULL));
	check_ok(share_copy(back, 0, b, 0, LARGE, NULL));
	buffer_expect(back, 3);
	buffer_fill(a, 4);
	check_ok(share_copy(b, 1, a, 1, LARGE - 2, PER_THREAD_STREAM));
	check_ok(share_copy(back, 1, b, 1, LARGE - 2, PER_THREAD_STREAM));
	check_ok(share_copy(back, 0, b, 0, 1, NULL));
	check_ok(share_copy(back, LARGE - 1, a, LARGE - 1, 1, NULL));
	check_ok(share_copy(back, 0, a, 0, 1, NULL));
	buffer_expect(back, 4);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_release(back, NULL));
	share_pool_close(p);
	share_pool_close(q);
	json_decref(devices);
	share_disconnect(c);
}

Test(copy_between, vmm_of_devices_that_reach_each_other)
{
	copy_across("devices=2", "vmm");
}

Test(copy_between, vmm_of_devices_that_do_not)
{
	copy_across("devices=2,peers=0", "vmm");
}

Test(copy_between, mempools_of_devices_that_reach_each_other)
{
	copy_across("devices=2", "mempool");
}

Test(copy_between, mempools_of_devices_that_do_not)
{
	copy_across("devices=2,peers=0", "mempool");
}
