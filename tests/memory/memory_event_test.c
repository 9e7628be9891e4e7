/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events that an agent made, recorded and waited for in this process. As good on a
 * real device; the test for several devices needs more than one.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/stream.h"
#include "tests/agent/imports.h"

/* Cells of a page that streams wait for and write to. */
enum cell { GATE, BEFORE_RECORD, BEHIND_WAIT, ELSEWHERE };

static volatile uint64_t *cells;
static struct memory_page page;
static uint64_t agents_handle;
static unsigned char handle[64];

static void start(void)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_CREATE}, answer;
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert(p != MAP_FAILED);
	cells = p;
	imports_start();
	agent_ask(&agent, &m, WIRE_AGENT_EVENT, &answer, NULL);
	cr_assert_eq(answer.agent_event.ipc.size, sizeof(handle));
	memcpy(handle, answer.agent_event.ipc.data, sizeof(handle));
	agents_handle = answer.agent_event.handle;
}

static void end(void)
{
	imports_end();
}

TestSuite(memory_event, .init = start, .fini = end, .timeout = 60);

static void use_cells(void)
{
	cr_assert_eq(
	    memory_page_register(0, (void *)(uintptr_t)cells, 4096, false, &page, &failure), 0,
	    "%s", failure.text);
}

static struct memory_ipc_event *open_for(CUstream stream)
{
	struct memory_ipc_event *e;

	cr_assert_eq(memory_ipc_event_open(0, stream, handle, &e, &failure), 0, "%s", failure.text);
	return e;
}

static void record(struct memory_ipc_event *e, CUstream stream)
{
	cr_assert_eq(memory_ipc_event_record(e, stream, &failure), 0, "%s", failure.text);
}

static void wait_for(struct memory_ipc_event *e, CUstream stream)
{
	cr_assert_eq(memory_ipc_event_wait(e, stream, &failure), 0, "%s", failure.text);
}

static CUdeviceptr address(enum cell cell)
{
	return page.device + cell * sizeof(uint64_t);
}

static void write_cell(CUstream stream, enum cell cell)
{
	cr_assert_eq(cu->StreamWriteValue64(stream, address(cell), 1, 0), CUDA_SUCCESS);
}

static void wait_for_gate(CUstream stream, uint64_t value)
{
	cr_assert_eq(cu->StreamWaitValue64(stream, address(GATE), value, CU_STREAM_WAIT_VALUE_GEQ),
		     CUDA_SUCCESS);
}

static void finish(CUstream stream)
{
	cr_assert_eq(cu->StreamSynchronize(stream), CUDA_SUCCESS);
	cr_assert_eq(cu->StreamDestroy(stream), CUDA_SUCCESS);
}

/* ------------------------------------------------------------------------------------------- */

Test(memory_event, a_wait_is_for_what_was_recorded_when_it_was_called)
{
	struct memory_ipc_event *recorded, *waited;
	CUstream producer, consumer, other;

	use_device(0);
	use_cells();
	producer = stream_create();
	consumer = stream_create();
	other = stream_create();
	recorded = open_for(producer);
	waited = open_for(consumer);
	wait_for_gate(producer, 1);
	write_cell(producer, BEFORE_RECORD);
	record(recorded, producer);
	wait_for(waited, consumer);
	write_cell(consumer, BEHIND_WAIT);
	/* a second record that this wait is not for */
	wait_for_gate(producer, 2);
	record(recorded, producer);

	write_cell(other, ELSEWHERE);
	finish(other);
	cr_assert(cells[ELSEWHERE] == 1 && cells[BEHIND_WAIT] == 0);
	cells[GATE] = 1;
	finish(consumer);
	cr_assert(cells[BEFORE_RECORD] == 1 && cells[BEHIND_WAIT] == 1);
	cells[GATE] = 2;
	finish(producer);
	memory_ipc_event_close(recorded);
	memory_ipc_event_close(waited);
	memory_page_unregister(&page);
	leave_device(0);
}

