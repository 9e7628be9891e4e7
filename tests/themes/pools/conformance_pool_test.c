/* SPDX-License-Identifier: MIT */

/* Every kind of pool: segments that come on demand and go when empty, and limits that hold. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/raw.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

static share_pool_options sized(uint64_t limit, uint64_t segment, uint64_t threshold)
{
	share_pool_options options = OPTIONS;

	options.limit = limit;
	options.segment_size = segment;
	options.release_threshold = threshold;
	return options;
}

ConformanceTest(a_pool_tells_what_it_was_made_of)
{
	share_client *c = connect_as("test");
	share_pool_info info = SHARE_POOL_INFO_INIT, opened = SHARE_POOL_INFO_INIT;
	share_pool *p = conformance_pool(c, kind, sized(8 * UNIT, UNIT, SHARE_KEEP_NONE)), *q;

	check_ok(share_pool_get_info(p, &info));
	check(strcmp(info.name, "test") == 0 && strcmp(info.kind, kind) == 0);
	check_eq(info.limit, 8 * UNIT);
	check_eq(info.segment_size, UNIT);
	check_eq(info.alignment, 512);
	check_eq(info.mode, SHARE_RDWR);
	check_eq(info.manage, 1);
	check_ok(share_pool_open(c, "test", &q));
	check_ok(share_pool_get_info(q, &opened));
	check_eq(opened.limit, info.limit);
	share_pool_close(q);
	share_pool_close(p);
	share_disconnect(c);
}

/* Whatever a device has made of the options. */
ConformanceTest(who_asks_for_the_same_pool_gets_it)
{
	share_client *c = connect_as("test");
	share_pool_options options = sized(UINT64_MAX, UNIT + 1, UNIT);
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_pool *p, *q, *none = NULL;

	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	p = conformance_pool(c, kind, options);
	q = conformance_pool(c, kind, options);
	share_pool_close(q);
	check_ok(share_pool_get_info(p, &info));
	options.limit = info.limit;
	options.segment_size = info.segment_size;
	options.device = info.device;
	q = conformance_pool(c, kind, options);
	share_pool_close(q);
	options.kind = is_host(kind) ? "vmm" : "host";
	check_error(share_pool_create(c, "test", &options, &none), SHARE_EEXIST);
	check_detail("kind of pool 'test' is");
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

ConformanceTest(segments_come_on_demand_up_to_the_limit)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(4 * UNIT, UNIT, SHARE_KEEP_NONE));
	share_buffer *b[5] = {NULL};

	for (int i = 0; i < 4; i++) {
		b[i] = allocate(p, UNIT, NULL);
		settle(c, s.segments == i + 1 && s.segment_bytes == (i + 1) * (int64_t)UNIT);
	}
	check_error(share_alloc(p, 1, NULL, &b[4]), SHARE_ENOMEM);
	check(b[4] == NULL);
	for (int i = 0; i < 4; i++)
		check_ok(share_release(b[i], NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_full_pool_says_what_is_in_it)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(2 * UNIT, UNIT, SHARE_KEEP_NONE));
	share_buffer *a = allocate(p, UNIT, NULL), *b = allocate(p, UNIT - 65536, NULL), *none;

	check_error(share_alloc(p, 65537, NULL, &none), SHARE_ENOMEM);
	check_detail(
	    "pool 'test' has no room for 65537 bytes: limit 4MiB, in use 3.9MiB, largest "
	    "free block 64KiB; this process");
	check_error(share_alloc(p, 3 * UNIT, NULL, &none), SHARE_ENOMEM);
	check_detail("pool 'test' can never hold a buffer of 6MiB: at most 4MiB");
	check_ok(share_release(allocate(p, 65536, NULL), NULL));
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_buffer_larger_than_a_segment_gets_its_own)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(64 * UNIT, UNIT, SHARE_KEEP_NONE));
	share_buffer *small = allocate(p, 1000, NULL), *large = allocate(p, 5 * UNIT + 1, NULL);

	settle(c, s.segments == 2 && s.segment_bytes >= 6 * (int64_t)UNIT + 1 &&
		      s.segment_bytes < 9 * (int64_t)UNIT);
	buffer_fill(large, 1);
	check_ok(share_release(large, NULL));
	settle(c, s.segments == 1);
	check_ok(share_release(small, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(the_last_segment_is_what_the_limit_leaves)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(5 * UNIT, 2 * UNIT, SHARE_KEEP_NONE));
	share_buffer *a = allocate(p, 2 * UNIT, NULL), *b = allocate(p, 2 * UNIT, NULL),
		     *d = allocate(p, UNIT, NULL), *none;

	check_error(share_alloc(p, 1, NULL, &none), SHARE_ENOMEM);
	settle(c, s.segment_bytes == 5 * (int64_t)UNIT);
	check_ok(share_release(a, NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_release(d, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(a_whole_pool_can_be_one_aligned_buffer_again_and_again)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(4 * UNIT, 4 * UNIT, 0));
	share_buffer *b;

	options.alignment = 2 * MIB;
	for (int i = 0; i < 10; i++) {
		check_ok(share_alloc_with(p, 4 * UNIT, &options, NULL, &b));
		check_ok(share_release(b, NULL));
		check_ok(share_alloc(p, 4 * UNIT - 5000, NULL, &b));
		check_ok(share_release(b, NULL));
	}
	settle(c, s.segments == 1);
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(neighbours_that_are_released_become_one_block)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(UNIT, UNIT, 0));
	share_buffer *b[16], *whole;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 16; i++)
			b[i] = allocate(p, UNIT / 16, NULL);
		for (int i = 0; i < 16; i += 2)
			check_ok(share_release(b[i], NULL));
		check_error(share_alloc(p, UNIT / 8, NULL, &whole), SHARE_ENOMEM);
		check_detail("largest free block 128KiB");
		for (int i = 1; i < 16; i += 2)
			check_ok(share_release(b[i], NULL));
		whole = allocate(p, UNIT, NULL);
		check_ok(share_release(whole, NULL));
	}
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(sizes_that_no_pool_can_have_are_refused_and_cost_nothing)
{
	static const uint64_t sizes[] = {UINT64_C(1) << 41, UINT64_C(1) << 62, INT64_MAX,
					 UINT64_MAX - 4096, UINT64_MAX - 1,    UINT64_MAX};
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(UINT64_MAX, UNIT, SHARE_KEEP_NONE));
	share_buffer *none = NULL;

	for (size_t i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_error(share_alloc(p, sizes[i / 3], NULL, &none), SHARE_ENOMEM);
		settle(c, s.segments == 0 && s.segment_bytes == 0);
	}
	check_error(share_alloc(p, 0, NULL, &none), SHARE_EINVAL);
	check(none == NULL);
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* What is empty goes back                                                                     */

