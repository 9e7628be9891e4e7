/* SPDX-License-Identifier: MIT */

/*
 * What the facts about memory do over and over, on device 0.
 */

#include "tests/themes/facts/gpu.h"

CUmemAllocationProp vmm_properties(void)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

CUmemPoolProps pool_properties(void)
{
	return (CUmemPoolProps){
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

CUmemAccessDesc access_for(int ordinal, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
	    .flags = flags,
	};
}

CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, uint64_t size, CUmemAccess_flags flags)
{
	CUmemAccessDesc access = access_for(0, flags);
	CUdeviceptr p;

	MUST(MemAddressReserve(&p, size, 0, 0, 0));
	MUST(MemMap(p, size, 0, handle, 0));
	MUST(MemSetAccess(p, size, &access, 1));
	return p;
}

void vmm_unmap(CUdeviceptr p, uint64_t size)
{
	MUST(MemUnmap(p, size));
	MUST(MemAddressFree(p, size));
}

CUmemGenericAllocationHandle vmm_import(int fd)
{
	CUmemGenericAllocationHandle handle;

	MUST(MemImport(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return handle;
}

CUresult fill(CUdeviceptr p, unsigned char value, uint64_t size)
{
	CUresult result = cu.MemsetD8Async(p, value, size, NULL);

	return result == CUDA_SUCCESS ? cu.StreamSynchronize(NULL) : result;
}

bool holds(CUdeviceptr p, unsigned char value, uint64_t size)
{
	unsigned char first, last;

	MUST(MemcpyDtoH(&first, p, 1));
	MUST(MemcpyDtoH(&last, p + size - 1, 1));
	return first == value && last == value;
}
