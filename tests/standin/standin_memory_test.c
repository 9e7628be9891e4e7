/* SPDX-License-Identifier: MIT */

/*
 * The stand-in driver's memory: what other tests take for a GPU's has to behave like one, in what
 * it refuses too.
 */

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/standin/peer.h"

#define SIZE      (4 * MIB)
#define READ      CU_MEM_ACCESS_FLAGS_PROT_READ
#define READWRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define FD        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

TestSuite(standin_memory, .timeout = 60);

/* ---- vmm ---- */

static void write_seven_and_end(int channel)
{
	struct packet m;
	int fd;

	use_context();
	peer_receive(channel, &m, &fd);
	set_byte(vmm_map(vmm_import(fd), SIZE, READWRITE), 7);
	peer_send(channel, &m, -1);
}

Test(standin_memory, a_descriptor_alone_keeps_vmm_memory_that_any_process_can_import)
{
	CUmemGenericAllocationHandle handle;
	struct packet m = {0};
	struct peer p;
	int fd;

	standin_configure("");
	p = peer_start(write_seven_and_end);
	use_context();
	handle = vmm_create(SIZE);
	fd = vmm_export(handle);
	MUST(cuMemRelease(handle));
	peer_send(p.channel, &m, fd);
	peer_receive(p.channel, &m, NULL);
	peer_finish(&p);
	CHECK(byte_at(vmm_map(vmm_import(fd), SIZE, READ)) == 7);
}

Test(standin_memory, the_cpu_cannot_touch_device_memory)
{
	CUdeviceptr p;
	int ends[2];

	standin_configure("");
	use_context();
	p = vmm_map(vmm_create(SIZE), SIZE, READWRITE);
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], (void *)(uintptr_t)p, 1) == -1 && errno == EFAULT);
}

Test(standin_memory, sizes_are_multiples_of_the_granularity)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;
	size_t granularity;
	CUdeviceptr p;

	standin_configure("granularity=4194304");
	MUST(cuInit(0));
	MUST(cuMemGetAllocationGranularity(&granularity, &properties,
					   CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(granularity == 4 * MIB);
	CHECK_RESULT(cuMemCreate(&handle, 2 * MIB, &properties, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemCreate(&handle, 4 * MIB, &properties, 0));
	MUST(cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0));
	CHECK(p % granularity == 0);
}

Test(standin_memory, an_address_asked_for_is_given_when_it_is_free)
{
	/* where no sanitizer has something */
	const CUdeviceptr wanted = 0x200000000000;
	CUdeviceptr first, second, third;

	standin_configure("");
	MUST(cuInit(0));
	MUST(cuMemAddressReserve(&first, SIZE, 0, wanted, 0));
	CHECK(first == wanted);
	MUST(cuMemAddressReserve(&second, SIZE, 0, wanted, 0));
	CHECK(second != wanted && second);
	MUST(cuMemAddressFree(first, SIZE));
	CHECK_RESULT(cuMemAddressFree(first, SIZE), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAddressReserve(&third, SIZE, 0, wanted, 0));
	CHECK(third == wanted);
}

Test(standin_memory, with_a_context_an_address_is_heard_for_large_reservations_only)
{
	const CUdeviceptr wanted = 0x200000000000;
	CUdeviceptr p;

	standin_configure("");
	use_context();
	MUST(cuMemAddressReserve(&p, 16 * MIB, 0, wanted, 0));
	CHECK(p != wanted);
	MUST(cuMemAddressReserve(&p, 1024 * MIB, 0, wanted, 0));
	CHECK(p == wanted);
	/* and is rounded */
	MUST(cuMemAddressReserve(&p, 128 * MIB, 0, wanted + 1024 * MIB + 2 * MIB, 0));
	CHECK(p == wanted + 1024 * MIB + 32 * MIB);
}

Test(standin_memory, a_mapping_without_access_cannot_be_used)
{
	CUmemAccessDesc access = access_for(0, READWRITE);
	CUmemGenericAllocationHandle handle;
	char byte = 0;
	CUdeviceptr p;

	standin_configure("");
	use_context();
	handle = vmm_create(SIZE);
	MUST(cuMemAddressReserve(&p, SIZE, 0, 0, 0));
	CHECK_RESULT(cuMemSetAccess(p, SIZE, &access, 1), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemMap(p, SIZE, 0, handle, 0));
	CHECK_RESULT(cuMemMap(p, SIZE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemcpyDtoH(&byte, p, 1), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemSetAccess(p, SIZE, &access, 1));
	MUST(cuMemcpyDtoH(&byte, p, 1));
	CHECK_RESULT(cuMemcpyDtoH(&byte, p + SIZE, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemAddressFree(p, SIZE), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemUnmap(p, SIZE));
	CHECK_RESULT(cuMemcpyDtoH(&byte, p, 1), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAddressFree(p, SIZE));
}

Test(standin_memory, a_readonly_mapping_can_be_upgraded_in_place)
{
	CUmemAccessDesc access = access_for(0, READWRITE);
	CUdeviceptr p;

	standin_configure("");
	use_context();
	p = vmm_map(vmm_create(SIZE), SIZE, READ);
	CHECK(byte_at(p) == 0);
	MUST(cuMemSetAccess(p, SIZE, &access, 1));
	set_byte(p, 3);
	CHECK(byte_at(p) == 3);
}

/* The call is refused, and nothing breaks. A kernel would break its context: there are none here.
 */
Test(standin_memory, a_readonly_mapping_is_not_written_to)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr readonly;

	standin_configure("");
	use_context();
	handle = vmm_create(SIZE);
	readonly = vmm_map(handle, SIZE, READ);
	CHECK_RESULT(cuMemsetD8Async(readonly, 1, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemcpyHtoDAsync(readonly, &handle, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuStreamSynchronize(NULL));
	CHECK(byte_at(readonly) == 0);
}

Test(standin_memory, descriptors_that_are_no_such_memory_are_refused)
{
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	int ends[2], fd;

	standin_configure("");
	use_context();
	CHECK(pipe(ends) == 0);
	CHECK_RESULT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)ends[0], FD),
		     CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, FD),
		     CUDA_ERROR_INVALID_VALUE);
	fd = memfd_create("something", MFD_CLOEXEC);
	CHECK_RESULT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, FD),
		     CUDA_ERROR_INVALID_VALUE);
	fd = vmm_export(vmm_create(SIZE));
	CHECK_RESULT(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, FD, 0),
		     CUDA_ERROR_INVALID_VALUE);
}

