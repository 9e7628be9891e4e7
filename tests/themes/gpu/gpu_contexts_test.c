/* SPDX-License-Identifier: MIT */

/*
 * Programs with contexts of their own: streams of all are ordered, whichever is current, and what
 * the library has registered outlives each of them.
 */

#include <pthread.h>

#include <share/share.h>

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"

TestSuite(gpu_contexts, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { FIRST, SECOND }; /* gates */

static const struct cuda *cu;

static void use(void)
{
	struct failure failure;

	gpu_use();
	check_ok(cuda_get(&cu, &failure));
}

/* A context of the program's own, which is current then. */
static CUcontext create_context(void)
{
	CUcontext context;

	GPU_CALL(PFN_cuCtxCreate_v3020, cuCtxCreate_v2, &context, 0, 0);
	return context;
}

static void pop_context(void)
{
	CUcontext popped;

	gpu_check("cuCtxPopCurrent", cu->CtxPopCurrent(&popped));
}

struct elsewhere {
	void *stream;
	share_buffer *buffer;
};

/* Has no context of its own: what matters is the stream's. */
static void *acquire_without_context(void *data)
{
	struct elsewhere *e = data;

	e->buffer = gpu_allocate(gpu_client, e->stream);
	return NULL;
}

Test(gpu_contexts, a_stream_of_another_context_is_ordered_whatever_context_is_current)
{
	struct elsewhere e;
	CUcontext other;
	share_buffer *b;
	pthread_t thread;
	void *stream;

	use();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	gpu_hold(stream, FIRST);
	gpu_fill(stream, b, 1);
	check_ok(share_release(b, stream));
	other = create_context();
	e.stream = gpu_stream();
	pop_context();
	check(pthread_create(&thread, NULL, acquire_without_context, &e) == 0);
	check(pthread_join(thread, NULL) == 0);
	check_eq(gpu_ordered(e.buffer), SHARE_ORDERED_ON_STREAM);
	gpu_expect_others_run();
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(other));
	check(gpu_is_busy(e.stream));
	pop_context();
	gpu_open(FIRST);
	check_ok(share_release(e.buffer, e.stream));
	b = gpu_allocate(gpu_client, stream);
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(other));
	gpu_wait(e.stream);
	gpu_stream_destroy(e.stream);
	pop_context();
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	check_eq(gpu_stats(gpu_client).host_signals + gpu_stats(gpu_client).host_waits, 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Contexts that go                                                                            */

static void gives_twice(struct child *self, void *data)
{
	share_client *c = child_connect("giver");
	share_fence fences[2];
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	for (unsigned gate = FIRST; gate <= SECOND; gate++) {
		gpu_hold(stream, gate);
		check_ok(share_fence_record(c, 0, stream, &fences[gate]));
	}
	check_ok(share_publish(b, "work", NULL));
	gpu_wait(NULL); /* the look-up of it is not one of the waits that are counted */
	child_point_with(self, "given", fences, sizeof(fences));
	check_ok(share_unpublish(c, "work"));
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	share_disconnect(c);
}

/* The stream comes after the fence, and then signals one of the client's own. */
static void wait_and_signal(share_client *c, void *stream, const share_fence *fence, unsigned gate)
{
	share_fence own;

	check_ok(share_fence_wait(c, fence, 0, stream));
	check_ok(share_fence_record(c, 0, stream, &own));
	gpu_expect_held(stream, gate);
	check_error(share_fence_query(c, &own), SHARE_EAGAIN);
	gpu_open(gate);
	check_ok(share_fence_synchronize(c, &own, -1));
	gpu_wait(stream);
}

/* Both the client's own timelines and the giver's are first used in the one that goes. */
Test(gpu_contexts, a_context_that_the_program_destroys_takes_no_timelines_with_it)
{
	struct child *giver = child_start(gives_twice, NULL);
	share_client *c = connect_as("of many contexts");
	share_fence fences[2];
	CUcontext gone;
	share_buffer *b;
	void *stream;

	child_wait_with(giver, "given", fences, sizeof(fences));
	use();
	gone = create_context();
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, NULL, &b));
	stream = gpu_stream();
	wait_and_signal(c, stream, &fences[FIRST], FIRST);
	gpu_stream_destroy(stream);
	GPU_CALL(PFN_cuCtxDestroy_v4000, cuCtxDestroy_v2, gone);
	stream = gpu_stream();
	wait_and_signal(c, stream, &fences[SECOND], SECOND);
	check_eq(gpu_stats(c).waits, 2);
	check_eq(gpu_stats(c).signals, 2);
	check_eq(gpu_stats(c).host_signals + gpu_stats(c).host_waits, 0);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	share_disconnect(c);
	child_go(giver);
	child_finish(giver);
}

static bool primary_is_active(void)
{
	unsigned flags;
	int active;

	GPU_CALL(PFN_cuDevicePrimaryCtxGetState_v7000, cuDevicePrimaryCtxGetState, 0, &flags,
		 &active);
	return active;
}

static void uses_a_context_of_its_own(struct child *self, void *data)
{
	share_client *c = child_connect("of one context");
	CUcontext own;
	share_buffer *b;
	void *stream;

	(void)self, (void)data;
	use();
	own = create_context();
	gpu_check("cuDevicePrimaryCtxRelease", cu->DevicePrimaryCtxRelease(0));
	check(!primary_is_active());
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	check_ok(share_release(b, stream));
	check(primary_is_active());
	gpu_wait(stream);
	share_disconnect(c);
	check(!primary_is_active());
	gpu_stream_destroy(stream);
	GPU_CALL(PFN_cuCtxDestroy_v4000, cuCtxDestroy_v2, own);
}

Test(gpu_contexts, the_primary_context_is_kept_for_the_timelines_and_no_longer)
{
	child_finish(child_start(uses_a_context_of_its_own, NULL));
}

/* cuda.h lets nobody do that while others use the device; what comes of it is an error, that says
 * so. What a real driver then does is its own business. */
Test(gpu_contexts, a_primary_context_that_is_taken_away_is_an_error_that_says_so)
{
	share_client *c = connect_as("robbed");
	share_fence fence, again;
	share_buffer *b;
	CUcontext back;
	void *stream;

	skip_unless_standin();
	use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	check_ok(share_fence_record(c, 0, stream, &fence));
	check_ok(share_fence_synchronize(c, &fence, -1));
	gpu_stream_destroy(stream);
	pop_context();
	while (primary_is_active())
		gpu_check("cuDevicePrimaryCtxRelease", cu->DevicePrimaryCtxRelease(0));
	gpu_check("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&back, 0));
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(back));
	stream = gpu_stream();
	check_error(share_fence_record(c, 0, stream, &again), SHARE_EDEVICE);
	check_detail("the primary context of device 0");
	check_detail("connect again");
	check_ok(share_release(b, stream)); /* the host waits */
	gpu_stream_destroy(stream);
	share_disconnect(c);
}
