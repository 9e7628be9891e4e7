/* SPDX-License-Identifier: MIT */

/*
 * Imported memory and what the calling thread is up to: its context, its streams, the device it
 * works on, a capture that is going on. On a real machine, the tests for several devices need more
 * than one.
 */

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/stream.h"
#include "tests/agent/imports.h"

TestSuite(memory_context, .init = imports_start, .fini = imports_end, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */
/* Contexts and streams                                                                        */

static void leave_nothing_current(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	m = import(&s, kind, true);
	cr_assert_null(current());
	write_text(&m, 0, "a");
	cr_assert_null(current());
	cr_assert_eq(memory_stream_synchronize(&m, NULL, &failure), 0);
	cr_assert_eq(memory_reach(&m, &failure), 0);
	memory_unmap(&m);
	cr_assert_null(current());
	agent_drop_segment(&agent, &s);
}

Test(memory_context, without_a_context_of_the_callers_none_is_left_current)
{
	cr_assert_not(memory_driver_is_loaded());
	leave_nothing_current(MEMORY_VMM);
	leave_nothing_current(MEMORY_MEMPOOL);
	cr_assert(memory_driver_is_loaded());
}

static void leave_the_callers_current(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;
	CUcontext before = current();
	CUstream stream;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	m = import(&s, kind, true);
	cr_assert_eq(current(), before);
	cr_assert_eq(cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	cr_assert_eq(memory_copy_from_host(&m, 0, "on a stream", 12, stream, &failure), 0, "%s",
		     failure.text);
	assert_text(&m, 0, "on a stream");
	cr_assert_eq(current(), before);

	/* a stream brings its context along */
	cr_assert_eq(cu->CtxPopCurrent(&before), CUDA_SUCCESS);
	cr_assert_eq(memory_copy_from_host(&m, 0, "from afar", 10, stream, &failure), 0, "%s",
		     failure.text);
	cr_assert_eq(memory_stream_synchronize(&m, stream, &failure), 0, "%s", failure.text);
	cr_assert_null(current());
	cr_assert_eq(cu->CtxPushCurrent(before), CUDA_SUCCESS);
	assert_text(&m, 0, "from afar");

	cr_assert_eq(cu->StreamDestroy(stream), CUDA_SUCCESS);
	memory_unmap(&m);
	cr_assert_eq(current(), before);
	agent_drop_segment(&agent, &s);
}

Test(memory_context, the_callers_context_is_used_and_stays)
{
	use_device(0);
	leave_the_callers_current(MEMORY_VMM);
	leave_the_callers_current(MEMORY_MEMPOOL);
	leave_device(0);
}

/* ------------------------------------------------------------------------------------------- */
/* Captures                                                                                    */

static void *use_all_of_it(void *data)
{
	const struct agent_segment *segments = data;
	void *cells = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct memory_page page;
	struct memory_mapping m;

	cr_assert(cells != MAP_FAILED);
	for (size_t i = 0; i < 2; i++) {
		m = import(&segments[i], i == 0 ? MEMORY_VMM : MEMORY_MEMPOOL, true);
		write_text(&m, 0, "meanwhile");
		assert_text(&m, 0, "meanwhile");
		memory_unmap(&m);
	}
	cr_assert_eq(memory_page_register(0, cells, 4096, false, &page, &failure), 0, "%s",
		     failure.text);
	memory_page_unregister(&page);
	munmap(cells, 4096);
	return NULL;
}

static void spoil_no_capture(bool by_another_thread)
{
	struct agent_segment s[2];
	pthread_t thread;
	CUstream stream;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s[0]);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s[1]);
	use_device(0);
	stream = stream_create();
	begin_capture(stream);
	if (by_another_thread) {
		cr_assert_eq(pthread_create(&thread, NULL, use_all_of_it, s), 0);
		cr_assert_eq(pthread_join(thread, NULL), 0);
	} else {
		use_all_of_it(s);
	}
	cr_assert(end_capture(stream));
	cr_assert_eq(cu->StreamDestroy(stream), CUDA_SUCCESS);
	leave_device(0);
	agent_drop_segment(&agent, &s[0]);
	agent_drop_segment(&agent, &s[1]);
}

