/* SPDX-License-Identifier: MIT */

/*
 * Magazines of GPU memory. On one stream a warm pair of calls enqueues nothing that others can see;
 * whoever else gets the block comes after that stream, which may be gone by then.
 */

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_magazine, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { FIRST }; /* gates */

#define SMALL (UINT64_C(64) << 10)
#define AGAIN 8 /* streams made until one has the handle of one that is gone */

/* The pool has one block, and this client may keep it. */
static share_buffer *first_block(void *stream)
{
	share_buffer *b = gpu_allocate(gpu_client, stream);

	check_ok(share_pool_set_cache(gpu_pool, GPU_BLOCK));
	return b;
}

static share_fence_stats now(void)
{
	return gpu_stats(gpu_client);
}

Test(gpu_magazine, a_warm_pair_of_calls_on_one_stream_neither_signals_nor_waits)
{
	share_fence_stats before, after;
	share_buffer *b;
	void *s, *address;

	gpu_use();
	s = gpu_stream();
	b = first_block(s);
	address = share_ptr(b);
	gpu_hold(s, FIRST);
	check_ok(share_release(b, s));
	before = now();
	for (int i = 0; i < 100; i++) {
		b = gpu_allocate(gpu_client, s);
		check(share_ptr(b) == address);
		check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
		check_ok(share_release(b, s));
	}
	after = now();
	check_eq(after.signals, before.signals);
	check_eq(after.waits, before.waits);
	check_eq(after.host_signals, 0);
	check_eq(after.host_waits, 0);
	gpu_open(FIRST);
	gpu_wait(s);
	gpu_stream_destroy(s);
}

Test(gpu_magazine, another_stream_comes_after_the_one_that_used_it)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *t;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = first_block(s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	b = gpu_allocate(gpu_client, t);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_eq(now().host_waits, 0);
	check_eq(now().parked, 0); /* nobody else can hold it up */
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	check_ok(share_release(b, t));
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
}

Test(gpu_magazine, the_stream_may_be_gone_when_another_gets_the_block)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *t;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = first_block(s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	gpu_stream_destroy(s);
	b = gpu_allocate(gpu_client, t);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	check_ok(share_release(b, t));
	gpu_wait(t);
	gpu_stream_destroy(t);
}

Test(gpu_magazine, what_goes_back_is_signaled_for_whoever_gets_it_next)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *t;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = first_block(s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	gpu_stream_destroy(s);
	check_ok(share_pool_set_cache(gpu_pool, 0));
	check_eq(now().signals, 1);
	b = gpu_allocate(gpu_client, t);
	check_eq(now().waits, 1);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	check_ok(share_release(b, t));
	gpu_wait(t);
	gpu_stream_destroy(t);
}

Test(gpu_magazine, another_stream_comes_after_the_last_of_what_one_did)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *t;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = first_block(s);
	check_ok(share_release(b, s));
	b = gpu_allocate(gpu_client, s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	b = gpu_allocate(gpu_client, t);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	check_ok(share_release(b, t));
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
}

/* Which was never ordered after the other. */
static void release_on(void *idle)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s = gpu_stream();

	b = first_block(s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	b = gpu_allocate(gpu_client, s);
	check_ok(share_release(b, idle));
	b = gpu_allocate(gpu_client, idle);
	reading = gpu_read(idle, b);
	gpu_expect_held(idle, FIRST);
	gpu_open(FIRST);
	gpu_wait(idle);
	gpu_expect(reading, 1);
	check_ok(share_release(b, idle));
	gpu_stream_destroy(s);
}

Test(gpu_magazine, a_stream_that_used_nothing_does_not_hide_the_one_that_did)
{
	void *idle;

	gpu_use();
	idle = gpu_stream();
	release_on(idle);
	gpu_stream_destroy(idle);
}

Test(gpu_magazine, the_default_stream_does_not_hide_the_one_that_did)
{
	gpu_use();
	release_on(NULL);
}