Test(memory_event, what_was_never_recorded_holds_up_nobody)
{
	struct memory_ipc_event *e;
	CUstream stream;

	use_device(0);
	use_cells();
	stream = stream_create();
	e = open_for(stream);
	wait_for(e, stream);
	write_cell(stream, BEHIND_WAIT);
	finish(stream);
	cr_assert_eq(cells[BEHIND_WAIT], 1);
	memory_ipc_event_close(e);
	memory_ipc_event_close(NULL);
	memory_page_unregister(&page);
	leave_device(0);
}

Test(memory_event, closing_waits_for_nothing_and_takes_no_wait_away)
{
	struct memory_ipc_event *recorded, *waited;
	CUstream producer, consumer, other;

	use_device(0);
	use_cells();
	producer = stream_create();
	consumer = stream_create();
	other = stream_create();
	recorded = open_for(producer);
	waited = open_for(consumer);
	wait_for_gate(producer, 1);
	record(recorded, producer);
	wait_for(waited, consumer);
	write_cell(consumer, BEHIND_WAIT);
	memory_ipc_event_close(waited);
	memory_ipc_event_close(recorded);
	write_cell(other, ELSEWHERE);
	finish(other);
	cr_assert_eq(cells[BEHIND_WAIT], 0);
	cells[GATE] = 1;
	finish(consumer);
	finish(producer);
	cr_assert_eq(cells[BEHIND_WAIT], 1);
	memory_page_unregister(&page);
	leave_device(0);
}

Test(memory_event, without_a_context_of_the_callers_none_is_left_current)
{
	struct memory_ipc_event *e;
	CUstream stream;
	CUcontext context;

	use_device(0);
	context = current();
	stream = stream_create();
	cr_assert_eq(cu->CtxPopCurrent(&context), CUDA_SUCCESS);
	e = open_for(stream);
	cr_assert_null(current());
	record(e, stream);
	wait_for(e, stream);
	cr_assert_null(current());
	memory_ipc_event_close(e);
	cr_assert_null(current());
	/* and with a stream that any context has */
	e = open_for(NULL);
	record(e, NULL);
	wait_for(e, stream);
	memory_ipc_event_close(e);
	cr_assert_null(current());
	cr_assert_eq(cu->CtxPushCurrent(context), CUDA_SUCCESS);
	finish(stream);
	leave_device(0);
}

static void assert_captured(int r)
{
	cr_assert_eq(r, SHARE_ENOTSUP);
	cr_assert(strstr(failure.text, "captured into a graph"), "%s", failure.text);
	cr_assert(strstr(failure.text, "after the capture"), "%s", failure.text);
}

Test(memory_event, a_stream_that_is_captured_is_refused)
{
	struct memory_ipc_event *e, *none = NULL;
	CUstream stream, other;

	use_device(0);
	stream = stream_create();
	other = stream_create();
	e = open_for(other);
	begin_capture(stream);
	assert_captured(memory_ipc_event_open(0, stream, handle, &none, &failure));
	assert_captured(memory_ipc_event_record(e, stream, &failure));
	assert_captured(memory_ipc_event_wait(e, stream, &failure));
	cr_assert_null(none);
	/* the others are not captured */
	record(e, other);
	wait_for(e, other);
	memory_ipc_event_close(e);
	cr_assert(end_capture(stream));
	finish(other);
	leave_device(0);
}

static void assert_far(int r)
{
	cr_assert_eq(r, SHARE_ENOTSUP);
	cr_assert(strstr(failure.text, "of device 0 and the stream of device 1"), "%s",
		  failure.text);
}

static void assert_other_context(int r)
{
	cr_assert_eq(r, SHARE_EINVAL);
	cr_assert(strstr(failure.text, "another context"), "%s", failure.text);
}

