/* SPDX-License-Identifier: MIT */

/*
 * A gate is a cell of memory shared by all processes of the test, for which streams wait as they do
 * for a fence: by value. So a stream that is held up costs no thread, and is released by a store.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"

#define PAGE     4096
#define READINGS 2 /* of a test that are not looked at yet */

share_client *gpu_client;
share_pool *gpu_pool;

struct gates {
	_Atomic uint64_t open[GPU_GATES];
};

static struct gates *gates;
static const struct cuda *cu;
static CUdeviceptr gates_on_device, scratch_on_device, readings_on_device;
static void *scratch;

/* vmm, unless $SHARE_TEST_KINDS asks for another kind that is on a device. */
static const char *kind_to_test(void)
{
	size_t n;
	struct kind *kinds = kinds_to_test(&n);

	for (size_t i = 0; i < n; i++)
		if (!is_host(kinds[i].name))
			return kinds[i].name;
	return "vmm";
}

static void start(const char *machine)
{
	const char *kind = kind_to_test();
	char config[256];

	snprintf(config, sizeof(config),
		 "{\"create_pools\": [\"*\"], \"pools\": [{\"name\": \"default\", \"kind\": \"%s\","
		 " \"limit\": \"2MiB\", \"segment_size\": \"2MiB\", \"release_threshold\": 0}]}",
		 kind);
	kinds_start_on(machine, config);
	skip_unless_possible(kind);
	gates = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(gates != MAP_FAILED);
	gpu_client = connect_as("test");
	gpu_pool = open_pool(gpu_client);
}

void gpu_work_start(void)
{
	start("");
}

void gpu_work_start_on(const char *machine)
{
	skip_unless_standin();
	start(machine);
}

void gpu_work_stop(void)
{
	for (unsigned i = 0; i < GPU_GATES; i++)
		gpu_open(i);
	if (!check_has_failed()) {
		share_pool_close(gpu_pool);
		share_disconnect(gpu_client);
	}
	fixture_stop();
}

/* ------------------------------------------------------------------------------------------- */

gpu_function gpu_symbol(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
	gpu_function function;

	check(driver);
	symbol = dlsym(driver, name);
	if (!symbol)
		check_failed(__FILE__, __LINE__, "the driver has no %s", name);
	memcpy(&function, &symbol, sizeof(function));
	return function;
}

void gpu_check(const char *call, int result)
{
	const char *name = "?";

	if (result == CUDA_SUCCESS)
		return;
	cu->GetErrorName((CUresult)result, &name);
	check_failed(__FILE__, __LINE__, "%s: %s", call, name);
}

static void register_host(void *memory, size_t size)
{
	gpu_check("cuMemHostRegister",
		  cu->MemHostRegister(memory, size,
				      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

/* Of which copies do not wait for the host. Never given back: that waits for streams. */
static void *registered_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED);
	register_host(memory, size);
	return memory;
}

void gpu_use(void)
{
	struct failure failure;
	bool first = !cu;
	CUcontext context;
	CUdevice device;

	check_ok(cuda_get(&cu, &failure));
	gpu_check("cuDeviceGet", cu->DeviceGet(&device, 0));
	gpu_check("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&context, device));
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(context));
	if (!first)
		return;
	register_host(gates, PAGE);
	gpu_check("cuMemHostGetDevicePointer",
		  cu->MemHostGetDevicePointer(&gates_on_device, gates, 0));
	scratch = registered_memory(PAGE);
	GPU_CALL(PFN_cuMemAlloc_v3020, cuMemAlloc_v2, &scratch_on_device, PAGE);
	GPU_CALL(PFN_cuMemAlloc_v3020, cuMemAlloc_v2, &readings_on_device, READINGS * GPU_BLOCK);
}

share_buffer *gpu_allocate(share_client *c, void *stream)
{
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, GPU_BLOCK, stream);

	share_pool_close(p);
	return b;
}

/* ------------------------------------------------------------------------------------------- */