Test(gpu_magazine, work_in_a_context_of_the_programs_own_is_waited_for)
{
	struct gpu_reading *reading;
	CUcontext own, popped;
	share_buffer *b;
	void *s, *t;

	gpu_use();
	t = gpu_stream();
	GPU_CALL(PFN_cuCtxCreate_v3020, cuCtxCreate_v2, &own, 0, 0);
	s = gpu_stream();
	b = first_block(s);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	GPU_CALL(PFN_cuCtxPopCurrent_v4000, cuCtxPopCurrent_v2, &popped);
	b = gpu_allocate(gpu_client, t);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	check_ok(share_release(b, t));
	gpu_wait(t);
	gpu_stream_destroy(t);
	GPU_CALL(PFN_cuCtxDestroy_v4000, cuCtxDestroy_v2, own);
}

/* ------------------------------------------------------------------------------------------- */
/* Blocks that others get to know of while their stream is still busy with what was in them before
 */

/* The stream's own again, which is busy. */
static share_buffer *busy_block(void *stream)
{
	share_buffer *b = first_block(stream);

	gpu_hold(stream, FIRST);
	gpu_fill(stream, b, 1);
	check_ok(share_release(b, stream));
	return gpu_allocate(gpu_client, stream);
}

Test(gpu_magazine, who_is_given_a_block_comes_after_its_former_life)
{
	share_client *other = connect_as("receiver");
	struct gpu_reading *reading;
	share_buffer *b, *given;
	void *s, *giver, *receiver;

	gpu_use();
	s = gpu_stream();
	giver = gpu_stream();
	receiver = gpu_stream();
	b = busy_block(s);
	check_ok(share_publish(b, "given", giver)); /* which did nothing with it */
	check_ok(share_lookup(other, "given", SHARE_RDONLY, -1, receiver, &given));
	reading = gpu_read(receiver, given);
	gpu_expect_held(receiver, FIRST);
	gpu_open(FIRST);
	gpu_wait(receiver);
	gpu_expect(reading, 1);
	check_ok(share_unpublish(gpu_client, "given"));
	check_ok(share_release(given, receiver));
	check_ok(share_release(b, giver));
	gpu_wait(giver);
	gpu_wait(receiver);
	share_disconnect(other);
	gpu_stream_destroy(s);
	gpu_stream_destroy(giver);
	gpu_stream_destroy(receiver);
}

Test(gpu_magazine, the_broker_is_told_of_its_former_life_too)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *idle, *t;

	gpu_use();
	s = gpu_stream();
	idle = gpu_stream();
	t = gpu_stream();
	b = busy_block(s);
	check(share_id(b) != 0); /* so it is not kept */
	check_ok(share_release(b, idle));
	gpu_wait(idle);
	b = gpu_allocate(gpu_client, t);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	check_ok(share_release(b, t));
	gpu_wait(t);
	gpu_stream_destroy(s);
	gpu_stream_destroy(idle);
	gpu_stream_destroy(t);
}

/* ------------------------------------------------------------------------------------------- */

/* Small blocks, of which each thread has the last one at hand. */
static share_buffer *small_block(void *stream)
{
	share_buffer *b;

	check_ok(share_alloc(gpu_pool, SMALL, stream, &b));
	return b;
}

static share_buffer *first_small_block(void *stream)
{
	check_ok(share_pool_set_cache(gpu_pool, UINT64_C(128) << 20));
	return small_block(stream);
}

Test(gpu_magazine, a_block_at_hand_goes_to_another_stream_behind_the_one_that_used_it)
{
	struct gpu_reading *reading;
	share_buffer *b;
	void *s, *t, *address;

	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	b = first_small_block(s);
	address = share_ptr(b);
	gpu_hold(s, FIRST);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	b = small_block(s); /* its own: at once */
	check(share_ptr(b) == address);
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	check_ok(share_release(b, s));
	b = small_block(t);
	check(share_ptr(b) == address);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	reading = gpu_read(t, b);
	gpu_expect_held(t, FIRST);
	check_ok(share_release(b, t));
	gpu_open(FIRST);
	gpu_wait(t);
	gpu_expect(reading, 1);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
}

