/* SPDX-License-Identifier: MIT */

/*
 * The stand-in driver's devices and contexts, and what a test can tell it to do: its faults and its
 * counts.
 */

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/cuda/driver.h"
#include "tests/standin/peer.h"

TestSuite(standin_machine, .timeout = 60);

/* ---- what there is ---- */

Test(standin_machine, every_function_of_our_table_is_there)
{
	static const char *const symbols[] = {
#define SYMBOL(member, symbol, type) symbol,
	    CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	CHECK(library);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++)
		if (!dlsym(library, symbols[i]))
			cr_assert_fail("there is no %s", symbols[i]);
}

Test(standin_machine, functions_are_found_by_name_the_newest_first)
{
	CUdriverProcAddressQueryResult status;
	void *found, *direct = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");

	MUST(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, &status));
	CHECK(found && found == direct && status == CU_GET_PROC_ADDRESS_SUCCESS);
	MUST(cuGetProcAddress("cuCtxCreate", &found, 13000, 0, &status));
	CHECK(found == dlsym(RTLD_DEFAULT, "cuCtxCreate_v4"));
	CHECK_RESULT(cuGetProcAddress("cuMem", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void nothing_before_init(int channel)
{
	int n;

	(void)channel;
	CHECK_RESULT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&n));
	CHECK(n == 1);
}

Test(standin_machine, nothing_works_before_it_is_initialised)
{
	struct peer p;

	standin_configure("");
	p = peer_start(nothing_before_init);
	peer_finish(&p);
}

