/* SPDX-License-Identifier: MIT */

/* What the tests of imported memory do over and over. */

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "tests/agent/imports.h"
#include "tests/standin/calls.h"

struct agent_process agent;
struct failure failure;
const struct cuda *cu;

void imports_start(void)
{
	char *device;

	standin_configure("devices=2");
	device = agent_device_uuid(0);
	cr_assert(device);
	agent_start(&agent, device);
	free(device);
}

void imports_end(void)
{
	agent_end_well(&agent);
}

uint64_t free_memory(void)
{
	struct wire_message m = {.type = WIRE_AGENT_DEVICE_GET}, answer;

	agent_ask(&agent, &m, WIRE_AGENT_DEVICE, &answer, NULL);
	return answer.agent_device.free;
}

struct memory_mapping import(const struct agent_segment *s, enum memory_kind_id kind, bool writable)
{
	struct memory_mapping m;

	cr_assert_eq(
	    memory_import(memory_kind_by_id(kind), &s->recipe, s->fd, writable, &m, &failure), 0,
	    "%s", failure.text);
	cr_assert_eq((uintptr_t)m.address % MEMORY_ALIGNMENT, 0);
	cr_assert_eq(m.size, s->recipe.size);
	return m;
}

void write_text(struct memory_mapping *m, uint64_t offset, const char *text)
{
	cr_assert_eq(memory_copy_from_host(m, offset, text, strlen(text) + 1, NULL, &failure), 0,
		     "%s", failure.text);
}

void assert_text(struct memory_mapping *m, uint64_t offset, const char *text)
{
	char found[64] = "";

	cr_assert_eq(memory_copy_to_host(m, offset, found, strlen(text) + 1, NULL, &failure), 0,
		     "%s", failure.text);
	cr_assert_str_eq(found, text);
}

void load_driver(void)
{
	cr_assert_eq(cuda_get(&cu, &failure), 0, "%s", failure.text);
}

int n_devices(void)
{
	int n;

	load_driver();
	cr_assert_eq(cu->DeviceGetCount(&n), CUDA_SUCCESS);
	return n;
}

CUcontext current(void)
{
	CUcontext context;

	load_driver();
	cr_assert_eq(cu->CtxGetCurrent(&context), CUDA_SUCCESS);
	return context;
}

void use_device(CUdevice device)
{
	CUcontext context;

	load_driver();
	cr_assert_eq(cu->DevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
	cr_assert_eq(cu->CtxPushCurrent(context), CUDA_SUCCESS);
}

void leave_device(CUdevice device)
{
	CUcontext popped;

	cr_assert_eq(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
	cr_assert_eq(cu->DevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

void need_two_devices(void)
{
	int can = 0;

	if (n_devices() < 2)
		cr_skip_test("there is one device");
	cr_assert_eq(cu->DeviceCanAccessPeer(&can, 1, 0), CUDA_SUCCESS);
	if (!can)
		cr_skip_test("the devices do not reach each other's memory");
}

CUstream stream_create(void)
{
	CUstream stream;

	cr_assert_eq(cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	return stream;
}

void *symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), *found;

	cr_assert(library);
	found = dlsym(library, name);
	cr_assert(found, "%s", name);
	dlclose(library);
	return found;
}

void begin_capture(CUstream stream)
{
	PFN_cuStreamBeginCapture_v10010 begin;

	*(void **)&begin = symbol("cuStreamBeginCapture_v2");
	cr_assert_eq(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
}

bool end_capture(CUstream stream)
{
	PFN_cuStreamEndCapture_v10000 end;
	PFN_cuGraphDestroy_v10000 destroy;
	CUgraph graph = NULL;
	CUresult result;

	*(void **)&end = symbol("cuStreamEndCapture");
	*(void **)&destroy = symbol("cuGraphDestroy");
	result = end(stream, &graph);
	if (result == CUDA_SUCCESS)
		cr_assert_eq(destroy(graph), CUDA_SUCCESS);
	else
		cr_assert_eq(result, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	return result == CUDA_SUCCESS;
}