void *gpu_stream(void)
{
	CUstream stream;

	gpu_check("cuStreamCreate", cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

void gpu_stream_destroy(void *stream)
{
	gpu_check("cuStreamDestroy", cu->StreamDestroy(stream));
}

bool gpu_is_busy(void *stream)
{
	CUresult result = ((PFN_cuStreamQuery_v2000)gpu_symbol("cuStreamQuery"))(stream);

	if (result != CUDA_ERROR_NOT_READY)
		gpu_check("cuStreamQuery", result);
	return result == CUDA_ERROR_NOT_READY;
}

void gpu_wait(void *stream)
{
	gpu_check("cuStreamSynchronize", cu->StreamSynchronize(stream));
}

void gpu_others_create(void *streams[GPU_OTHERS])
{
	for (int i = 0; i < GPU_OTHERS; i++)
		streams[i] = gpu_stream();
}

/*
 * Streams share the hardware's connections: with half of them parked, 15 to 20 of 24 others ran
 * within a second, and all of them within some more (H200, driver 580).
 */
void gpu_expect_most_others_run(void *streams[GPU_OTHERS])
{
	int ran;

	for (int i = 0; i < GPU_OTHERS; i++)
		GPU_CALL(PFN_cuMemsetD8Async_v3020, cuMemsetD8Async, scratch_on_device, 0x2a, PAGE,
			 streams[i]);
	for (struct deadline d = deadline_in(HARNESS_LIMIT_MS);;) {
		ran = 0;
		for (int i = 0; i < GPU_OTHERS; i++)
			ran += !gpu_is_busy(streams[i]);
		if (ran > GPU_OTHERS / 2 || !deadline_pause(&d))
			break;
	}
	/* they are left to the end of the process: giving up one that runs late waits for it */
	check(ran > GPU_OTHERS / 2);
}

/* Again and again, so that whoever stands still after that does not do so for want of a turn. */
void gpu_expect_others_run(void)
{
	void *stream = gpu_stream();

	for (int i = 0; i < 10; i++) {
		memset(scratch, 0, PAGE);
		GPU_CALL(PFN_cuMemsetD8Async_v3020, cuMemsetD8Async, scratch_on_device, 0x2a, PAGE,
			 stream);
		gpu_check("cuMemcpyDtoHAsync",
			  cu->MemcpyDtoHAsync(scratch, scratch_on_device, PAGE, stream));
		gpu_wait(stream);
		expect_filled(scratch, 0x2a, PAGE);
	}
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */

void gpu_hold(void *stream, unsigned gate)
{
	gpu_check("cuStreamWaitValue64",
		  cu->StreamWaitValue64(stream, gates_on_device + gate * sizeof(uint64_t), 1,
					CU_STREAM_WAIT_VALUE_GEQ));
}

static void wait_for_gate(void *cell)
{
	while (!atomic_load((_Atomic uint64_t *)cell))
		nanosleep(&(struct timespec){0, 200000}, NULL);
}

void gpu_hold_by_host(void *stream, unsigned gate)
{
	GPU_CALL(PFN_cuLaunchHostFunc_v10000, cuLaunchHostFunc, stream, wait_for_gate,
		 &gates->open[gate]);
}

void gpu_open(unsigned gate)
{
	atomic_store(&gates->open[gate], 1);
}

bool gpu_is_open(unsigned gate)
{
	return atomic_load(&gates->open[gate]) != 0;
}

static CUdeviceptr device_pointer(share_buffer *b)
{
	return (CUdeviceptr)(uintptr_t)share_ptr(b);
}

void gpu_fill(void *stream, share_buffer *b, int value)
{
	GPU_CALL(PFN_cuMemsetD8Async_v3020, cuMemsetD8Async, device_pointer(b),
		 (unsigned char)value, share_size(b), stream);
}

struct gpu_reading {
	unsigned char *bytes;
	uint64_t size;
};

/* By way of memory of the device: the call of a copy from memory of the host (kind pinned) to other
 * memory of the host may last until the stream is free, and none of these two may. */
struct gpu_reading *gpu_read(void *stream, share_buffer *b)
{
	static unsigned readings;
	struct gpu_reading *r = calloc(1, sizeof(*r));
	CUdeviceptr between = readings_on_device + readings++ % READINGS * GPU_BLOCK;

	check(r);
	r->size = share_size(b);
	check(r->size <= GPU_BLOCK);
	r->bytes = registered_memory(r->size);
	memset(r->bytes, 0xee, r->size);
	gpu_check("cuMemcpyDtoDAsync",
		  cu->MemcpyDtoDAsync(between, device_pointer(b), r->size, stream));
	gpu_check("cuMemcpyDtoHAsync", cu->MemcpyDtoHAsync(r->bytes, between, r->size, stream));
	return r;
}

void gpu_expect(struct gpu_reading *r, int value)
{
	expect_filled(r->bytes, value, r->size);
	free(r);
}

void gpu_expect_held(void *stream, unsigned gate)
{
	gpu_expect_others_run();
	check(gpu_is_busy(stream));
	check(!gpu_is_open(gate));
}

share_fence_stats gpu_stats(share_client *c)
{
	share_fence_stats stats = SHARE_FENCE_STATS_INIT;

	check_ok(share_fence_get_stats(c, &stats));
	return stats;
}

uint32_t gpu_ordered(share_buffer *b)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;

	check_ok(share_buffer_get_info(b, &info));
	return info.ordered;
}