static void nothing_in_a_fork(int channel)
{
	int n;

	(void)channel;
	CHECK_RESULT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_RESULT(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
}

Test(standin_machine, a_forked_child_has_no_driver)
{
	struct peer p;

	standin_configure("");
	MUST(cuInit(0));
	p = peer_start(nothing_in_a_fork);
	peer_finish(&p);
}

static const struct {
	const char *visible;
	int count;
	int devices[3]; /* the last digit of their UUIDs */
} visible[] = {
    {"0,1,2", 3, {0, 1, 2}},
    {"2,0", 2, {2, 0}},
    {"1", 1, {1}},
    {"1,7,0", 1, {1}},
    {"", 0, {0}},
    {"-1", 0, {0}},
    {"7", 0, {0}},
    {"1,1", 0, {0}},
    {"nonsense", 0, {0}},
    /* "standin-device-1", and a beginning of "standin-device-2" that is enough */
    {"GPU-7374616e-6469-6e2d-6465-766963652d31", 1, {1}},
    {"GPU-7374616e-6469-6e2d-6465-766963652d32,0", 2, {2, 0}},
    {"GPU-5fd4f087-86f3-7a43-b711-4771313afc50,0", 0, {0}},
};

static size_t visible_case;

static void look(int channel)
{
	CUresult result = cuInit(0);
	CUuuid uuid;
	int n;

	(void)channel;
	CHECK(result == (visible[visible_case].count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE));
	if (result != CUDA_SUCCESS)
		return;
	MUST(cuDeviceGetCount(&n));
	CHECK(n == visible[visible_case].count);
	for (int i = 0; i < n; i++) {
		MUST(cuDeviceGetUuid(&uuid, i));
		CHECK(memcmp(uuid.bytes, "standin-device-", 15) == 0);
		CHECK(uuid.bytes[15] == '0' + visible[visible_case].devices[i]);
	}
	CHECK_RESULT(cuDeviceGetUuid(&uuid, n), CUDA_ERROR_INVALID_DEVICE);
}

Test(standin_machine, cuda_visible_devices_hides_and_reorders)
{
	standin_configure("devices=3");
	for (visible_case = 0; visible_case < sizeof(visible) / sizeof(*visible); visible_case++) {
		struct peer p;

		setenv("CUDA_VISIBLE_DEVICES", visible[visible_case].visible, 1);
		p = peer_start(look);
		peer_finish(&p);
	}
}

Test(standin_machine, a_machine_can_do_what_it_was_told)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;
	CUmemPoolProps pool_properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemoryPool pool;
	size_t total;
	int value;

	standin_configure("vmm=0,mempool=0,memops=0,driver=12040,memory=3145728");
	MUST(cuInit(0));
	MUST(cuDriverGetVersion(&value));
	CHECK(value == 12040);
	MUST(cuDeviceTotalMem(&total, 0));
	CHECK(total == 3 * MIB);
	MUST(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
				  0));
	CHECK(!value);
	CHECK_RESULT(cuMemCreate(&handle, 2 * MIB, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
	CHECK(!value);
	CHECK_RESULT(cuMemPoolCreate(&pool, &pool_properties), CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	CHECK(!value);
	use_context();
	CHECK_RESULT(cuStreamWriteValue64(NULL, 8, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
}

Test(standin_machine, memory_can_be_made_for_rdma_where_the_device_has_that)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;
	int value, fd;

	standin_configure("");
	MUST(cuInit(0));
	MUST(cuDeviceGetAttribute(&value,
				  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
	CHECK(value);
	for (int rdma = 0; rdma < 2; rdma++) {
		properties.allocFlags.gpuDirectRDMACapable = rdma != 0;
		MUST(cuMemCreate(&handle, 2 * MIB, &properties, 0));
		fd = vmm_export(handle);
		CHECK(standin_is_for_rdma(fd) == (rdma != 0));
		MUST(cuMemRelease(handle));
		MUST(cuMemRelease(vmm_import(fd)));
		close(fd);
	}
}

Test(standin_machine, memory_for_rdma_is_refused_where_the_device_has_it_not)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;
	int value;

	standin_configure("rdma=0");
	MUST(cuInit(0));
	MUST(cuDeviceGetAttribute(&value,
				  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0));
	CHECK(!value);
	properties.allocFlags.gpuDirectRDMACapable = 1;
	CHECK_RESULT(cuMemCreate(&handle, 2 * MIB, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
	properties.allocFlags.gpuDirectRDMACapable = 0;
	MUST(cuMemCreate(&handle, 2 * MIB, &properties, 0));
	MUST(cuMemRelease(handle));
}

static void see_no_memory(int channel)
{
	CUmemGenericAllocationHandle handle;
	struct packet m;
	int fd;

	use_context();
	peer_receive(channel, &m, &fd);
	CHECK(device_free() == 1024 * MIB);
	CHECK_RESULT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		     CUDA_ERROR_INVALID_VALUE);
}

Test(standin_machine, another_machine_has_other_memory)
{
	struct packet m = {0};
	struct peer p;

	setenv("SHARE_STANDIN", "machine=1", 1);
	p = peer_start(see_no_memory);
	standin_configure("");
	MUST(cuInit(0));
	peer_send(p.channel, &m, vmm_export(vmm_create(2 * MIB)));
	peer_finish(&p);
}

/* ---- contexts ---- */

Test(standin_machine, what_needs_a_context_says_so)
{
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUdeviceptr p;
	CUstream s;
	CUevent e;
	size_t a, b;

	standin_configure("");
	MUST(cuInit(0));
	MUST(cuCtxGetCurrent(&context));
	CHECK(!context);
	CHECK_RESULT(cuStreamCreate(&s, 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RESULT(cuEventCreate(&e, 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RESULT(cuMemGetInfo(&a, &b), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RESULT(cuMemcpyDtoH(&a, 1, 1), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_RESULT(cuMemAlloc(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
	/* and what does not */
	handle = vmm_create(2 * MIB);
	close(vmm_export(handle));
	MUST(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0));
	MUST(cuMemRelease(handle));
}

Test(standin_machine, a_primary_context_lives_while_it_is_retained)
{
	CUcontext a, b;
	size_t bytes, total;
	unsigned flags;
	int active;

	standin_configure("");
	MUST(cuInit(0));
	CHECK_RESULT(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	MUST(cuDevicePrimaryCtxRetain(&a, 0));
	MUST(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	MUST(cuCtxPushCurrent(a));
	MUST(cuDevicePrimaryCtxRelease(0));
	MUST(cuMemGetInfo(&bytes, &total));
	MUST(cuDevicePrimaryCtxRelease(0));
	MUST(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(!active);
	CHECK_RESULT(cuMemGetInfo(&bytes, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	MUST(cuCtxPopCurrent(&b));
	CHECK(a == b);
	CHECK_RESULT(cuCtxPopCurrent(&b), CUDA_ERROR_INVALID_CONTEXT);
}

static _Alignas(4096) unsigned char registered[4096];

/* PORTABLE makes it good for all contexts, and not outlive its own. */
Test(standin_machine, registered_memory_is_registered_as_long_as_its_context_lives)
{
	CUcontext primary, own;
	CUdeviceptr p;

	standin_configure("");
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxPushCurrent(primary));
	MUST(cuCtxCreate(&own, NULL, 0, 0));
	MUST(cuMemHostRegister(registered, sizeof(registered), CU_MEMHOSTREGISTER_PORTABLE));
	MUST(cuMemHostGetDevicePointer(&p, registered, 0));
	MUST(cuCtxDestroy(own));
	CHECK_RESULT(cuMemHostGetDevicePointer(&p, registered, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemHostRegister(registered, sizeof(registered), CU_MEMHOSTREGISTER_PORTABLE));
	MUST(cuCtxCreate(&own, NULL, 0, 0));
	MUST(cuMemHostGetDevicePointer(&p, registered, 0));
	MUST(cuMemHostUnregister(registered));
}

Test(standin_machine, contexts_are_a_stack)
{
	CUcontext primary, own, current;
	CUdevice device;

	standin_configure("devices=2");
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxPushCurrent(primary));
	MUST(cuCtxCreate(&own, NULL, 0, 1));
	MUST(cuCtxGetDevice(&device));
	CHECK(device == 1);
	MUST(cuCtxDestroy(own));
	MUST(cuCtxGetCurrent(&current));
	CHECK(current == primary);
	MUST(cuCtxGetDevice(&device));
	CHECK(device == 0);
	CHECK_RESULT(cuCtxPushCurrent(own), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	MUST(cuCtxSetCurrent(NULL));
	CHECK_RESULT(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- faults and counts ---- */

static char faults_path[64];

static void faults(const char *text)
{
	int fd;

	if (!faults_path[0]) {
		snprintf(faults_path, sizeof(faults_path), "/tmp/standin-faults-%ld",
			 (long)getpid());
		setenv("SHARE_STANDIN_FAULTS", faults_path, 1);
	}
	fd = open(faults_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

Test(standin_machine, any_call_can_be_made_to_fail)
{
	CUdeviceptr p;
	int n;

	standin_configure("");
	faults("cuMemAlloc fail CUDA_ERROR_OUT_OF_MEMORY\ncuDeviceGetCount fail 719 after 2\n");
	use_context();
	CHECK_RESULT(cuMemAlloc(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	MUST(cuDeviceGetCount(&n));
	MUST(cuDeviceGetCount(&n));
	CHECK_RESULT(cuDeviceGetCount(&n), CUDA_ERROR_LAUNCH_FAILED);
	faults("");
	MUST(cuMemAlloc(&p, 1));
	MUST(cuDeviceGetCount(&n));
	faults("cuMemAlloc_v2 fail CUDA_ERROR_UNKNOWN");
	CHECK_RESULT(cuMemAlloc(&p, 1), CUDA_ERROR_UNKNOWN);
	unlink(faults_path);
	MUST(cuMemAlloc(&p, 1));
}

static void call_three_times(int channel)
{
	int n;

	(void)channel;
	MUST(cuInit(0));
	for (int i = 0; i < 3; i++)
		MUST(cuDeviceGetCount(&n));
}

Test(standin_machine, a_call_can_be_made_to_kill_its_process)
{
	struct peer p;
	int status;

	standin_configure("");
	faults("cuDeviceGetCount die after 3");
	p = peer_start(call_three_times);
	peer_finish(&p);
	faults("cuDeviceGetCount die after 2");
	p = peer_start(call_three_times);
	status = peer_wait(&p);
	unlink(faults_path);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

Test(standin_machine, a_call_can_be_made_to_hang)
{
	struct peer p;

	standin_configure("");
	faults("cuDeviceGetCount hang after 1");
	p = peer_start(call_three_times);
	peer_until_it_hangs(&p);
	peer_kill(&p);
	unlink(faults_path);
}

Test(standin_machine, calls_are_counted_over_all_processes)
{
	struct standin_calls *calls;
	struct peer a, b;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/standin-calls-%ld", (long)getpid());
	standin_configure("");
	setenv("SHARE_STANDIN_CALLS", path, 1);
	calls = standin_calls_open(path);
	CHECK(calls);
	a = peer_start(call_three_times);
	b = peer_start(call_three_times);
	peer_finish(&a);
	peer_finish(&b);
	CHECK(standin_called(calls, cuDeviceGetCount) == 6);
	CHECK(standin_called(calls, cuInit) == 2);
	CHECK(standin_called(calls, cuMemCreate) == 0);
	unlink(path);
}
