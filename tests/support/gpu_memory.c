/* SPDX-License-Identifier: MIT */

/* What programs have before they share it: addresses, and allocations that are mapped there. */

#include <stddef.h>
#include <string.h>

#include "tests/harness/check.h"
#include "tests/support/gpu_memory.h"

#if __has_include(<cuda.h>)

#include "memory/cuda/driver.h"
#include "memory/gpu/vmm_property.h"

static const struct cuda *driver(void)
{
	const struct cuda *cu;
	struct failure failure;

	check_ok(cuda_get(&cu, &failure));
	return cu;
}

static CUmemAllocationProp property_of(const struct cuda *cu, int device, bool shareable)
{
	CUmemAllocationProp property = cuda_vmm_property(cu, device);

	if (!shareable)
		property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
	return property;
}

static void map(const struct cuda *cu, CUdeviceptr at, uint64_t size,
		const CUmemAllocationProp *property)
{
	CUmemGenericAllocationHandle handle;

	check_eq(cu->MemCreate(&handle, size, property, 0), CUDA_SUCCESS);
	check_eq(cu->MemMap(at, size, 0, handle, 0), CUDA_SUCCESS);
	check_eq(cu->MemRelease(handle), CUDA_SUCCESS);
}

void *gpu_memory_make(int device, uint64_t size, uint64_t piece, bool shareable)
{
	const struct cuda *cu = driver();
	const CUmemAllocationProp property = property_of(cu, device, shareable);
	const CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at;

	check_eq(cu->MemAddressReserve(&at, size, 0, 0, 0), CUDA_SUCCESS);
	for (uint64_t done = 0; done < size; done += piece)
		map(cu, at + done, piece, &property);
	check_eq(cu->MemSetAccess(at, size, &access, 1), CUDA_SUCCESS);
	return (void *)(uintptr_t)at; /* NOLINT: an address is what it is */
}

void gpu_memory_free(void *memory, uint64_t size, uint64_t piece)
{
	const struct cuda *cu = driver();
	CUdeviceptr at = (uintptr_t)memory;

	for (uint64_t done = 0; done < size; done += piece)
		check_eq(cu->MemUnmap(at + done, piece), CUDA_SUCCESS);
	check_eq(cu->MemAddressFree(at, size), CUDA_SUCCESS);
}

/* Allocating takes a context. Who asks here may have another one, or none; so nobody releases this.
 */
static void enter(const struct cuda *cu, int device)
{
	CUcontext context;

	check_eq(cu->DevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
	check_eq(cu->CtxPushCurrent(context), CUDA_SUCCESS);
}

static void leave(const struct cuda *cu)
{
	CUcontext popped;

	check_eq(cu->CtxPopCurrent(&popped), CUDA_SUCCESS);
}

void *gpu_memory_make_plain(int device, uint64_t size)
{
	const struct cuda *cu = driver();
	CUdeviceptr at;

	enter(cu, device);
	check_eq(cu->MemAlloc(&at, size), CUDA_SUCCESS);
	leave(cu);
	return (void *)(uintptr_t)at; /* NOLINT: an address is what it is */
}

void gpu_memory_free_plain(int device, void *memory)
{
	const struct cuda *cu = driver();

	enter(cu, device);
	check_eq(cu->MemFree((uintptr_t)memory), CUDA_SUCCESS);
	leave(cu);
}

#else

void *gpu_memory_make_plain(int device, uint64_t size)
{
	(void)device, (void)size;
	return NULL;
}

void gpu_memory_free_plain(int device, void *memory)
{
	(void)device, (void)memory;
}

void *gpu_memory_make(int device, uint64_t size, uint64_t piece, bool shareable)
{
	(void)device, (void)size, (void)piece, (void)shareable;
	return NULL;
}

void gpu_memory_free(void *memory, uint64_t size, uint64_t piece)
{
	(void)memory, (void)size, (void)piece;
}

#endif

/* ------------------------------------------------------------------------------------------- */

void *gpu_memory_make_as(const char *kind, uint64_t size)
{
	return strcmp(kind, "adopted-legacy") == 0 ? gpu_memory_make_plain(0, size)
						   : gpu_memory_make(0, size, size, true);
}

void gpu_memory_free_as(const char *kind, void *memory, uint64_t size)
{
	if (strcmp(kind, "adopted-legacy") == 0)
		gpu_memory_free_plain(0, memory);
	else
		gpu_memory_free(memory, size, size);
}
