/* SPDX-License-Identifier: MIT */

/*
 * Interprocess events through the library: recorded in one process, waited for in another, and what
 * becomes of the waiters when the recorder is killed. As good on a real device. This process does
 * not use the driver itself: it looks on through a page that it shares with all of them.
 */

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "memory/cuda/driver.h"
#include "memory/stream.h"
#include "tests/harness/fixture.h"
#include "tests/support/kinds.h"

/* Cells that streams of other processes wait for and write to. */
enum cell { GATE, BEFORE_RECORD, BEHIND_WAIT, ELSEWHERE };

static volatile uint64_t *cells;
static share_client *client;
static share_event *event;
static share_token token;

static void start(void)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	cr_assert(p != MAP_FAILED);
	cells = p;
	kinds_start();
	client = connect_as("test");
	options.name = "work";
	r = share_event_create(client, &options, &event);
	if (r == SHARE_ENODEV || r == SHARE_ENOTSUP)
		cr_skip_test("there are no events here: %s", share_error_detail());
	check_ok(r);
	check_ok(share_event_export(event, &token));
	fixture_uses_devices();
}

static void stop(void)
{
	share_event_release(event);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(event_order, .init = start, .fini = stop, .timeout = 120);

/* ---- in children ---- */

static const struct cuda *cu;
static struct memory_page page;

static void use_device(void)
{
	struct failure failure;
	CUcontext context;
	CUdevice device;

	check_ok(cuda_get(&cu, &failure));
	check(cu->DeviceGet(&device, 0) == CUDA_SUCCESS);
	check(cu->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check(cu->CtxPushCurrent(context) == CUDA_SUCCESS);
	check_ok(memory_page_register(0, (void *)(uintptr_t)cells, 4096, false, &page, &failure));
}

static CUstream stream_create(void)
{
	CUstream stream;

	check(cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
	return stream;
}

static void write_cell(CUstream stream, enum cell cell, uint64_t value)
{
	check(cu->StreamWriteValue64(stream, page.device + cell * 8, value, 0) == CUDA_SUCCESS);
}

static void wait_for_gate(CUstream stream, uint64_t value)
{
	check(cu->StreamWaitValue64(stream, page.device + GATE * 8, value,
				    CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
}

static void finish(CUstream stream)
{
	check(cu->StreamSynchronize(stream) == CUDA_SUCCESS);
	check(cu->StreamDestroy(stream) == CUDA_SUCCESS);
}

/* Has the event by its name, and records it behind a gate. */
static void records(struct child *self, void *data)
{
	share_client *c = child_connect("recorder");
	CUstream stream;
	share_event *e;

	(void)data;
	use_device();
	stream = stream_create();
	check_ok(share_event_open(c, "work", &e));
	wait_for_gate(stream, 1);
	write_cell(stream, BEFORE_RECORD, 1);
	check_ok(share_event_record(e, stream));
	child_point(self, "recorded");
	/* what the waiter does not wait for */
	wait_for_gate(stream, 2);
	check_ok(share_event_record(e, stream));
	child_point(self, "recorded again");
	finish(stream);
	share_event_release(e);
	share_disconnect(c);
}

/* Has it by its token. */
static void waits(struct child *self, void *data)
{
	share_client *c = child_connect("waiter");
	CUstream stream, other;
	share_event *e;

	(void)data;
	use_device();
	stream = stream_create();
	other = stream_create();
	check_ok(share_event_import(c, &token, &e));
	check_ok(share_event_wait(e, stream));
	write_cell(stream, BEHIND_WAIT, 1);
	/* its other streams go on */
	write_cell(other, ELSEWHERE, 1);
	finish(other);
	child_point(self, "waiting");
	finish(stream);
	child_point(self, "done");
	share_event_release(e);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */

Test(event_order, work_behind_a_wait_comes_after_what_was_recorded_before_it)
{
	struct child *recorder = child_start(records, NULL), *waiter;

	child_wait(recorder, "recorded");
	waiter = child_start(waits, NULL);
	child_wait(waiter, "waiting");
	check(cells[ELSEWHERE] == 1 && cells[BEHIND_WAIT] == 0);
	child_go(recorder);
	child_wait(recorder, "recorded again");
	child_go(waiter);
	check(cells[BEHIND_WAIT] == 0 && cells[BEFORE_RECORD] == 0);
	cells[GATE] = 1;
	child_wait(waiter, "done");
	check(cells[BEFORE_RECORD] == 1 && cells[BEHIND_WAIT] == 1);
	child_go(waiter);
	child_finish(waiter);
	cells[GATE] = 2;
	child_go(recorder);
	child_finish(recorder);
}

static bool is_wedged(void)
{
	json_t *rows = report(client, "events");
	bool wedged;

	check_eq(json_array_size(rows), 1);
	wedged = json_is_true(json_object_get(json_array_get(rows, 0), "wedged"));
	json_decref(rows);
	return wedged;
}

/* What it waits for never comes. */
static void waits_in_vain(struct child *self, void *data)
{
	share_client *c = child_connect("waiter");
	CUstream stream, other;
	share_event *e;

	(void)data;
	use_device();
	stream = stream_create();
	other = stream_create();
	check_ok(share_event_import(c, &token, &e));
	check_ok(share_event_wait(e, stream));
	write_cell(stream, BEHIND_WAIT, 1);
	child_point(self, "waiting");
	/* the recorder is dead */
	write_cell(other, ELSEWHERE, 1);
	check(cu->StreamSynchronize(other) == CUDA_SUCCESS);
	share_event_release(e);
	write_cell(other, ELSEWHERE, 2);
	finish(other);
	share_disconnect(c);
	child_point(self, "without it");
}

Test(event_order, a_killed_recorder_costs_the_waiting_stream_and_the_event)
{
	struct child *recorder = child_start(records, NULL), *waiter;
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	unsigned char handle[64];
	share_event *next;

	child_wait(recorder, "recorded");
	waiter = child_start(waits_in_vain, NULL);
	child_wait(waiter, "waiting");
	check(!is_wedged());
	child_kill(recorder);
	until(is_wedged());
	child_go(waiter);
	child_wait(waiter, "without it");
	check(cells[ELSEWHERE] == 2 && cells[BEHIND_WAIT] == 0);
	child_kill(waiter);

	/* nobody gets it again, not even under its name */
	memcpy(handle, share_event_handle(event), sizeof(handle));
	share_event_release(event);
	options.name = "work";
	check_ok(share_event_create(client, &options, &next));
	check(memcmp(share_event_handle(next), handle, sizeof(handle)) != 0);
	event = next;
	check(!is_wedged());
}

Test(event_order, streams_that_others_share_do_not_wait)
{
	share_host_stream *host;

	check_ok(share_host_stream_create(client, &host));
	for (uintptr_t stream = 0; stream <= 2; stream++) {
		check_error(share_event_wait(event, (void *)stream), SHARE_EINVAL);
		check_detail("CU_STREAM_NON_BLOCKING");
		check_detail("killed");
	}
	check_error(share_event_wait(event, host), SHARE_EINVAL);
	check_error(share_event_record(event, host), SHARE_EINVAL);
	check_detail("CUstream");
	check_error(share_event_wait(NULL, host), SHARE_EINVAL);
	check_error(share_event_record(NULL, NULL), SHARE_EINVAL);
	share_host_stream_destroy(host);
}

static void records_on_default_streams(struct child *self, void *data)
{
	share_client *c = child_connect("recorder");
	CUstream stream;
	share_event *e;

	(void)self, (void)data;
	use_device();
	check_ok(share_event_open(c, "work", &e));
	stream = stream_create();
	for (uintptr_t shared = 0; shared <= 2; shared++) {
		check_ok(share_event_record(e, (void *)shared));
		check_ok(share_event_wait(e, stream));
	}
	finish(stream);
	share_event_release(e);
	share_disconnect(c);
}

Test(event_order, streams_that_others_share_are_recorded)
{
	child_finish(child_start(records_on_default_streams, NULL));
}

/* What the library has no use for itself. */
static void *symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), *found;

	check(library != NULL);
	found = dlsym(library, name);
	check(found != NULL);
	dlclose(library);
	return found;
}

static void captures(struct child *self, void *data)
{
	share_client *c = child_connect("capturer");
	PFN_cuStreamBeginCapture_v10010 begin;
	PFN_cuStreamEndCapture_v10000 end;
	CUgraph graph = NULL;
	CUstream stream;
	share_event *e;

	(void)self, (void)data;
	use_device();
	*(void **)&begin = symbol("cuStreamBeginCapture_v2");
	*(void **)&end = symbol("cuStreamEndCapture");
	stream = stream_create();
	check_ok(share_event_open(c, "work", &e));
	check(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
	check_error(share_event_record(e, stream), SHARE_ENOTSUP);
	check_detail("captured into a graph");
	check_error(share_event_wait(e, stream), SHARE_ENOTSUP);
	check_detail("before the graph is launched");
	/* it is another stream's, and has nothing to do with opening and closing events */
	check_ok(share_event_record(e, NULL));
	share_event_release(e);
	check(end(stream, &graph) == CUDA_SUCCESS);
	finish(stream);
	share_disconnect(c);
}

Test(event_order, a_stream_that_is_captured_is_refused_and_the_capture_goes_on)
{
	child_finish(child_start(captures, NULL));
}

static void has_lost_its_parents(struct child *self, void *data)
{
	(void)self;
	check_error(share_event_record(data, NULL), SHARE_EFORK);
	check_error(share_event_wait(data, NULL), SHARE_EFORK);
}

Test(event_order, a_forked_child_has_no_event)
{
	child_finish(child_start(has_lost_its_parents, event));
}

static void sees_no_device(struct child *self, void *data)
{
	share_client *c;
	share_event *e;

	(void)self, (void)data;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	c = child_connect("blind");
	check_ok(share_event_open(c, "work", &e));
	check_error(share_event_record(e, NULL), SHARE_ENODEV);
	check_detail("CUDA_VISIBLE_DEVICES");
	share_event_release(e);
	share_disconnect(c);
}

Test(event_order, who_cannot_see_the_device_is_told)
{
	child_finish(child_start(sees_no_device, NULL));
}

static void comes_too_late(struct child *self, void *data)
{
	share_client *c = child_connect("late");
	share_event *e;

	(void)data;
	use_device();
	check_ok(share_event_import(c, &token, &e));
	child_point(self, "has it");
	check_error(share_event_record(e, NULL), SHARE_EDEVICE);
	check_detail("cuIpcOpenEventHandle");
	/* and it can be tried again */
	check_error(share_event_record(e, NULL), SHARE_EDEVICE);
	share_event_release(e);
	share_disconnect(c);
}

Test(event_order, an_event_ends_with_its_agent_for_those_who_have_not_opened_it)
{
	struct child *child;
	json_t *rows;
	pid_t agent;

	skip_unless_standin(); /* a real driver may find something still */
	child = child_start(comes_too_late, NULL);
	child_wait(child, "has it");
	rows = report(client, "devices");
	agent = (pid_t)number_of(json_array_get(rows, 0), "agent");
	json_decref(rows);
	check(agent > 0 && kill(agent, SIGKILL) == 0);
	until(kill(agent, 0) != 0);
	child_go(child);
	child_finish(child);
}