ConformanceTest(empty_segments_beyond_the_threshold_go_back)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(8 * UNIT, UNIT, 2 * UNIT));
	share_buffer *b[6];

	for (int i = 0; i < 6; i++)
		b[i] = allocate(p, UNIT, NULL);
	for (int i = 0; i < 6; i++)
		check_ok(share_release(b[i], NULL));
	settle(c, s.segments == 2 && s.segment_bytes == 2 * (int64_t)UNIT);
	share_pool_close(p);
	settle(c, s.segments == 0 && s.segment_bytes == 0);
	share_disconnect(c);
}

ConformanceTest(a_segment_with_one_buffer_in_it_stays)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(8 * UNIT, UNIT, SHARE_KEEP_NONE));
	share_buffer *small = allocate(p, 1, NULL), *b[3];

	buffer_fill(small, 'x');
	for (int i = 0; i < 3; i++)
		b[i] = allocate(p, UNIT / 2, NULL);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], NULL));
	settle(c, s.segments == 1 && s.buffers == 1);
	buffer_expect(small, 'x');
	check_ok(share_release(small, NULL));
	settle(c, s.segments == 0);
	share_pool_close(p);
	share_disconnect(c);
}

static void maps_and_rests(struct child *self, void *data)
{
	share_client *c = child_connect("resting one");
	share_buffer *b;

	(void)data;
	child_point(self, "connected");
	check_ok(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	check_ok(share_ping(c));
	child_point(self, "resting");
	check_ok(share_ping(c));
	child_point(self, "called");
	/* the memory comes again, in whatever segment */
	check_ok(share_lookup(c, "name", SHARE_RDWR, -1, NULL, &b));
	check(buffer_reads(b, "again"));
	check_ok(share_release(b, NULL));
	share_disconnect(c);
}

ConformanceTest(an_empty_segment_that_a_client_maps_goes_with_its_next_call)
{
	struct child *child = child_start(maps_and_rests, NULL);
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(8 * UNIT, UNIT, SHARE_KEEP_NONE));
	share_buffer *b = allocate(p, UNIT, NULL);
	json_t *rows, *row;

	check_ok(share_publish(b, "name", NULL));
	child_wait(child, "connected");
	child_go(child);
	child_wait(child, "resting");
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(b, NULL));
	/* its memory is not the pool's any more, only its mapping is left; which keeps that of a
	 * device, as nobody can take it away */
	settle(c, s.segments == 1 && s.segment_bytes == (is_host(kind) ? 0 : (int64_t)UNIT));
	/* once what the streams had to do is done */
	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS);; json_decref(rows)) {
		rows = report(c, "segments");
		row = json_array_get(rows, 0);
		if (number_of(row, "unmapping") == 1 || !deadline_pause(&d))
			break;
	}
	check(strcmp(json_string_value(json_object_get(row, "state")), "retiring") == 0);
	check_eq(number_of(row, "unmapping"), 1);
	json_decref(rows);
	child_go(child);
	child_wait(child, "called");
	settle(c, s.segments == 0);

	b = allocate(p, 4096, NULL);
	buffer_write(b, "again");
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
	child_go(child);
	child_finish(child);
	share_pool_close(p);
	share_disconnect(c);
}