/* Makes streams until one has the handle of @gone, which a driver may give again, or not. */
static int make_again(void *gone, void *out[AGAIN])
{
	struct deadline d = deadline_in(HARNESS_LIMIT_MS);

	for (int n = 0; n < AGAIN; n++) {
		out[n] = gpu_stream();
		if (out[n] == gone)
			return n + 1;
		deadline_pause(&d);
	}
	for (int n = 0; n < AGAIN; n++)
		gpu_stream_destroy(out[n]);
	return 0;
}

Test(gpu_magazine, a_stream_with_the_handle_of_one_that_is_gone_is_another)
{
	void *streams[AGAIN], *s;
	share_buffer *b;
	int n;

	gpu_use();
	s = gpu_stream();
	b = first_small_block(s);
	gpu_fill(s, b, 1);
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
	n = make_again(s, streams);
	if (n == 0)
		cr_skip_test("this driver gives no handle of a stream again");
	b = small_block(s);
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_ok(share_release(b, s));
	gpu_wait(s);
	while (n > 0)
		gpu_stream_destroy(streams[--n]);
}

Test(gpu_magazine, blocks_at_hand_go_back_with_the_rest)
{
	void *stream;

	gpu_use();
	stream = gpu_stream();
	check_ok(share_release(first_small_block(stream), stream));
	settle(gpu_client, s.leases == 1);
	check_ok(share_pool_set_cache(gpu_pool, 0));
	settle(gpu_client, s.leases == 0);
	check_eq(now().signals, 1);
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

static void begin_capture(void *stream)
{
	GPU_CALL(PFN_cuStreamBeginCapture_v10010, cuStreamBeginCapture_v2, stream,
		 CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* It was not spoilt, and a graph came out. */
static void end_capture(void *stream)
{
	CUgraph graph = NULL;

	GPU_CALL(PFN_cuStreamEndCapture_v10000, cuStreamEndCapture, stream, &graph);
	check(graph != NULL);
	GPU_CALL(PFN_cuGraphDestroy_v10000, cuGraphDestroy, graph);
}

/* Of small blocks, the second comes with one that is kept, and that nobody has worked on. */
Test(gpu_magazine, a_stream_that_is_captured_gets_what_is_kept_and_nothing_works_on)
{
	share_fence_stats before, after;
	share_buffer *b[3];
	void *s;

	gpu_use();
	s = gpu_stream();
	check_ok(share_alloc(gpu_pool, SMALL, s, &b[0]));
	check_ok(share_alloc(gpu_pool, SMALL, s, &b[1]));
	before = now();
	begin_capture(s);
	check_ok(share_alloc(gpu_pool, SMALL, s, &b[2]));
	check_eq(gpu_ordered(b[2]), SHARE_ORDERED_NOTHING);
	end_capture(s);
	after = now();
	check_eq(after.signals, before.signals);
	check_eq(after.waits, before.waits);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(b[i], s));
	gpu_wait(s);
	gpu_stream_destroy(s);
}

/* Elsewhere than in a capture it would get that. */
Test(gpu_magazine, a_stream_that_is_captured_does_not_get_what_it_is_working_on_itself)
{
	share_buffer *b, *none = NULL;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = first_block(s);
	gpu_hold(s, FIRST);
	check_ok(share_release(b, s));
	begin_capture(s);
	check_error(share_alloc(gpu_pool, GPU_BLOCK, s, &none), SHARE_ENOTSUP);
	check_detail("captured");
	check(none == NULL);
	end_capture(s);
	gpu_open(FIRST);
	gpu_wait(s);
	gpu_stream_destroy(s);
}
