/* SPDX-License-Identifier: MIT */

/*
 * Facts about interprocess events: how many there are, what they mean, and what is left of one
 * whose recorder was killed.
 */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/themes/facts/gpu.h"

#define FLAGS (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)
#define MOST  5000

/* Creates and exports until that fails. */
static unsigned create_all(CUevent *events, CUresult *why)
{
	CUipcEventHandle handle;
	unsigned n = 0;

	*why = CUDA_SUCCESS;
	while (n < MOST) {
		*why = cu.EventCreate(&events[n], FLAGS);
		if (*why != CUDA_SUCCESS)
			break;
		*why = cu.IpcGetEventHandle(&handle, events[n]);
		if (*why != CUDA_SUCCESS) {
			cu.EventDestroy(events[n]);
			break;
		}
		n++;
	}
	return n;
}

static void how_many(void)
{
	static CUevent events[MOST];
	CUresult why, why_again;
	unsigned first, again;

	use_context();
	first = create_all(events, &why);
	for (unsigned i = 0; i < first; i++)
		MUST(EventDestroy(events[i]));
	again = create_all(events, &why_again);
	if (first < 4096)
		failed("only %u events, then %s", first, error_name(why));
	ok("%u events, then %s; all destroyed, %u again, then %s", first, error_name(why), again,
	   error_name(why_again));
}

/* ---- what a wait means ---- */

/* A page of ours that the GPU waits for. */
static _Atomic uint64_t *own_page(CUdeviceptr *address)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		failed("mmap");
	MUST(MemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	MUST(MemHostGetDevicePointer(address, page, 0));
	return page;
}

enum step {
	STEP_RECORD_PENDING = 1,
	STEP_RELEASE,
	STEP_QUERY,
	STEP_DESTROY,
	STEP_RECORD,
	STEP_WORK,
	STEP_WAIT,
	STEP_OPEN
};

/* Makes the event, then does as it is told with it: value[0] is the step, result what came of it.
 */
