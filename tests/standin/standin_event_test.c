/* SPDX-License-Identifier: MIT */

/*
 * The stand-in driver's events: what a wait is for, across processes too, and what becomes of an
 * event whose recorder dies.
 */

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/standin/peer.h"

#define FLAGS (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)
#define GEQ   CU_STREAM_WAIT_VALUE_GEQ

TestSuite(standin_event, .timeout = 60);

static CUevent event_create(unsigned flags)
{
	CUevent e;

	MUST(cuEventCreate(&e, flags));
	return e;
}

Test(standin_event, a_wait_is_for_what_was_recorded_then)
{
	_Atomic uint64_t *page;
	CUstream producer, early, late;
	CUevent e;

	standin_configure("");
	use_context();
	page = cells();
	use_page(page);
	producer = stream_create();
	early = stream_create();
	late = stream_create();
	e = event_create(CU_EVENT_DISABLE_TIMING);
	MUST(cuEventQuery(e));
	MUST(cuStreamWaitEvent(early, e, 0));
	MUST(cuStreamSynchronize(early));
	MUST(cuStreamWaitValue64(producer, CELL(page), 1, GEQ));
	MUST(cuEventRecord(e, producer));
	MUST(cuStreamWaitEvent(late, e, 0));
	MUST(cuStreamWaitValue64(producer, CELL(page), 2, GEQ));
	MUST(cuEventRecord(e, producer));
	CHECK_RESULT(cuStreamQuery(late), CUDA_ERROR_NOT_READY);
	page[0] = 1;
	MUST(cuStreamSynchronize(late));
	CHECK_RESULT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	page[0] = 2;
	MUST(cuEventSynchronize(e));
	MUST(cuEventQuery(e));
	MUST(cuEventDestroy(e));
	CHECK_RESULT(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
}

static void wait_for_event(int channel)
{
	CUipcEventHandle handle;
	struct packet m;
	CUstream s;
	CUevent e;

	use_context();
	peer_receive(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(cuIpcOpenEventHandle(&e, handle));
	CHECK_RESULT(cuIpcGetEventHandle(&handle, e), CUDA_ERROR_INVALID_HANDLE);
	s = stream_create();
	MUST(cuStreamWaitEvent(s, e, 0));
	CHECK_RESULT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	CHECK_RESULT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	peer_send(channel, &m, -1);
	MUST(cuStreamSynchronize(s));
	MUST(cuEventQuery(e));
	peer_send(channel, &m, -1);
}

Test(standin_event, another_process_waits_for_an_event)
{
	CUipcEventHandle handle;
	_Atomic uint64_t *page;
	struct packet m = {0};
	CUevent e, own;
	struct peer p;
	CUstream s;

	standin_configure("");
	p = peer_start(wait_for_event);
	use_context();
	page = cells();
	use_page(page);
	s = stream_create();
	CHECK_RESULT(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	e = event_create(CU_EVENT_DISABLE_TIMING);
	CHECK_RESULT(cuIpcGetEventHandle(&handle, e), CUDA_ERROR_INVALID_HANDLE);
	e = event_create(FLAGS);
	MUST(cuIpcGetEventHandle(&handle, e));
	CHECK_RESULT(cuIpcOpenEventHandle(&own, handle), CUDA_ERROR_INVALID_CONTEXT);
	MUST(cuStreamWaitValue64(s, CELL(page), 1, GEQ));
	MUST(cuEventRecord(e, s));
	memcpy(m.bytes, &handle, sizeof(handle));
	peer_send(p.channel, &m, -1);
	peer_receive(p.channel, &m, NULL);
	page[0] = 1;
	peer_receive(p.channel, &m, NULL);
	peer_finish(&p);
}

static void record_and_die(int channel)
{
	CUipcEventHandle handle;
	_Atomic uint64_t *page;
	struct packet m;
	CUstream s;
	CUevent e;

	use_context();
	page = cells();
	use_page(page);
	peer_receive(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(cuIpcOpenEventHandle(&e, handle));
	s = stream_create();
	MUST(cuStreamWaitValue64(s, CELL(page), 1, GEQ));
	MUST(cuEventRecord(e, s));
	peer_send(channel, &m, -1);
	peer_receive(channel, &m, NULL);
}

/* Makes an event that never completes; then records it again, from which nobody returns. */
static void record_after_a_death(int channel)
{
	struct peer p = peer_start(record_and_die);
	CUipcEventHandle handle;
	struct packet m = {0};
	CUevent e;

	use_context();
	e = event_create(FLAGS);
	MUST(cuIpcGetEventHandle(&handle, e));
	memcpy(m.bytes, &handle, sizeof(handle));
	peer_send(p.channel, &m, -1);
	peer_receive(p.channel, &m, NULL);
	peer_kill(&p);
	CHECK_RESULT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	peer_send(channel, &m, -1);
	cuEventRecord(e, NULL);
	abort();
}

Test(standin_event, an_event_of_a_killed_recorder_never_completes_and_wedges_its_creator)
{
	struct packet m;
	struct peer p;

	standin_configure("");
	p = peer_start(record_after_a_death);
	peer_receive(p.channel, &m, NULL);
	peer_until_it_hangs(&p);
	peer_kill(&p);
}

Test(standin_event, interprocess_events_run_out_and_come_back)
{
	CUevent e[17];

	standin_configure("events=16");
	use_context();
	for (int i = 0; i < 16; i++)
		e[i] = event_create(FLAGS);
	CHECK_RESULT(cuEventCreate(&e[16], FLAGS), CUDA_ERROR_OUT_OF_MEMORY);
	e[16] = event_create(CU_EVENT_DISABLE_TIMING);
	MUST(cuEventDestroy(e[3]));
	e[3] = event_create(FLAGS);
	CHECK_RESULT(cuEventCreate(&e[16], FLAGS), CUDA_ERROR_OUT_OF_MEMORY);
}
