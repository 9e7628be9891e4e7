/* SPDX-License-Identifier: MIT */

/* Access of one GPU to the memory of another: which devices have it, and whether one could get it.
 * This file only keeps the account; the importers set the access. */

#include <share/error.h>

#include "base/failure.h"
#include "memory/gpu/access.h"

static uint64_t bit(CUdevice device)
{
	return device >= 0 && device < CUDA_DEVICES_MAX ? UINT64_C(1) << device : 0;
}

/* The number of devices is fixed when the driver is initialised, so it is asked for only once. */
static int count_devices(const struct cuda *cu)
{
	static _Atomic int count;
	int n = atomic_load_explicit(&count, memory_order_relaxed);

	if (n == 0 && cu->DeviceGetCount(&n) == CUDA_SUCCESS)
		atomic_store_explicit(&count, n, memory_order_relaxed);
	return n;
}

int cuda_access_missing(const struct cuda *cu, const struct cuda_access *a, CUdevice *out,
			struct failure *failure)
{
	CUcontext context = NULL;
	CUdevice current;
	int r, can = a->host.type != CU_MEM_LOCATION_TYPE_INVALID;

	if (count_devices(cu) == 1)
		return 0;
	r = cuda_check(failure, "cuCtxGetCurrent", cu->CtxGetCurrent(&context));
	if (r != 0 || !context)
		return r;
	r = cuda_check(failure, "cuCtxGetDevice", cu->CtxGetDevice(&current));
	if (r != 0 || current == a->owner || (atomic_load(&a->devices) & bit(current)))
		return r;
	if (!can)
		r = cuda_check(failure, "cuDeviceCanAccessPeer",
			       cu->DeviceCanAccessPeer(&can, current, a->owner));
	if (r != 0)
		return r;
	if (!can)
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "the memory is on device %d, and the current context's device "
		    "%d has no peer access to that one (nvidia-smi topo -p2p r): "
		    "look it up while no context is current, or one of device %d, and "
		    "share_copy() it into a buffer on device %d",
		    a->owner, current, a->owner, current);
	*out = current;
	return 1;
}

void cuda_access_granted(struct cuda_access *a, CUdevice device)
{
	atomic_fetch_or(&a->devices, bit(device));
}

CUmemAccessDesc cuda_access_describe(CUdevice device, bool writable)
{
	return (CUmemAccessDesc){
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	    .flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
	};
}

size_t cuda_access_describe_all(const struct cuda_access *a, bool writable,
				CUmemAccessDesc out[CUDA_ACCESS_MAX])
{
	uint64_t devices = atomic_load(&a->devices);
	size_t n = 0;

	for (CUdevice device = 0; device < CUDA_DEVICES_MAX; device++)
		if (devices & bit(device))
			out[n++] = cuda_access_describe(device, writable);
	if (a->host.type != CU_MEM_LOCATION_TYPE_INVALID) {
		out[n] = cuda_access_describe(a->owner, writable);
		out[n++].location = a->host;
	}
	return n;
}