static void creator(int channel)
{
	CUipcEventHandle handle;
	CUdeviceptr address, memory;
	_Atomic uint64_t *page;
	struct message m = {0};
	CUstream stream;
	CUevent event;

	use_context();
	page = own_page(&address);
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(MemAlloc(&memory, MIB));
	MUST(EventCreate(&event, FLAGS));
	MUST(IpcGetEventHandle(&handle, event));
	memcpy(m.bytes, &handle, sizeof(handle));
	m.result = (int32_t)cu.IpcOpenEventHandle(&(CUevent){NULL}, handle);
	tell(channel, &m, -1);
	for (;;) {
		CUresult result = CUDA_SUCCESS;

		hear(channel, &m, NULL);
		switch (m.value[0]) {
		case STEP_RECORD_PENDING:
			MUST(StreamWaitValue64(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
			result = cu.EventRecord(event, stream);
			break;
		case STEP_RELEASE:
			*page = 1;
			result = cu.StreamSynchronize(stream);
			break;
		case STEP_QUERY:
			result = cu.EventQuery(event);
			break;
		case STEP_DESTROY:
			result = cu.EventDestroy(event);
			break;
		case STEP_RECORD:
			result = cu.EventRecord(event, stream);
			break;
		default:
			result = fill(memory, 1, MIB);
			break;
		}
		m.result = (int32_t)result;
		tell(channel, &m, -1);
	}
}

/* Opens the event it hears of, then does as it is told with it. */
static void opener(int channel)
{
	CUipcEventHandle handle;
	struct message m = {0};
	CUstream parked, free_one;
	CUdeviceptr memory;
	CUevent event;

	use_context();
	hear(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(StreamCreate(&parked, CU_STREAM_NON_BLOCKING));
	MUST(StreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	MUST(MemAlloc(&memory, MIB));
	MUST(IpcOpenEventHandle(&event, handle));
	tell(channel, &m, -1);
	for (;;) {
		CUresult result;

		hear(channel, &m, NULL);
		switch (m.value[0]) {
		case STEP_WAIT:
			result = cu.StreamWaitEvent(parked, event, 0);
			if (result == CUDA_SUCCESS && cu.StreamQuery(parked) == CUDA_SUCCESS)
				failed("a wait for what can never complete ended");
			break;
		case STEP_QUERY:
			result = cu.EventQuery(event);
			break;
		case STEP_DESTROY:
			result = cu.EventDestroy(event);
			break;
		case STEP_RECORD:
			result = cu.EventRecord(event, free_one);
			break;
		case STEP_OPEN:
			result = cu.IpcOpenEventHandle(&event, handle);
			break;
		default:
			result = fill(memory, 1, MIB);
			break;
		}
		m.result = (int32_t)result;
		tell(channel, &m, -1);
	}
}

static CUresult step(struct role *r, enum step what)
{
	struct message m = {.value = {what}};

	ask(r->channel, &m, -1);
	return (CUresult)m.result;
}

static void what_a_wait_means(void)
{
	struct role c = role_start("event-creator", NULL);
	CUstream early, late;
	CUipcEventHandle handle;
	struct message m;
	CUresult own;
	CUevent event;

	use_context();
	hear(c.channel, &m, NULL);
	own = (CUresult)m.result;
	if (own == CUDA_SUCCESS)
		failed("the creator can open its own event after all");
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(IpcOpenEventHandle(&event, handle));
	MUST(StreamCreate(&early, CU_STREAM_NON_BLOCKING));
	MUST(StreamCreate(&late, CU_STREAM_NON_BLOCKING));
	must(cu.EventQuery(event), "cuEventQuery of an event never recorded");
	MUST(StreamWaitEvent(early, event, 0));
	if (!settles(early, 3000))
		failed("a wait for an event that was never recorded does not end");

	must(step(&c, STEP_RECORD_PENDING), "cuEventRecord");
	if (cu.EventQuery(event) != CUDA_ERROR_NOT_READY)
		failed("an event behind pending work is done");
	MUST(StreamWaitEvent(late, event, 0));
	MUST(StreamWaitEvent(early, event, 0));
	if (settles(late, 100))
		failed("a wait for a pending event ended");
	must(step(&c, STEP_RELEASE), "release");
	if (!settles(late, 3000) || !settles(early, 3000))
		failed("a wait for an event that is done does not end");
	must(cu.EventQuery(event), "cuEventQuery");
	ok("never recorded is done; a wait is for what was recorded then; the creator cannot open "
	   "it (%s)",
	   error_name(own));
}

/* ---- a recorder that is killed ---- */

/* Records behind a wait that never ends, and stays to be killed. */
static void recorder(int channel)
{
	CUipcEventHandle handle;
	CUdeviceptr address;
	struct message m;
	CUstream stream;
	CUevent event;

	use_context();
	own_page(&address);
	hear(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(IpcOpenEventHandle(&event, handle));
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(StreamWaitValue64(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
	MUST(EventRecord(event, stream));
	m.result = (int32_t)cu.StreamQuery(stream);
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static struct role wedged_creator(void)
{
	struct role c = role_start("event-creator", NULL), r = role_start("event-recorder", NULL);
	struct message m;

	hear(c.channel, &m, NULL);
	ask(r.channel, &m, -1);
	role_kill(&r);
	use_driver();
	if (m.result != CUDA_ERROR_NOT_READY)
		failed("the recorder's stream was not pending: %s", error_name((CUresult)m.result));
	return c;
}

/* "hangs", "dies", or @text: what it returned, in how long. */
static const char *try_step(struct role *c, enum step what, char text[96])
{
	struct message m = {.value = {what}};
	uint64_t start = nanoseconds();
	const char *trouble = try(c->channel, &m, -1, 3000);

	if (trouble)
		return trouble;
	snprintf(text, 96, "%s after %lu us", error_name((CUresult)m.result),
		 (unsigned long)(nanoseconds() - start) / 1000);
	return text;
}

static void recorder_killed_query(void)
{
	struct role c = wedged_creator();
	char text[96];

	ok("(report) cuEventQuery by the creator: %s", try_step(&c, STEP_QUERY, text));
}

static void recorder_killed_destroy(void)
{
	struct role c = wedged_creator();
	char text[96], more[96];
	const char *first = try_step(&c, STEP_DESTROY, text);

	if (first != text)
		ok("(report) cuEventDestroy by the creator: %s", first);
	ok("(report) cuEventDestroy by the creator: %s; work of the creator after that: %s", first,
	   try_step(&c, STEP_WORK, more));
}

static void recorder_killed_record(void)
{
	struct role c = wedged_creator();
	char text[96];

	ok("(report) cuEventRecord by the creator: %s", try_step(&c, STEP_RECORD, text));
}

/*
 * What one who has opened it can do with an event that will never complete, with a stream waiting
 * for it: the library closes such events, and must not hang.
 */
static void recorder_killed_opener(void)
{
	static const struct {
		enum step what;
		const char *name;
	} steps[] = {
	    {STEP_WAIT, "wait"},   {STEP_WORK, "other work"}, {STEP_QUERY, "query"},
	    {STEP_OPEN, "reopen"}, {STEP_DESTROY, "destroy"}, {STEP_WORK, "other work"},
	    {STEP_OPEN, "reopen"}, {STEP_RECORD, "record"},   {STEP_QUERY, "query"},
	    {STEP_WORK, "work"},   {STEP_DESTROY, "destroy"}, {STEP_WORK, "other work"},
	};
	struct role c = role_start("event-creator", NULL), r = role_start("event-recorder", NULL),
		    o = role_start("event-opener", NULL);
	char text[96], all[1024] = "";
	struct message m;

	hear(c.channel, &m, NULL);
	ask(o.channel, &m, -1);
	ask(r.channel, &m, -1);
	role_kill(&r);
	use_driver();
	if (m.result != CUDA_ERROR_NOT_READY)
		failed("the recorder's stream was not pending: %s", error_name((CUresult)m.result));
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const char *came = try_step(&o, steps[i].what, text);
		size_t used = strlen(all);

		snprintf(all + used, sizeof(all) - used, "%s%s: %s", i ? "; " : "", steps[i].name,
			 came);
		if (came != text && steps[i].what == STEP_DESTROY)
			failed("who has opened it: %s", all);
		if (came != text)
			break;
	}
	ok("who has opened it: %s", all);
}

/* ---- two devices ---- */

static CUcontext context_of(int ordinal)
{
	CUcontext context;

	MUST(DevicePrimaryCtxRetain(&context, ordinal));
	return context;
}

/* Opens an event of device 0 there, and waits for it on a stream of device 1. It died of that in
 * the driver (H200, 580): the library does not do so. */
static void neighbour(int channel)
{
	CUcontext contexts[2];
	CUipcEventHandle handle;
	struct message m = {0};
	CUstream stream;
	CUevent event;

	use_driver();
	for (int i = 0; i < 2; i++)
		contexts[i] = context_of(i);
	MUST(CtxSetCurrent(contexts[1]));
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hear(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(CtxSetCurrent(contexts[0]));
	MUST(IpcOpenEventHandle(&event, handle));
	MUST(CtxSetCurrent(contexts[1]));
	tell(channel, &m, -1);
	for (;;) {
		CUresult result;

		hear(channel, &m, NULL);
		if (m.value[0] == STEP_WAIT)
			result = cu.StreamWaitEvent(stream, event, 0);
		else if (m.value[0] == STEP_QUERY)
			result = cu.StreamQuery(stream);
		else if (m.value[0] == STEP_RELEASE)
			result = cu.StreamSynchronize(stream);
		else
			result = cu.EventDestroy(event);
		m.result = (int32_t)result;
		tell(channel, &m, -1);
	}
}

static void another_device(void)
{
	struct role c = role_start("event-creator", NULL), n;
	char text[96], more[96], last[96], end[96];
	struct message m;
	const char *came;
	int devices;

	n = role_start("event-neighbour", NULL);
	use_driver();
	MUST(DeviceGetCount(&devices));
	if (devices < 2)
		skipped("there is one device");
	hear(c.channel, &m, NULL);
	ask(n.channel, &m, -1);
	came = try_step(&n, STEP_WAIT, text);
	if (came != text)
		ok("(report) who waits on device 1 for an event of device 0: %s", came);
	must(step(&c, STEP_RECORD_PENDING), "cuEventRecord");
	came = try_step(&n, STEP_WAIT, more);
	if (came != more)
		ok("(report) who waits on device 1 for a pending event of device 0: %s", came);
	if (step(&n, STEP_QUERY) != CUDA_ERROR_NOT_READY)
		failed("the stream did not wait (the call: %s)", more);
	must(step(&c, STEP_RELEASE), "release");
	came = try_step(&n, STEP_RELEASE, last);
	if (came != last)
		ok("(report) a wait on device 1 for an event of device 0 that is done: %s", came);
	ok("(report) a stream of device 1 waits for an event of device 0: %s, pending %s, then %s; "
	   "destroyed: %s",
	   text, more, last, try_step(&n, STEP_DESTROY, end));
}

const struct fact event_facts[] = {
    {"events_a_process_can_make", how_many},
    {"event_wait_is_for_what_was_recorded", what_a_wait_means},
    {"event_of_a_killed_recorder_queried", recorder_killed_query},
    {"event_of_a_killed_recorder_destroyed", recorder_killed_destroy},
    {"event_of_a_killed_recorder_recorded", recorder_killed_record},
    {"event_of_a_killed_recorder_in_who_opened_it", recorder_killed_opener},
    {"event_waited_for_on_another_device", another_device},
    {NULL, NULL},
};

const struct play event_plays[] = {
    {"event-creator", creator},
    {"event-neighbour", neighbour},
    {"event-opener", opener},
    {"event-recorder", recorder},
    {NULL, NULL},
};
