/* SPDX-License-Identifier: MIT */

/*
 * GPU memory that cannot be reached: hidden devices, no peers, and each call of the driver failing
 * in turn. Each is an error that names the call, and what was half mapped is let go of: the device
 * has the same free memory afterwards. The stand-in driver fails on request.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <share/error.h>

#include "memory/cuda/driver.h"
#include "memory/import.h"
#include "memory/stream.h"
#include "tests/agent/agent_process.h"
#include "tests/standin/calls.h"

#define MIB (UINT64_C(1) << 20)

static struct agent_process agent;
static struct failure failure;
static char faults[] = "/tmp/share-import-test-XXXXXX";

static void start(const char *options)
{
	char *device;
	int fd = mkstemp(faults);

	cr_assert(fd >= 0);
	close(fd);
	setenv("SHARE_STANDIN_FAULTS", faults, 1);
	standin_configure(options);
	device = agent_device_uuid(0);
	cr_assert(device);
	agent_start(&agent, device);
	free(device);
}

static void end(void)
{
	unlink(faults);
	agent_end_well(&agent);
}

TestSuite(memory_import_failure, .fini = end, .timeout = 60);

static void set_faults(const char *call, const char *what)
{
	FILE *file = fopen(faults, "w");

	cr_assert(file);
	fprintf(file, "%s %s\n", call, what);
	cr_assert_eq(fclose(file), 0);
}

static uint64_t free_memory(void)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;

	agent_ask(&agent, &m, WIRE_AGENT_DEVICE, &answer, NULL);
	return answer.agent_device.free;
}

static void assert_refused(const struct agent_segment *s, enum memory_kind_id kind, int error,
			   const char *words, const char *more_words)
{
	struct memory_mapping m = {.ordinal = 77};

	cr_assert_eq(memory_import(memory_kind_by_id(kind), &s->recipe, s->fd, true, &m, &failure),
		     error, "%s", failure.text);
	cr_assert(strstr(failure.text, words), "'%s' is not in '%s'", words, failure.text);
	cr_assert(strstr(failure.text, more_words), "'%s' is not in '%s'", more_words,
		  failure.text);
	cr_assert_eq(m.ordinal, 77, "outputs are untouched on failure");
}

static void come_and_go(const struct agent_segment *s, enum memory_kind_id kind)
{
	struct memory_mapping m;

	cr_assert_eq(memory_import(memory_kind_by_id(kind), &s->recipe, s->fd, true, &m, &failure),
		     0, "%s", failure.text);
	memory_unmap(&m);
}

/* ------------------------------------------------------------------------------------------- */

Test(memory_import_failure, a_device_that_cuda_visible_devices_hides_is_not_reached)
{
	struct agent_segment s;

	start("devices=2");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	assert_refused(&s, MEMORY_VMM, SHARE_ENODEV, "sees 1: GPU-", "CUDA_VISIBLE_DEVICES");
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, devices_in_another_order_are_told_apart_by_uuid)
{
	struct memory_mapping m;
	struct agent_segment s;

	start("devices=2");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure), 0,
	    "%s", failure.text);
	cr_assert_eq(m.ordinal, 1);
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

