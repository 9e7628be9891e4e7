/* SPDX-License-Identifier: MIT */

/*
 * Streams that are being captured into a graph. A fence put into a graph would be signaled at each
 * of its launches and not once, so whatever has to enqueue something there is refused, says what to
 * do instead, changes nothing, and leaves the capture as good as it was.
 */

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_capture, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { GATE };

static const CUstreamCaptureMode modes[] = {
    CU_STREAM_CAPTURE_MODE_GLOBAL,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_MODE_RELAXED,
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void begin(void *stream, CUstreamCaptureMode mode)
{
	GPU_CALL(PFN_cuStreamBeginCapture_v10010, cuStreamBeginCapture_v2, stream, mode);
}

/* It was not spoilt, and a graph came out. */
static void end(void *stream)
{
	CUgraph graph = NULL;

	GPU_CALL(PFN_cuStreamEndCapture_v10000, cuStreamEndCapture, stream, &graph);
	check(graph != NULL);
	GPU_CALL(PFN_cuGraphDestroy_v10000, cuGraphDestroy, graph);
}

#define check_refused(call)                         \
	do {                                        \
		check_error(call, SHARE_ENOTSUP);   \
		check_detail("captured");           \
		check_detail("after it has ended"); \
	} while (0)

static void expect_giving_refused(share_buffer *b, void *stream)
{
	share_fence fence = {17, 18};
	share_token token;

	check_refused(share_publish(b, "work", stream));
	check_refused(share_export(b, stream, &token));
	check_refused(share_fence_record(gpu_client, 0, stream, &fence));
	check_eq(fence.timeline, 17);
	check_refused(share_release(b, stream));
}

Test(gpu_capture, giving_a_buffer_on_a_captured_stream_is_refused_and_the_handle_is_kept)
{
	share_buffer *b, *found = NULL;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	for (size_t i = 0; i < MODES; i++) {
		begin(stream, modes[i]);
		gpu_fill(stream, b, 1);
		expect_giving_refused(b, stream);
		end(stream);
		check_eq(share_size(b), GPU_BLOCK);
		settle(gpu_client, s.leases == 1 && s.names == 0 && s.tokens == 0);
	}
	check_error(share_lookup(gpu_client, "work", SHARE_RDWR, 0, stream, &found), SHARE_ENOENT);
	check_eq(gpu_stats(gpu_client).signals, 0);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

/* While a stream is captured that is ordered with the legacy one, that one is out of bounds too. */
Test(gpu_capture, giving_a_buffer_on_the_legacy_stream_beside_a_capture_is_refused)
{
	share_buffer *b;
	CUstream stream;

	gpu_use();
	GPU_CALL(PFN_cuStreamCreate_v2000, cuStreamCreate, &stream, CU_STREAM_DEFAULT);
	b = gpu_allocate(gpu_client, stream);
	for (size_t i = 0; i < MODES; i++) {
		begin(stream, modes[i]);
		gpu_fill(stream, b, 1);
		check_refused(share_release(b, NULL));
		check_refused(
		    share_fence_record(gpu_client, 0, CU_STREAM_LEGACY, &(share_fence){0}));
		end(stream);
	}
	check_ok(share_release(b, NULL));
	gpu_wait(NULL);
	gpu_stream_destroy(stream);
}

Test(gpu_capture, acquiring_what_others_are_still_working_on_is_refused_and_nothing_is_held)
{
	share_buffer *b, *none = NULL;
	share_fence fence;
	share_token token;
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;
	void *stream, *busy;

	options.uses = SHARE_USES_UNLIMITED;
	gpu_use();
	stream = gpu_stream();
	busy = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	gpu_hold(busy, GATE);
	check_ok(share_publish(b, "work", busy));
	check_ok(share_export_with(b, &options, busy, &token));
	check_ok(share_fence_record(gpu_client, 0, busy, &fence));
	for (size_t i = 0; i < MODES; i++) {
		begin(stream, modes[i]);
		check_refused(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &none));
		check_refused(share_import(gpu_client, &token, 0, stream, &none));
		check_refused(share_fence_wait(gpu_client, &fence, 0, stream));
		end(stream);
		settle(gpu_client, s.leases == 1);
	}
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_revoke(gpu_client, &token));
	check_ok(share_release(b, busy));
	for (size_t i = 0; i < MODES; i++) {
		begin(stream, modes[i]);
		check_refused(share_alloc(gpu_pool, GPU_BLOCK, stream, &none));
		end(stream);
		settle(gpu_client, s.leases == 0);
	}
	check(none == NULL);
	check_eq(gpu_stats(gpu_client).waits, 0);
	gpu_open(GATE);
	gpu_wait(busy);
	gpu_stream_destroy(stream);
	gpu_stream_destroy(busy);
}

/* Nothing is enqueued then, so it does not matter what the stream is doing. */
Test(gpu_capture, acquiring_what_is_ready_works_though_the_first_buffer_maps_its_memory)
{
	share_buffer *b;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	for (size_t i = 0; i < MODES; i++) {
		begin(stream, modes[i]);
		b = gpu_allocate(gpu_client, stream);
		gpu_fill(stream, b, 1);
		end(stream);
		check_ok(share_release(b, stream));
		gpu_wait(stream);
		/* its segment goes, as it is empty */
		settle(gpu_client, s.segments == 0);
	}
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */

static void start_on_two_devices(void)
{
	gpu_work_start_on("devices=2");
}

TestSuite(gpu_capture_on_two, .init = start_on_two_devices, .fini = gpu_work_stop, .timeout = 60);

Test(gpu_capture_on_two, acquiring_what_is_mapped_works_though_another_device_has_to_reach_it)
{
	struct failure failure;
	share_buffer *b, *found;
	const struct cuda *cu;
	CUcontext second;
	void *stream;

	gpu_use();
	check_ok(cuda_get(&cu, &failure));
	b = gpu_allocate(gpu_client, NULL);
	check_ok(share_publish(b, "work", NULL));
	gpu_wait(NULL);
	gpu_check("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&second, 1));
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(second));
	stream = gpu_stream();
	begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
	check_ok(share_lookup(gpu_client, "work", SHARE_RDWR, 0, stream, &found));
	end(stream);
	check_ok(share_release(found, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	gpu_check("cuCtxPopCurrent", cu->CtxPopCurrent(&second));
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, NULL));
	gpu_wait(NULL);
}