/* ---- of the host ---- */

static CUmemGenericAllocationHandle host_create(void)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;

	properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
	MUST(cuMemCreate(&handle, SIZE, &properties, 0));
	return handle;
}

static CUdeviceptr host_map(CUmemGenericAllocationHandle handle, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
				  .flags = flags};
	CUdeviceptr p = vmm_map(handle, SIZE, flags);

	MUST(cuMemSetAccess(p, SIZE, &access, 1));
	return p;
}

static unsigned char *bytes_at(CUdeviceptr p)
{
	return (unsigned char *)(uintptr_t)p;
}

static void read_six_and_write_seven(int channel)
{
	struct packet m;
	CUdeviceptr p;
	int fd;

	use_context();
	peer_receive(channel, &m, &fd);
	p = host_map(vmm_import(fd), READWRITE);
	CHECK(bytes_at(p)[SIZE - 1] == 6);
	MUST(cuMemsetD8Async(p, 7, SIZE, NULL));
	MUST(cuStreamSynchronize(NULL));
	peer_send(channel, &m, -1);
}

Test(standin_memory, cpu_and_devices_of_every_process_reach_memory_of_the_host)
{
	size_t before, after, total;
	struct packet m = {0};
	CUdeviceptr p;
	struct peer other;
	int ends[2], fd;

	standin_configure("devices=2,peers=0");
	other = peer_start(read_six_and_write_seven);
	use_context();
	MUST(cuMemGetInfo(&before, &total));
	fd = vmm_export(host_create());
	p = host_map(vmm_import(fd), READWRITE);
	MUST(cuMemGetInfo(&after, &total));
	CHECK(before == after);
	memset(bytes_at(p), 6, SIZE);
	CHECK(byte_at(p) == 6);
	peer_send(other.channel, &m, fd);
	peer_receive(other.channel, &m, NULL);
	peer_finish(&other);
	CHECK(bytes_at(p)[SIZE - 1] == 7);
	MUST(cuMemUnmap(p, SIZE));
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], bytes_at(p), 1) == -1 && errno == EFAULT);
	MUST(cuMemAddressFree(p, SIZE));
}