static void refuse_without_peers(enum memory_kind_id kind, const struct cuda *cu,
				 CUcontext contexts[2])
{
	struct memory_mapping m;
	struct agent_segment s;
	CUcontext popped;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	cr_assert_eq(cu->CtxPushCurrent(contexts[1]), CUDA_SUCCESS);
	assert_refused(&s, kind, SHARE_ENOTSUP, "peer access", "device 1");
	cr_assert_eq(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
	/* where it can be used it still can */
	cr_assert_eq(memory_import(memory_kind_by_id(kind), &s.recipe, s.fd, true, &m, &failure), 0,
		     "%s", failure.text);
	cr_assert_eq(cu->CtxPushCurrent(contexts[1]), CUDA_SUCCESS);
	cr_assert_eq(memory_reach(&m, &failure), SHARE_ENOTSUP);
	cr_assert_eq(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
	cr_assert_eq(cu->CtxPushCurrent(contexts[0]), CUDA_SUCCESS);
	cr_assert_eq(memory_reach(&m, &failure), 0, "%s", failure.text);
	cr_assert_eq(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, a_device_without_peer_access_is_refused_with_the_reason)
{
	const struct cuda *cu;
	CUcontext contexts[2];

	start("devices=2,peers=0");
	cr_assert_eq(cuda_get(&cu, &failure), 0, "%s", failure.text);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(cu->DevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
	refuse_without_peers(MEMORY_VMM, cu, contexts);
	refuse_without_peers(MEMORY_MEMPOOL, cu, contexts);
}

Test(memory_import_failure, every_failing_call_is_named_and_leaves_nothing_behind)
{
	static const struct {
		enum memory_kind_id kind;
		const char *call;
	} failing[] = {
	    {MEMORY_VMM, "cuCtxGetCurrent"},
	    {MEMORY_VMM, "cuDevicePrimaryCtxRetain"},
	    {MEMORY_VMM, "cuCtxPushCurrent"},
	    {MEMORY_VMM, "cuMemImportFromShareableHandle"},
	    {MEMORY_VMM, "cuMemAddressReserve"},
	    {MEMORY_VMM, "cuMemMap"},
	    {MEMORY_VMM, "cuMemSetAccess"},
	    {MEMORY_VMM, "cuPointerGetAttribute"},
	    {MEMORY_MEMPOOL, "cuDevicePrimaryCtxRetain"},
	    {MEMORY_MEMPOOL, "cuCtxPushCurrent"},
	    {MEMORY_MEMPOOL, "cuMemPoolImportFromShareableHandle"},
	    {MEMORY_MEMPOOL, "cuMemPoolImportPointer"},
	    {MEMORY_MEMPOOL, "cuPointerGetAttribute"},
	};
	struct agent_segment s;
	uint64_t before;

	start("");
	/* the agent's context stays */
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	agent_drop_segment(&agent, &s);
	before = free_memory();
	for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
		agent_make_segment(&agent, failing[i].kind, 32 * MIB, &s);
		/* the driver is there already: it is this call that fails */
		come_and_go(&s, failing[i].kind);
		set_faults(failing[i].call, "fail CUDA_ERROR_INVALID_VALUE");
		assert_refused(&s, failing[i].kind, SHARE_EDEVICE, failing[i].call,
			       "CUDA_ERROR_INVALID_VALUE");
		cr_assert_not(failure.fatal);
		set_faults("", "");
		come_and_go(&s, failing[i].kind);
		agent_drop_segment(&agent, &s);
		cr_assert_eq(free_memory(), before, "%s leaks", failing[i].call);
	}
}

Test(memory_import_failure, memory_of_a_pool_is_freed_though_the_driver_makes_no_stream_for_it)
{
	struct memory_mapping m;
	struct agent_segment s;
	uint64_t before;

	start("");
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &s);
	agent_drop_segment(&agent, &s);
	before = free_memory();
	agent_make_segment(&agent, MEMORY_MEMPOOL, 32 * MIB, &s);
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_MEMPOOL), &s.recipe, s.fd, true, &m, &failure),
	    0, "%s", failure.text);
	set_faults("cuStreamCreate", "fail CUDA_ERROR_OUT_OF_MEMORY");
	memory_unmap(&m);
	set_faults("", "");
	agent_drop_segment(&agent, &s);
	cr_assert_eq(free_memory(), before);
}

/* From here on, in this process. */
static struct standin_calls *count_calls(void)
{
	static char path[] = "/tmp/share-import-calls-XXXXXX";
	struct standin_calls *calls;
	const struct cuda *cu;
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	close(fd);
	setenv("SHARE_STANDIN_CALLS", path, 1);
	calls = standin_calls_open(path);
	cr_assert(calls);
	/* the driver opens it with its first call */
	cr_assert_eq(cuda_get(&cu, &failure), 0, "%s", failure.text);
	unlink(path);
	return calls;
}

Test(memory_import_failure, addresses_reserved_in_vain_are_given_back)
{
	struct agent_segment s, other;
	struct standin_calls *calls;
	struct memory_mapping m;

	start("");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &other);
	s.recipe.address = other.recipe.address = UINT64_C(33) << 40;
	calls = count_calls();
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure), 0,
	    "%s", failure.text);
	assert_refused(&other, MEMORY_VMM, SHARE_EBUSY, "something else lies there", "0x");
	memory_unmap(&m);
	cr_assert_eq(standin_called(calls, cuMemAddressReserve), 2);
	cr_assert_eq(standin_called(calls, cuMemAddressFree), 2);
	agent_drop_segment(&agent, &s);
	agent_drop_segment(&agent, &other);
}