/* The driver would take this process down. */
Test(memory_event, streams_of_another_device_are_refused)
{
	struct memory_ipc_event *e, *none = NULL;
	CUstream near, far;

	if (n_devices() < 2)
		cr_skip_test("there is one device");
	use_device(0);
	near = stream_create();
	use_device(1);
	far = stream_create();
	assert_far(memory_ipc_event_open(0, far, handle, &none, &failure));
	/* what every context has is that of the current one */
	assert_far(memory_ipc_event_open(0, NULL, handle, &none, &failure));
	cr_assert_null(none);
	e = open_for(near);
	assert_far(memory_ipc_event_record(e, far, &failure));
	assert_far(memory_ipc_event_record(e, NULL, &failure));
	assert_far(memory_ipc_event_wait(e, far, &failure));
	/* the stream brings its context along */
	record(e, near);
	wait_for(e, near);
	memory_ipc_event_close(e);
	leave_device(1);
	finish(near);
	leave_device(0);
}

/* A program's own, beside the primary one. */
static CUcontext push_context_of_its_own(void)
{
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUcontext context;

	*(void **)&create = symbol("cuCtxCreate_v2");
	cr_assert_eq(create(&context, 0, 0), CUDA_SUCCESS);
	return context;
}

Test(memory_event, a_handle_is_for_streams_of_the_context_it_was_first_used_in)
{
	struct memory_ipc_event *e, *another;
	CUstream first, second;
	CUcontext own;

	use_device(0);
	first = stream_create();
	own = push_context_of_its_own();
	second = stream_create();
	e = open_for(first);
	assert_other_context(memory_ipc_event_record(e, second, &failure));
	assert_other_context(memory_ipc_event_wait(e, second, &failure));
	cr_assert_eq(current(), own);
	record(e, first);
	another = open_for(second);
	wait_for(another, second);
	finish(second);
	memory_ipc_event_close(another);
	memory_ipc_event_close(e);
	cr_assert_eq(cu->CtxPopCurrent(&own), CUDA_SUCCESS);
	finish(first);
	leave_device(0);
}

/* The driver may need a current context to name that of the stream. Any will do, so the primary one
 * is entered for that, which does not make it the context of the event. */
Test(memory_event, without_a_current_context_the_one_of_the_stream_counts)
{
	struct memory_ipc_event *e;
	CUcontext primary, own;
	CUstream stream;

	use_device(0);
	own = push_context_of_its_own();
	stream = stream_create();
	cr_assert_eq(cu->CtxPopCurrent(&own), CUDA_SUCCESS);
	cr_assert_eq(cu->CtxPopCurrent(&primary), CUDA_SUCCESS);
	e = open_for(stream);
	record(e, stream);
	wait_for(e, stream);
	memory_ipc_event_close(e);
	cr_assert_null(current());
	cr_assert_eq(cu->CtxPushCurrent(primary), CUDA_SUCCESS);
	finish(stream);
	leave_device(0);
}

Test(memory_event, an_event_that_is_gone_cannot_be_opened)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_DESTROY}, answer;
	struct memory_ipc_event *none = NULL;
	const char *path = getenv("LD_LIBRARY_PATH");

	if (!path || !strstr(path, "standin"))
		cr_skip_test("what a real driver does then is not defined");
	m.agent_event_destroy.handle = agents_handle;
	agent_ask(&agent, &m, WIRE_AGENT_DONE, &answer, NULL);
	use_device(0);
	cr_assert_eq(memory_ipc_event_open(0, NULL, handle, &none, &failure), SHARE_EDEVICE);
	cr_assert(strstr(failure.text, "cuIpcOpenEventHandle: CUDA_ERROR_"), "%s", failure.text);
	cr_assert_null(none);
	leave_device(0);
}

Test(memory_event, devices_are_found_by_their_uuid)
{
	char *uuid = agent_device_uuid(0);
	int ordinal = 77;

	cr_assert_eq(memory_device_ordinal("standin", &ordinal, &failure), SHARE_EPROTO);
	cr_assert_eq(
	    memory_device_ordinal("GPU-eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee", &ordinal, &failure),
	    SHARE_ENODEV);
	cr_assert_eq(ordinal, 77);
	cr_assert_eq(memory_device_ordinal(uuid, &ordinal, &failure), 0, "%s", failure.text);
	cr_assert_eq(ordinal, 0);
	free(uuid);
}