Test(standin_memory, memory_of_the_host_can_be_read_only_for_the_cpu)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
				  .flags = READWRITE};
	CUdeviceptr p;
	int ends[2];

	standin_configure("");
	use_context();
	p = host_map(host_create(), READ);
	CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	CHECK(bytes_at(p)[0] == 0);
	CHECK(read(ends[0], bytes_at(p), 1) == -1 && errno == EFAULT);
	CHECK_RESULT(cuMemsetD8Async(p, 1, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemSetAccess(p, SIZE, &access, 1));
	CHECK(read(ends[0], bytes_at(p), 1) == 1);
	CHECK(byte_at(p) == 'x');
	p = vmm_map(vmm_create(SIZE), SIZE, READWRITE);
	CHECK_RESULT(cuMemSetAccess(p, SIZE, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
}

Test(standin_memory, devices_may_not_reach_memory_of_the_host)
{
	CUmemAllocationProp properties = vmm_properties(0);
	CUmemGenericAllocationHandle handle;
	int value = 1;

	standin_configure("numa=0");
	MUST(cuInit(0));
	properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
	CHECK_RESULT(cuMemCreate(&handle, SIZE, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	CHECK(value == -1);
}

/* ---- how much there is ---- */

static void take_half(int channel)
{
	struct packet m;

	MUST(cuInit(0));
	vmm_create(32 * MIB);
	peer_send(channel, &(struct packet){0}, -1);
	peer_receive(channel, &m, NULL);
}

Test(standin_memory, memory_is_limited_over_all_processes_and_comes_back_from_a_killed_one)
{
	CUmemAllocationProp properties;
	CUmemGenericAllocationHandle handle;
	struct packet m;
	struct peer p;

	standin_configure("memory=67108864");
	p = peer_start(take_half);
	use_context();
	properties = vmm_properties(0);
	peer_receive(p.channel, &m, NULL);
	CHECK(device_free() == 32 * MIB);
	CHECK_RESULT(cuMemCreate(&handle, 34 * MIB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(device_free() == 32 * MIB);
	MUST(cuMemCreate(&handle, 32 * MIB, &properties, 0));
	CHECK(device_free() == 0);
	peer_kill(&p);
	CHECK(device_free() == 32 * MIB);
	MUST(cuMemRelease(handle));
	CHECK(device_free() == 64 * MIB);
}

Test(standin_memory, a_mapping_keeps_the_memory_of_a_released_handle)
{
	CUmemGenericAllocationHandle handle;
	uint64_t before;
	CUdeviceptr p;

	standin_configure("");
	use_context();
	before = device_free();
	handle = vmm_create(SIZE);
	p = vmm_map(handle, SIZE, READWRITE);
	MUST(cuMemRelease(handle));
	CHECK_RESULT(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	CHECK(device_free() == before - SIZE);
	MUST(cuMemUnmap(p, SIZE));
	CHECK(device_free() == before);
}

Test(standin_memory, each_device_has_its_own_memory)
{
	CUmemAllocationProp properties = vmm_properties(1);
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	uint64_t before;

	standin_configure("devices=2");
	use_context();
	before = device_free();
	MUST(cuMemCreate(&handle, SIZE, &properties, 0));
	CHECK(device_free() == before);
	MUST(cuDevicePrimaryCtxRetain(&context, 1));
	MUST(cuCtxSetCurrent(context));
	CHECK(device_free() == before - SIZE);
}

/* ---- peers, pointers, the older way ---- */

Test(standin_memory, a_peer_reaches_memory_once_it_was_given_access)
{
	CUmemAccessDesc access = access_for(1, READWRITE);
	CUcontext context;
	CUmemoryPool pool;
	CUdeviceptr v, a;
	char byte = 0;
	int can;

	standin_configure("devices=2");
	use_context();
	MUST(cuDeviceCanAccessPeer(&can, 1, 0));
	CHECK(can);
	v = vmm_map(vmm_create(SIZE), SIZE, READWRITE);
	pool = pool_create(0);
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	MUST(cuDevicePrimaryCtxRetain(&context, 1));
	MUST(cuCtxSetCurrent(context));
	CHECK_RESULT(cuMemcpyDtoH(&byte, v, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemcpyDtoH(&byte, a, 1), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemSetAccess(v, SIZE, &access, 1));
	MUST(cuMemPoolSetAccess(pool, &access, 1));
	set_byte(v, 1);
	set_byte(a, 2);
	CHECK(byte_at(v) == 1 && byte_at(a) == 2);
}

Test(standin_memory, without_peers_access_is_refused)
{
	CUmemAccessDesc access = access_for(1, READWRITE);
	CUdeviceptr v;
	int can;

	standin_configure("devices=2,peers=0");
	use_context();
	MUST(cuDeviceCanAccessPeer(&can, 1, 0));
	CHECK(!can);
	v = vmm_map(vmm_create(SIZE), SIZE, READWRITE);
	CHECK_RESULT(cuMemSetAccess(v, SIZE, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_RESULT(cuMemPoolSetAccess(pool_create(0), &access, 1), CUDA_ERROR_INVALID_DEVICE);
}

Test(standin_memory, a_pointer_says_what_it_is)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned type = 0;
	int ordinal = -1, local = 0;
	void *out[] = {&type, &ordinal};
	CUdeviceptr p, base;
	size_t size;

	standin_configure("");
	MUST(cuInit(0));
	p = vmm_map(vmm_create(SIZE), SIZE, READ);
	MUST(cuPointerGetAttributes(2, which, out, p + 100));
	CHECK(type == CU_MEMORYTYPE_DEVICE && ordinal == 0);
	CHECK_RESULT(cuMemGetAddressRange(&base, &size, p + 100), CUDA_ERROR_INVALID_CONTEXT);
	use_context();
	MUST(cuMemGetAddressRange(&base, &size, p + 100));
	CHECK(base == p && size == SIZE);
	CHECK_RESULT(
	    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&local),
	    CUDA_ERROR_INVALID_VALUE);
	MUST(cuPointerGetAttributes(2, which, out, (uintptr_t)&local));
	CHECK(type == 0);
}

Test(standin_memory, an_address_leads_to_the_handle_of_what_is_mapped_there)
{
	CUmemGenericAllocationHandle handle, again;
	CUmemAllocationProp properties;
	CUdeviceptr p, plain;

	standin_configure("");
	use_context();
	handle = vmm_create(SIZE);
	p = vmm_map(handle, SIZE, READWRITE);
	MUST(cuMemRelease(handle));
	set_byte(p, 9);
	MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(p + 100))); /* NOLINT */
	MUST(cuMemGetAllocationPropertiesFromHandle(&properties, again));
	CHECK(properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK(properties.location.id == 0 && properties.requestedHandleTypes == FD);
	MUST(cuMemUnmap(p, SIZE));
	CHECK(byte_at(vmm_map(vmm_import(vmm_export(again)), SIZE, READ)) == 9);
	MUST(cuMemRelease(again));
	CHECK_RESULT(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemGetAllocationPropertiesFromHandle(&properties, again),
		     CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)p), /* NOLINT */
		     CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAlloc(&plain, SIZE));
	CHECK_RESULT(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)plain), /* NOLINT */
		     CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(plain));
}

Test(standin_memory, managed_memory_is_the_hosts_as_well)
{
	unsigned managed = 0;
	CUipcMemHandle handle;
	CUdeviceptr p;

	standin_configure("");
	use_context();
	MUST(cuMemAllocManaged(&p, SIZE, CU_MEM_ATTACH_GLOBAL));
	set_byte(p, 3);
	CHECK(*(volatile unsigned char *)(uintptr_t)p == 3); /* NOLINT */
	MUST(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	CHECK(managed == 1);
	CHECK_RESULT(cuIpcGetMemHandle(&handle, p), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(p));
}

static void open_legacy(int channel)
{
	CUipcMemHandle handle;
	struct packet m;
	CUdeviceptr p, again;

	use_context();
	peer_receive(channel, &m, NULL);
	memcpy(&handle, m.bytes, sizeof(handle));
	MUST(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(byte_at(p) == 4);
	MUST(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(again == p);
	MUST(cuIpcCloseMemHandle(again));
	set_byte(p, 5);
	CHECK_RESULT(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
	MUST(cuIpcCloseMemHandle(p));
	CHECK_RESULT(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
	peer_send(channel, &m, -1);
}

Test(standin_memory, plain_memory_is_shared_by_handles)
{
	CUipcMemHandle handle;
	struct packet m = {0};
	CUdeviceptr a, own;
	uint64_t before;
	struct peer p;

	standin_configure("");
	p = peer_start(open_legacy);
	use_context();
	before = device_free();
	MUST(cuMemAlloc(&a, 100));
	CHECK(device_free() == before - 2 * MIB);
	set_byte(a, 4);
	MUST(cuIpcGetMemHandle(&handle, a));
	CHECK_RESULT(cuIpcOpenMemHandle(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		     CUDA_ERROR_INVALID_CONTEXT);
	memcpy(m.bytes, &handle, sizeof(handle));
	peer_send(p.channel, &m, -1);
	peer_receive(p.channel, &m, NULL);
	peer_finish(&p);
	CHECK(byte_at(a) == 5);
	MUST(cuMemFree(a));
	CHECK(device_free() == before);
}
