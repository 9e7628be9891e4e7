/* SPDX-License-Identifier: MIT */

/*
 * Host memory that GPUs can reach. A registration ends with the context in which it was made, and
 * the program may destroy its own contexts at any time. So the registration is made in the primary
 * context, which exists as long as somebody retains it, and holds for all other contexts
 * (CU_MEMHOSTREGISTER_PORTABLE).
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"
#include "memory/stream.h"

static int register_here(const struct cuda *cu, void *page, size_t size, unsigned flags,
			 CUdeviceptr *out, struct failure *failure)
{
	int r = cuda_check(failure, "cuMemHostRegister", cu->MemHostRegister(page, size, flags));

	if (r != 0)
		return r;
	r = cuda_check(failure, "cuMemHostGetDevicePointer",
		       cu->MemHostGetDevicePointer(out, page, 0));
	if (r != 0)
		cu->MemHostUnregister(page);
	return r;
}

static int register_in_primary(const struct cuda *cu, CUdevice device, void *page, size_t size,
			       unsigned flags, struct memory_page *out, struct failure *failure)
{
	CUcontext context, popped;
	CUdeviceptr address = 0;
	int r = cuda_enter_primary(cu, device, &context, failure);

	if (r < 0)
		return r;
	r = register_here(cu, page, size, flags, &address, failure);
	cu->CtxPopCurrent(&popped);
	if (r < 0) {
		cu->DevicePrimaryCtxRelease(device);
		return r;
	}
	*out = (struct memory_page){address, page, context, device};
	return 0;
}

int memory_page_register(int ordinal, void *page, size_t size, bool readonly,
			 struct memory_page *out, struct failure *failure)
{
	unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct cuda_relaxed relaxed;
	const struct cuda *cu;
	int r;

	if (readonly)
		flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	r = cuda_get(&cu, failure);
	if (r < 0)
		return r;
	cuda_relax(cu, &relaxed);
	r = register_in_primary(cu, ordinal, page, size, flags, out, failure);
	cuda_relax_end(&relaxed);
	return r;
}

void memory_page_unregister(struct memory_page *p)
{
	struct cuda_relaxed relaxed;
	struct failure failure;
	const struct cuda *cu;
	CUcontext popped;

	if (p->host && cuda_get(&cu, &failure) == 0) {
		cuda_relax(cu, &relaxed);
		/* If this fails, somebody has destroyed the context, and the registration with
		 * it. */
		if (cu->CtxPushCurrent(p->context) == CUDA_SUCCESS) {
			cu->MemHostUnregister(p->host);
			cu->CtxPopCurrent(&popped);
		}
		cu->DevicePrimaryCtxRelease(p->ordinal);
		cuda_relax_end(&relaxed);
	}
	*p = (struct memory_page){0};
}

int memory_page_check(const struct memory_page *p, struct failure *failure)
{
	const struct cuda *cu;
	CUdeviceptr address;
	int r = cuda_get(&cu, failure);

	if (r < 0 || cu->MemHostGetDevicePointer(&address, p->host, 0) == CUDA_SUCCESS)
		return r;
	return failure_set(
	    failure, SHARE_EDEVICE,
	    "the driver has forgotten a page of timelines, as this program has reset "
	    "the primary context of device %d, or has released it more often than it "
	    "retained it: connect again",
	    p->ordinal);
}
