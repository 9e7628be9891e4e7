/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/cuda/driver.h"

/* What memory that cuMemCreate() makes is to be like, of each kind that it makes. */

/* Of a vmm segment on @device: it can be exported, and network adapters can reach it if the device
 * can do that, which costs nothing. */
CUmemAllocationProp cuda_vmm_property(const struct cuda *cu, CUdevice device);

/* Returns the NUMA node of the host that is nearest to @device, if cuMemCreate() makes memory there
 * and the device reaches it; CU_MEM_LOCATION_TYPE_INVALID: the driver says no such thing. */
CUmemLocation cuda_host_node(const struct cuda *cu, CUdevice device);
/* Of a pinned segment, which is memory of that node. */
CUmemAllocationProp cuda_pinned_property(const struct cuda *cu, CUdevice device);
