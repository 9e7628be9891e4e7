/* SPDX-License-Identifier: MIT */

/*
 * Contexts for the calls of importers. When an importer returns, the same context is current as
 * before, and a primary context that it retained has been released or is kept on purpose. The
 * driver counts how often a primary context is retained; nothing here does.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"

int cuda_enter_primary(const struct cuda *cu, CUdevice device, CUcontext *out,
		       struct failure *failure)
{
	int r = cuda_check(failure, "cuDevicePrimaryCtxRetain",
			   cu->DevicePrimaryCtxRetain(out, device));

	if (r != 0)
		return r;
	r = cuda_check(failure, "cuCtxPushCurrent", cu->CtxPushCurrent(*out));
	if (r != 0)
		cu->DevicePrimaryCtxRelease(device);
	return r;
}

int cuda_enter(const struct cuda *cu, CUdevice device, struct cuda_scope *out,
	       struct failure *failure)
{
	CUcontext context = NULL;
	int r = cuda_check(failure, "cuCtxGetCurrent", cu->CtxGetCurrent(&context));

	*out = (struct cuda_scope){.cu = cu, .device = device};
	if (r != 0 || context)
		return r;
	r = cuda_enter_primary(cu, device, &context, failure);
	out->entered = r == 0;
	return r;
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

int cuda_own_stream_init(struct cuda_own_stream *s, CUdevice device, struct failure *failure)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;
	int r = cuda_get(&s->cu, failure);

	s->device = device;
	if (r == 0)
		r = cuda_enter_primary(s->cu, device, &s->context, failure);
	if (r != 0)
		return r;
	cuda_relax(s->cu, &relaxed);
	r = cuda_check(failure, "cuStreamCreate",
		       s->cu->StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
	cuda_relax_end(&relaxed);
	s->cu->CtxPopCurrent(&popped);
	if (r != 0)
		s->cu->DevicePrimaryCtxRelease(device);
	return r;
}

void cuda_own_stream_deinit(struct cuda_own_stream *s)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;

	if (s->cu->CtxPushCurrent(s->context) == CUDA_SUCCESS) {
		cuda_relax(s->cu, &relaxed);
		s->cu->StreamDestroy(s->stream);
		cuda_relax_end(&relaxed);
		s->cu->CtxPopCurrent(&popped);
	}
	s->cu->DevicePrimaryCtxRelease(s->device);
}

int cuda_check_pointer(const struct cuda *cu, CUdeviceptr pointer, CUdevice device,
		       struct failure *failure)
{
	unsigned type = 0;
	int ordinal = -1;
	CUresult result = cu->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);

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
