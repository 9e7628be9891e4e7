/* SPDX-License-Identifier: MIT */

/*
 * The stand-in driver's streams: order within one and across them, values that they write and wait
 * for, capture, and streams that are parked.
 */

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/standin/peer.h"

#define GEQ CU_STREAM_WAIT_VALUE_GEQ

TestSuite(standin_order, .timeout = 60);

/* Waits until so many streams have reached their wait: their marks are written before it. */
static void wait_until(_Atomic uint64_t *cell, uint64_t value)
{
	while (atomic_load(cell) != value)
		usleep(100);
}

/* ---- streams ---- */

struct note {
	unsigned at[4], count;
};

static void CUDA_CB note_first(void *data)
{
	struct note *n = data;

	n->at[0] = ++n->count;
}

static void CUDA_CB note_second(void *data)
{
	struct note *n = data;

	n->at[1] = ++n->count;
}

Test(standin_order, a_stream_does_its_work_in_order)
{
	struct note n = {0};
	CUstream s;

	standin_configure("");
	use_context();
	s = stream_create();
	MUST(cuLaunchHostFunc(s, note_first, &n));
	MUST(cuLaunchHostFunc(s, note_second, &n));
	MUST(cuStreamSynchronize(s));
	CHECK(n.at[0] == 1 && n.at[1] == 2);
	MUST(cuStreamDestroy(s));
	CHECK_RESULT(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
}

Test(standin_order, a_waiting_stream_holds_up_itself_only)
{
	_Atomic uint64_t *page;
	CUstream waiting, other;

	standin_configure("");
	use_context();
	page = cells();
	use_page(page);
	waiting = stream_create();
	other = stream_create();
	MUST(cuStreamWaitValue64(waiting, CELL(page), 5, GEQ));
	MUST(cuStreamWriteValue64(waiting, CELL(page + 1), 1, 0));
	MUST(cuStreamWriteValue64(other, CELL(page + 2), 1, 0));
	MUST(cuStreamSynchronize(other));
	CHECK(page[2] == 1 && page[1] == 0);
	CHECK_RESULT(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	page[0] = 5;
	MUST(cuStreamSynchronize(waiting));
	CHECK(page[1] == 1);
	MUST(cuStreamQuery(waiting));
}

Test(standin_order, values_are_compared_cyclically)
{
	_Atomic uint64_t *page;
	CUstream s;

	standin_configure("");
	use_context();
	page = cells();
	use_page(page);
	s = stream_create();
	/* just before the wrap is before just after it */
	page[0] = UINT64_MAX - 1;
	MUST(cuStreamWaitValue64(s, CELL(page), 3, GEQ));
	CHECK_RESULT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	page[0] = 3;
	MUST(cuStreamSynchronize(s));
	MUST(cuStreamWaitValue64(s, CELL(page), UINT64_MAX - 1, GEQ));
	MUST(cuStreamSynchronize(s));
	page[0] = (UINT64_C(1) << 62) + 3;
	MUST(cuStreamWaitValue64(s, CELL(page), 4, GEQ));
	MUST(cuStreamSynchronize(s));
}

Test(standin_order, a_batch_waits_and_then_writes)
{
	CUstreamBatchMemOpParams steps[2] = {0};
	_Atomic uint64_t *page;
	CUstream s;

	standin_configure("");
	use_context();
	page = cells();
	use_page(page);
	s = stream_create();
	steps[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	steps[0].waitValue.address = CELL(page);
	steps[0].waitValue.value64 = 1;
	steps[0].waitValue.flags = GEQ;
	steps[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	steps[1].writeValue.address = CELL(page + 1);
	steps[1].writeValue.value64 = 8;
	MUST(cuStreamBatchMemOp(s, 2, steps, 0));
	CHECK_RESULT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	CHECK(page[1] == 0);
	page[0] = 1;
	MUST(cuStreamSynchronize(s));
	CHECK(page[1] == 8);
}

static void *open_gate(void *cell)
{
	*(_Atomic uint64_t *)cell = 1;
	return NULL;
}

Test(standin_order, memory_is_registered_until_the_work_that_uses_it_is_done)
{
	_Atomic uint64_t *gate, *page;
	pthread_t thread;
	CUstream s;

	standin_configure("");
	use_context();
	gate = cells();
	page = cells();
	use_page(gate);
	use_page(page);
	s = stream_create();
	MUST(cuStreamWaitValue64(s, CELL(gate), 1, GEQ));
	MUST(cuStreamWriteValue64(s, CELL(page), 8, 0));
	CHECK(pthread_create(&thread, NULL, open_gate, gate) == 0);
	MUST(cuMemHostUnregister(plain(page)));
	CHECK(page[0] == 8);
	CHECK(pthread_join(thread, NULL) == 0);
}

Test(standin_order, values_lie_in_registered_memory)
{
	_Atomic uint64_t *page;
	CUdeviceptr p;
	CUstream s;

	standin_configure("");
	use_context();
	page = cells();
	s = stream_create();
	CHECK_RESULT(cuStreamWriteValue64(s, CELL(page), 1, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemHostGetDevicePointer(&p, plain(page), 0), CUDA_ERROR_INVALID_VALUE);
	use_page(page);
	CHECK_RESULT(cuMemHostRegister(plain(page), PAGE, 0),
		     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	MUST(cuMemHostGetDevicePointer(&p, plain(page), 0));
	MUST(cuStreamWriteValue64(s, p, 1, 0));
	CHECK_RESULT(cuStreamWriteValue64(s, p + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuStreamWriteValue64(s, p + PAGE, 1, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuStreamSynchronize(s));
	MUST(cuMemHostUnregister(plain(page)));
	CHECK_RESULT(cuMemHostUnregister(plain(page)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CHECK_RESULT(cuStreamWriteValue64(s, CELL(page), 1, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(standin_order, a_gpu_write_through_a_readonly_registration_breaks_the_context)
{
	int fd = memfd_create("page", MFD_CLOEXEC);
	_Atomic uint64_t *page;
	CUstream s;

	standin_configure("");
	use_context();
	CHECK(ftruncate(fd, PAGE) == 0);
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK_RESULT(cuMemHostRegister(plain(page), PAGE, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemHostRegister(plain(page), PAGE, CU_MEMHOSTREGISTER_READ_ONLY));
	s = stream_create();
	MUST(cuStreamWaitValue64(s, CELL(page), 0, GEQ));
	MUST(cuStreamSynchronize(s));
	MUST(cuStreamWriteValue64(s, CELL(page), 1, 0));
	CHECK_RESULT(cuStreamSynchronize(s), CUDA_ERROR_LAUNCH_FAILED);
	CHECK_RESULT(cuStreamCreate(&s, 0), CUDA_ERROR_LAUNCH_FAILED);
	CHECK(page[0] == 0);
}

Test(standin_order, streams_have_numbers_that_are_never_used_again)
{
	unsigned long long last = 0, id, legacy, per_thread;

	standin_configure("");
	use_context();
	MUST(cuStreamGetId(NULL, &legacy));
	MUST(cuStreamGetId(CU_STREAM_LEGACY, &id));
	CHECK(id == legacy);
	MUST(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread));
	CHECK(per_thread != legacy);
	for (int i = 0; i < 100; i++) {
		CUstream s = stream_create();

		MUST(cuStreamGetId(s, &id));
		CHECK(id > last && id != legacy && id != per_thread);
		last = id;
		MUST(cuStreamDestroy(s));
	}
}

Test(standin_order, a_capturing_stream_does_nothing_now)
{
	CUstreamCaptureStatus status;
	_Atomic uint64_t *page;
	CUgraph graph;
	CUstream s;

	standin_configure("");
	use_context();
	page = cells();
	use_page(page);
	s = stream_create();
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(cuStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	MUST(cuStreamWriteValue64(s, CELL(page), 1, 0));
	MUST(cuStreamEndCapture(s, &graph));
	MUST(cuStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
	MUST(cuStreamSynchronize(s));
	CHECK(page[0] == 0);
	MUST(cuGraphDestroy(graph));
}

Test(standin_order, to_ask_for_the_identifier_of_a_captured_stream_spoils_the_capture)
{
	CUstreamCaptureStatus status;
	unsigned long long id;
	CUcontext context;
	CUgraph graph;
	CUstream s;

	standin_configure("");
	use_context();
	s = stream_create();
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamGetCtx(s, &context));
	CHECK(cuStreamGetId(s, &id) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK(cuStreamGetCtx(s, &context) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	MUST(cuStreamIsCapturing(s, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	CHECK(cuStreamEndCapture(s, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	MUST(cuStreamGetId(s, &id));
}

static void *register_page(void *mode)
{
	_Atomic uint64_t *page = cells();

	use_context();
	if (mode) {
		CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

		MUST(cuThreadExchangeStreamCaptureMode(&relaxed));
		CHECK(relaxed == CU_STREAM_CAPTURE_MODE_GLOBAL);
	}
	return (void *)(uintptr_t)cuMemHostRegister(plain(page), PAGE, 0);
}

static CUresult register_elsewhere(void *mode)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, register_page, mode) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	return (CUresult)(uintptr_t)result;
}

Test(standin_order, what_is_not_safe_while_somebody_captures_is_refused_unless_relaxed)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	_Atomic uint64_t *page;
	CUgraph graph;
	char relaxed;
	CUstream s;

	standin_configure("");
	use_context();
	page = cells();
	s = stream_create();
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_RESULT(cuMemHostRegister(plain(page), PAGE, 0),
		     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_RESULT(register_elsewhere(NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_RESULT(register_elsewhere(&relaxed), CUDA_SUCCESS);
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	MUST(cuMemHostRegister(plain(page), PAGE, 0));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	/* what is not refused does no harm; a thread's own forbids itself only */
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK_RESULT(register_elsewhere(NULL), CUDA_SUCCESS);
	MUST(cuStreamEndCapture(s, &graph));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK_RESULT(cuMemHostUnregister(plain(page)), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK_RESULT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	MUST(cuMemHostUnregister(plain(page)));
}

Test(standin_order, the_legacy_stream_is_not_asked_for_while_one_ordered_with_it_is_captured)
{
	CUstreamCaptureStatus status;
	CUstream blocking;
	CUgraph graph;

	standin_configure("");
	use_context();
	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	MUST(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK_RESULT(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	MUST(cuStreamEndCapture(blocking, &graph));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamIsCapturing(NULL, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Parks streams, each of which has left a mark first. */
static void park(_Atomic uint64_t *page, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		CUstream s = stream_create();

		MUST(cuStreamWriteValue64(s, CELL(page + 8 + i), 1, 0));
		MUST(cuStreamWaitValue64(s, CELL(page), 1, GEQ));
	}
	for (unsigned i = 0; i < count; i++)
		wait_until(page + 8 + i, 1);
}

Test(standin_order, one_parked_stream_less_than_connections_hold_up_nobody)
{
	_Atomic uint64_t *page;
	CUstream other;

	standin_configure("connections=4");
	use_context();
	page = cells();
	use_page(page);
	other = stream_create();
	park(page, 3);
	MUST(cuStreamWriteValue64(other, CELL(page + 1), 1, 0));
	MUST(cuStreamSynchronize(other));
	CHECK(page[1] == 1);
	page[0] = 1;
	MUST(cuCtxSynchronize());
}

/* Whether a write of @value by that stream is done soon. A mark is written just before its stream
 * parks, so the first ones may still be. */
static bool written_soon(CUstream stream, _Atomic uint64_t *cell, uint64_t value)
{
	MUST(cuStreamWriteValue64(stream, CELL(cell), value, 0));
	for (int i = 0; i < 500; i++) {
		if (atomic_load(cell) == value)
			return true;
		usleep(1000);
	}
	return false;
}

/* If it were not so, this would not end. */
Test(standin_order, as_many_parked_streams_as_connections_hold_up_all)
{
	_Atomic uint64_t *page;
	uint64_t value = 1;
	CUstream other;

	standin_configure("connections=4");
	use_context();
	page = cells();
	use_page(page);
	other = stream_create();
	park(page, 4);
	while (written_soon(other, page + 1, value))
		value++;
	page[0] = 1;
	MUST(cuCtxSynchronize());
	CHECK(page[1] == value);
}

static _Atomic uint64_t *parking;

static void leave_a_waiting_stream(int channel)
{
	CUstream s;

	(void)channel;
	use_context();
	use_page(parking);
	s = stream_create();
	MUST(cuStreamWriteValue64(s, CELL(parking + 1), 1, 0));
	MUST(cuStreamWaitValue64(s, CELL(parking), 1, GEQ));
	wait_until(parking + 1, 1);
	exit(0);
}

Test(standin_order, a_process_ends_though_its_streams_wait)
{
	struct peer p;

	standin_configure("");
	parking = cells();
	p = peer_start(leave_a_waiting_stream);
	peer_finish(&p);
}
