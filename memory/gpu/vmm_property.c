/* SPDX-License-Identifier: MIT */

/* What cuMemCreate() is asked for: memory of the device, or of a NUMA node of the host. */

#include "memory/gpu/vmm_property.h"

CUmemAllocationProp cuda_vmm_property(const struct cuda *cu, CUdevice device)
{
	CUmemAllocationProp property = {
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	int able = 0;

	/* Without this flag, registering the memory for RDMA may be refused. But a device without
	 * that ability refuses the flag, and a driver that does not know the attribute cannot
	 * tell. */
	if (cu->DeviceGetAttribute(&able,
				   CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
				   device) == CUDA_SUCCESS)
		property.allocFlags.gpuDirectRDMACapable = able != 0;
	return property;
}

CUmemLocation cuda_host_node(const struct cuda *cu, CUdevice device)
{
	int node = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);

	/* The node is -1 on a system without NUMA, and 0 where the driver does not know the
	 * attribute; then it does not know the other one either. */
	if (node < 0 ||
	    !cuda_attribute(cu, device,
			    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node};
}

CUmemAllocationProp cuda_pinned_property(const struct cuda *cu, CUdevice device)
{
	return (CUmemAllocationProp){
	    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = cuda_host_node(cu, device),
	};
}
