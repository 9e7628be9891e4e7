/* SPDX-License-Identifier: MIT */

/*
 * Contexts for the calls of importers. When an importer returns, the same context is current as
 * before, and a primary context that it retained has been released or is kept on purpose. The
 * driver counts how often a primary context is retained; nothing here does.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"

int cuda_enter(const struct cuda *cu, CUdevice device, struct cuda_scope *out,
	       struct failure *failure)
{
	CUcontext context = NULL;
	CUresult result;

	*out = (struct cuda_scope){.cu = cu, .device = device};
	result = cu->CtxGetCurrent(&context);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuCtxGetCurrent", result);
	if (context)
		return 0;
	result = cu->DevicePrimaryCtxRetain(&context, device);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuDevicePrimaryCtxRetain", result);
	result = cu->CtxPushCurrent(context);
	if (result != CUDA_SUCCESS) {
		cu->DevicePrimaryCtxRelease(device);
		return cuda_fail(failure, "cuCtxPushCurrent", result);
	}
	out->entered = true;
	return 0;
}

bool cuda_leave_keeping(struct cuda_scope *scope)
{
	bool entered = scope->entered;
	CUcontext popped;

	if (entered)
		scope->cu->CtxPopCurrent(&popped);
	scope->entered = false;
	return entered;
}

void cuda_leave(struct cuda_scope *scope)
{
	if (cuda_leave_keeping(scope))
		scope->cu->DevicePrimaryCtxRelease(scope->device);
}

static void exchange(const struct cuda *cu, CUstreamCaptureMode *mode)
{
	/* If this fails, it has no effect, and the call that follows says what is wrong. */
	(void)cu->ThreadExchangeStreamCaptureMode(mode);
}

void cuda_relax(const struct cuda *cu, struct cuda_relaxed *out)
{
	*out = (struct cuda_relaxed){cu, CU_STREAM_CAPTURE_MODE_RELAXED};
	exchange(cu, &out->before);
}

void cuda_relax_end(struct cuda_relaxed *relaxed)
{
	exchange(relaxed->cu, &relaxed->before);
}

int cuda_check_pointer(const struct cuda *cu, CUdeviceptr pointer, CUdevice device,
		       struct failure *failure)
{
	unsigned type = 0;
	int ordinal = -1;
	CUresult result;

	result = cu->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
	if (result == CUDA_SUCCESS)
		result =
		    cu->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuPointerGetAttribute", result);
	if (type != CU_MEMORYTYPE_DEVICE || ordinal != device)
		return failure_set(failure, SHARE_EPROTO,
				   "the recipe says memory of device %d, and it is of type %u on "
				   "device %d",
				   device, type, ordinal);
	return 0;
}