Test(memory_context, memory_is_imported_and_freed_while_this_thread_captures)
{
	spoil_no_capture(false);
}

Test(memory_context, memory_is_imported_and_freed_while_another_thread_captures)
{
	spoil_no_capture(true);
}

/* What the two above would be worth nothing without. */
Test(memory_context, a_call_that_a_capture_forbids_spoils_it)
{
	CUstream stream, other;

	use_device(0);
	stream = stream_create();
	other = stream_create();
	begin_capture(stream);
	cr_assert_eq(cu->StreamSynchronize(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	cr_assert(!end_capture(stream));
	leave_device(0);
}

static void assert_captured(int r)
{
	cr_assert_eq(r, SHARE_ENOTSUP);
	cr_assert(strstr(failure.text, "captured into a graph"), "%s", failure.text);
}

Test(memory_context, nothing_is_done_now_on_a_stream_that_is_captured)
{
	struct memory_stream opened;
	struct agent_segment s;
	struct memory_mapping m;
	CUstream stream;
	char c = 0;

	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	use_device(0);
	m = import(&s, MEMORY_VMM, true);
	stream = stream_create();
	begin_capture(stream);
	assert_captured(memory_copy_to_host(&m, 0, &c, 1, stream, &failure));
	assert_captured(memory_copy_from_host(&m, 0, &c, 1, stream, &failure));
	assert_captured(memory_stream_synchronize(&m, stream, &failure));
	assert_captured(memory_stream_open(0, stream, &opened, &failure));
	cr_assert(end_capture(stream));
	cr_assert_eq(memory_copy_to_host(&m, 0, &c, 1, stream, &failure), 0, "%s", failure.text);
	memory_unmap(&m);
	leave_device(0);
	agent_drop_segment(&agent, &s);
}

/* ------------------------------------------------------------------------------------------- */
/* Several devices                                                                             */

static void use_from_the_other(enum memory_kind_id kind)
{
	struct agent_segment s;
	struct memory_mapping m;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	/* imported where it is used ... */
	use_device(1);
	m = import(&s, kind, true);
	cr_assert_eq(m.ordinal, 0);
	write_text(&m, 0, "from the other");
	leave_device(1);
	use_device(0);
	assert_text(&m, 0, "from the other");
	leave_device(0);
	memory_unmap(&m);
	/* ... and used elsewhere than imported */
	use_device(0);
	m = import(&s, kind, true);
	leave_device(0);
	use_device(1);
	cr_assert_eq(memory_reach(&m, &failure), 0, "%s", failure.text);
	cr_assert_eq(memory_reach(&m, &failure), 0, "%s", failure.text);
	assert_text(&m, 0, "from the other");
	memory_unmap(&m);
	leave_device(1);
	agent_drop_segment(&agent, &s);
}

Test(memory_context, vmm_memory_of_one_device_is_used_from_another)
{
	need_two_devices();
	use_from_the_other(MEMORY_VMM);
}

Test(memory_context, mempool_memory_of_one_device_is_used_from_another)
{
	need_two_devices();
	use_from_the_other(MEMORY_MEMPOOL);
}

Test(memory_context, a_recipe_that_lies_about_the_device_is_found_out)
{
	struct memory_mapping m;
	struct agent_segment s;
	CUuuid other;

	need_two_devices();
	cr_assert_eq(cu->DeviceGetUuid(&other, 1), CUDA_SUCCESS);
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	memcpy(s.recipe.device, other.bytes, 16);
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure),
	    SHARE_EPROTO, "%s", failure.text);
	agent_drop_segment(&agent, &s);
}