ConformanceTest(memory_that_went_back_can_be_had_again_at_once)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, sized(2 * UNIT, UNIT, SHARE_KEEP_NONE));

	for (int i = 0; i < 100; i++) {
		share_buffer *a = allocate(p, UNIT, NULL), *b = allocate(p, UNIT, NULL);

		buffer_fill(a, i);
		buffer_fill(b, i);
		check_ok(share_release(a, NULL));
		check_ok(share_release(b, NULL));
	}
	settle(c, s.segments == 0);
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Pools that end                                                                              */

ConformanceTest(a_destroyed_pool_takes_no_new_buffers_and_ends_with_its_last)
{
	share_client *c = connect_as("test");
	share_pool *p = conformance_pool(c, kind, OPTIONS), *again;
	share_buffer *b = allocate(p, 4096, NULL), *none = NULL;

	buffer_write(b, "still here");
	check_ok(share_pool_destroy(c, "test"));
	check_error(share_pool_open(c, "test", &again), SHARE_ENOENT);
	check_error(share_pool_destroy(c, "test"), SHARE_ENOENT);
	check_error(share_alloc(p, 1, NULL, &none), SHARE_ENOENT);
	/* the name is free, though the old one is not at its end */
	again = conformance_pool(c, kind, OPTIONS);
	settle(c, s.pools == 3);
	check(buffer_reads(b, "still here"));
	share_pool_close(p);
	check_ok(share_release(b, NULL));
	settle(c, s.pools == 2);
	share_pool_close(again);
	settle(c, s.pools == 1);
	share_disconnect(c);
}

ConformanceTest(a_persistent_pool_stays_without_users)
{
	share_client *c = connect_as("test");
	share_pool_options options = OPTIONS;
	share_pool *p;

	options.flags = SHARE_POOL_PERSISTENT;
	share_pool_close(conformance_pool(c, kind, options));
	settle(c, s.pools == 2);
	check_ok(share_pool_open(c, "test", &p));
	check_ok(share_release(allocate(p, 1, NULL), NULL));
	share_pool_close(p);
	check_ok(share_pool_destroy(c, "test"));
	settle(c, s.pools == 1);
	share_disconnect(c);
}

ConformanceTest(options_that_contradict_themselves_are_refused)
{
	static const struct {
		uint64_t limit, segment, alignment;
		uint32_t flags;
	} bad[] = {
	    {4096, 0, 0, 0},        {0, 4096, 0, 0},
	    {UNIT, 2 * UNIT, 0, 0}, {0, UINT64_MAX, 0, 0},
	    {0, 0, 1000, 0},        {0, 0, 256, 0},
	    {0, 0, 4 * UNIT, 0},    {65536, 65536, UNIT, 0},
	    {0, 0, UINT64_MAX, 0},  {0, UINT64_MAX / 2, 0, 0},
	    {0, 0, 0, 8},           {0, 0, 0, 0x80000001},
	};
	share_client *c = connect_as("test");
	share_pool *p = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		share_pool_options options = OPTIONS;

		options.kind = kind;
		options.limit = bad[i].limit;
		options.segment_size = bad[i].segment;
		options.alignment = bad[i].alignment;
		options.flags = bad[i].flags;
		check_error(share_pool_create(c, "test", &options, &p), SHARE_EINVAL);
	}
	check(p == NULL);
	p = conformance_pool(c, kind, OPTIONS);
	check_error(share_pool_create(c, "test", NULL, &p), SHARE_EEXIST);
	share_pool_close(p);
	settle(c, s.pools == 1);
	share_disconnect(c);
}
