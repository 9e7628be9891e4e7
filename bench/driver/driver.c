/* SPDX-License-Identifier: MIT */

/*
 * The CUDA driver as the floors of the GPU benchmarks call it, without the library. This file finds
 * the driver, the device and its context, and allocates memory, also in ways that the broker never
 * uses (cuMemAlloc, and its IPC handles). Streams are in driver_stream.c.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/driver/driver_cuda.h"
#include "memory/gpu/vmm_property.h"

struct driver driver;

_Static_assert(sizeof(CUipcMemHandle) == sizeof(struct driver_handle), "the same bytes");

void must_driver(CUresult r, const char *call)
{
	const char *name = "an unknown error";

	if (r == CUDA_SUCCESS)
		return;
	driver.cu->GetErrorName(r, &name);
	fprintf(stderr, "share-bench: %s: %s\n", call, name);
	exit(1);
}

bool driver_look_up(const char *symbol, void *member, char why[DRIVER_WHY])
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* never closed */
	void *function = library ? dlsym(library, symbol) : NULL;

	if (!library)
		snprintf(why, DRIVER_WHY, "%s", dlerror());
	else if (!function)
		snprintf(why, DRIVER_WHY, "libcuda.so.1 has no %s", symbol);
	/* ISO C does not convert a void pointer to a function pointer, but dlsym() relies on it. */
	memcpy(member, &function, sizeof(function));
	return function != NULL;
}

static bool look_up_all(char why[DRIVER_WHY])
{
#define LOOK_UP(member, symbol, type)                     \
	if (!driver_look_up(symbol, &driver.member, why)) \
		return false;
	FLOOR_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	return true;
}

/* @uuid begins with "GPU-" or "MIG-"; only the rest is compared. */
static bool find_device(const struct cuda *cu, const char *uuid, char why[DRIVER_WHY])
{
	const char *wanted = uuid ? strchr(uuid, '-') : NULL;
	int n = 0;

	must_driver(cu->DeviceGetCount(&n), "cuDeviceGetCount");
	for (int i = 0; i < n; i++) {
		CUuuid bytes;

		must_driver(cu->DeviceGet(&driver.device, i), "cuDeviceGet");
		must_driver(cu->DeviceGetUuid(&bytes, driver.device), "cuDeviceGetUuid");
		memory_uuid_text((const unsigned char *)bytes.bytes, driver.uuid);
		if (!uuid || (wanted && strcmp(wanted, strchr(driver.uuid, '-')) == 0))
			return true;
	}
	snprintf(why, DRIVER_WHY, "this process cannot see %s", uuid ? uuid : "a device");
	return false;
}

static void make_pool(void)
{
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver.device},
	};
	cuuint64_t all = UINT64_MAX;

	must_driver(driver.cu->MemPoolCreate(&driver.pool, &properties), "cuMemPoolCreate");
	must_driver(
	    driver.MemPoolSetAttribute(driver.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
	    "cuMemPoolSetAttribute");
}

bool driver_start(const char *uuid, char why[DRIVER_WHY])
{
	struct failure failure;
	const struct cuda *cu;
	CUcontext context;

	if (driver.cu)
		return true;
	if (cuda_get(&cu, &failure) != 0) {
		snprintf(why, DRIVER_WHY, "%.*s", DRIVER_WHY - 1, failure.text);
		return false;
	}
	driver.cu = cu;
	if (!look_up_all(why) || !find_device(cu, uuid, why)) {
		driver.cu = NULL;
		return false;
	}
	must_driver(cu->DevicePrimaryCtxRetain(&context, driver.device),
		    "cuDevicePrimaryCtxRetain");
	must_driver(cu->CtxPushCurrent(context), "cuCtxPushCurrent");
	return true;
}

const char *driver_device(void)
{
	return driver.uuid;
}

uint64_t driver_free_memory(void)
{
	size_t available, total;

	must_driver(driver.cu->MemGetInfo(&available, &total), "cuMemGetInfo");
	return available;
}

static void *pointer(CUresult r, CUdeviceptr p, const char *call)
{
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return NULL;
	must_driver(r, call);
	return (void *)(uintptr_t)p;
}

void *driver_alloc(uint64_t size)
{
	CUdeviceptr p = 0;
	CUresult r = driver.MemAlloc(&p, size);

	return pointer(r, p, "cuMemAlloc");
}

void driver_free(void *p)
{
	must_driver(driver.MemFree((CUdeviceptr)(uintptr_t)p), "cuMemFree");
}

void *driver_vmm_alloc(uint64_t size)
{
	const struct cuda *cu = driver.cu;
	CUmemAllocationProp property = cuda_vmm_property(cu, driver.device);
	CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	CUresult r = cu->MemCreate(&handle, size, &property, 0);

	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return NULL;
	must_driver(r, "cuMemCreate");
	must_driver(cu->MemAddressReserve(&p, size, 0, 0, 0), "cuMemAddressReserve");
	must_driver(cu->MemMap(p, size, 0, handle, 0), "cuMemMap");
	must_driver(cu->MemRelease(handle), "cuMemRelease");
	must_driver(cu->MemSetAccess(p, size, &access, 1), "cuMemSetAccess");
	return pointer(r, p, "cuMemCreate");
}

void driver_vmm_free(void *p, uint64_t size)
{
	must_driver(driver.cu->MemUnmap((uintptr_t)p, size), "cuMemUnmap");
	must_driver(driver.cu->MemAddressFree((uintptr_t)p, size), "cuMemAddressFree");
}

void driver_copy(void *to, const void *from, uint64_t size)
{
	must_driver(driver.cu->MemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, size, NULL),
		    "cuMemcpyDtoDAsync");
	must_driver(driver.cu->StreamSynchronize(NULL), "cuStreamSynchronize");
}

void *driver_pool_alloc(uint64_t size, void *stream)
{
	CUdeviceptr p = 0;
	CUresult r;

	if (!driver.pool)
		make_pool();
	r = driver.cu->MemAllocFromPoolAsync(&p, size, driver.pool, stream);
	return pointer(r, p, "cuMemAllocFromPoolAsync");
}

void driver_pool_free(void *p, void *stream)
{
	must_driver(driver.cu->MemFreeAsync((CUdeviceptr)(uintptr_t)p, stream), "cuMemFreeAsync");
}

struct driver_handle driver_export(void *p)
{
	struct driver_handle handle;
	CUipcMemHandle h;

	must_driver(driver.IpcGetMemHandle(&h, (CUdeviceptr)(uintptr_t)p), "cuIpcGetMemHandle");
	memcpy(handle.bytes, &h, sizeof(handle.bytes));
	return handle;
}

void *driver_import(const struct driver_handle *handle)
{
	CUipcMemHandle h;
	CUdeviceptr p = 0;

	memcpy(&h, handle->bytes, sizeof(h));
	must_driver(driver.IpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		    "cuIpcOpenMemHandle");
	return (void *)(uintptr_t)p;
}

void driver_close(void *p)
{
	must_driver(driver.IpcCloseMemHandle((CUdeviceptr)(uintptr_t)p), "cuIpcCloseMemHandle");
}