static void keep_the_primary_context(enum memory_kind_id kind, struct standin_calls *calls)
{
	struct memory_mapping m;
	struct agent_segment s;

	agent_make_segment(&agent, kind, 2 * MIB, &s);
	cr_assert_eq(memory_import(memory_kind_by_id(kind), &s.recipe, s.fd, true, &m, &failure), 0,
		     "%s", failure.text);
	cr_assert_eq(standin_called(calls, cuDevicePrimaryCtxRetain),
		     standin_called(calls, cuDevicePrimaryCtxRelease_v2) + 1);
	memory_unmap(&m);
	cr_assert_eq(standin_called(calls, cuDevicePrimaryCtxRetain),
		     standin_called(calls, cuDevicePrimaryCtxRelease_v2));
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, the_primary_context_is_kept_as_long_as_a_mapping_and_no_longer)
{
	struct standin_calls *calls;
	struct agent_segment s;

	start("");
	/* the agent is not counted: it has started */
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	calls = count_calls();
	keep_the_primary_context(MEMORY_VMM, calls);
	keep_the_primary_context(MEMORY_MEMPOOL, calls);
	set_faults("cuMemMap", "fail CUDA_ERROR_INVALID_VALUE");
	assert_refused(&s, MEMORY_VMM, SHARE_EDEVICE, "cuMemMap", "");
	set_faults("", "");
	cr_assert_eq(standin_called(calls, cuDevicePrimaryCtxRetain),
		     standin_called(calls, cuDevicePrimaryCtxRelease_v2));
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, an_error_that_sticks_is_told_from_one_that_does_not)
{
	struct agent_segment s;

	start("");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	come_and_go(&s, MEMORY_VMM);
	set_faults("cuMemMap", "fail CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_refused(&s, MEMORY_VMM, SHARE_EDEVICE, "cuMemMap", "CUDA_ERROR_ILLEGAL_ADDRESS");
	cr_assert(failure.fatal);
	set_faults("cuMemMap", "fail CUDA_ERROR_OUT_OF_MEMORY");
	assert_refused(&s, MEMORY_VMM, SHARE_ENOMEM, "cuMemMap", "CUDA_ERROR_OUT_OF_MEMORY");
	cr_assert_not(failure.fatal);
	set_faults("", "");
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, a_driver_that_fails_to_start_is_tried_again)
{
	struct agent_segment s;

	start("");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	set_faults("cuInit", "fail CUDA_ERROR_SYSTEM_NOT_READY");
	assert_refused(&s, MEMORY_VMM, SHARE_ENODEV, "cuInit", "fabricmanager");
	set_faults("", "");
	come_and_go(&s, MEMORY_VMM);
	agent_drop_segment(&agent, &s);
}

Test(memory_import_failure, descriptors_of_something_else_are_refused)
{
	struct agent_segment vmm, mempool, wrong;
	int ends[2];

	start("");
	cr_assert_eq(pipe(ends), 0);
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &vmm);
	agent_make_segment(&agent, MEMORY_MEMPOOL, 2 * MIB, &mempool);
	wrong = vmm;
	wrong.fd = ends[0];
	assert_refused(&wrong, MEMORY_VMM, SHARE_EDEVICE, "cuMemImportFromShareableHandle",
		       "CUDA_ERROR_");
	wrong = mempool;
	wrong.fd = ends[0];
	assert_refused(&wrong, MEMORY_MEMPOOL, SHARE_EDEVICE, "cuMemPoolImportFromShareableHandle",
		       "CUDA_ERROR_");
	wrong = mempool;
	memset(wrong.recipe.pointer, 0xee, sizeof(wrong.recipe.pointer));
	assert_refused(&wrong, MEMORY_MEMPOOL, SHARE_EDEVICE, "cuMemPoolImportPointer",
		       "CUDA_ERROR_");
	agent_drop_segment(&agent, &vmm);
	agent_drop_segment(&agent, &mempool);
}

Test(memory_import_failure, a_failing_copy_is_named)
{
	struct memory_mapping m;
	struct agent_segment s;
	char byte = 0;

	start("");
	agent_make_segment(&agent, MEMORY_VMM, 2 * MIB, &s);
	cr_assert_eq(
	    memory_import(memory_kind_by_id(MEMORY_VMM), &s.recipe, s.fd, true, &m, &failure), 0,
	    "%s", failure.text);
	set_faults("cuMemcpyDtoHAsync", "fail CUDA_ERROR_LAUNCH_FAILED");
	cr_assert_eq(memory_copy_to_host(&m, 0, &byte, 1, NULL, &failure), SHARE_EDEVICE);
	cr_assert(strstr(failure.text, "cuMemcpyDtoHAsync: CUDA_ERROR_LAUNCH_FAILED"));
	set_faults("cuMemcpyHtoDAsync", "fail CUDA_ERROR_INVALID_VALUE");
	cr_assert_eq(memory_copy_from_host(&m, 0, &byte, 1, NULL, &failure), SHARE_EDEVICE);
	cr_assert(strstr(failure.text, "cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE"));
	set_faults("cuStreamSynchronize", "fail CUDA_ERROR_LAUNCH_FAILED");
	cr_assert_eq(memory_stream_synchronize(&m, NULL, &failure), SHARE_EDEVICE);
	cr_assert(strstr(failure.text, "cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED"));
	set_faults("", "");
	memory_unmap(&m);
	agent_drop_segment(&agent, &s);
}

/* The driver keeps an event in a file in /dev/shm. */
Test(memory_import_failure, an_event_without_its_file_says_what_that_takes)
{
	struct wire_message m = {.type = WIRE_AGENT_EVENT_CREATE}, answer;
	struct memory_ipc_event *e = NULL;
	unsigned char handle[64];

	start("");
	agent_ask(&agent, &m, WIRE_AGENT_EVENT, &answer, NULL);
	cr_assert_eq(answer.agent_event.ipc.size, sizeof(handle));
	memcpy(handle, answer.agent_event.ipc.data, sizeof(handle));
	set_faults("cuIpcOpenEventHandle", "fail CUDA_ERROR_MAP_FAILED");
	cr_assert_eq(memory_ipc_event_open(0, NULL, handle, &e, &failure), SHARE_EDEVICE);
	cr_assert(strstr(failure.text, "the same /dev/shm as the broker"), "%s", failure.text);
	cr_assert_not(failure.fatal);
	cr_assert_null(e);
}
