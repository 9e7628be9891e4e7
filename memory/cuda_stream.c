/* SPDX-License-Identifier: MIT */

/* The context of a stream, and whether anything may be enqueued there now. */

#include <share/error.h>

#include "memory/cuda_stream.h"
#include "memory/fault.h"

/* Each context has its own of these. */
static bool is_special(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

void cuda_place_leave(struct cuda_place *p)
{
	CUcontext popped;

	if (p->pushed)
		p->cu->CtxPopCurrent(&popped);
	cuda_leave(&p->scope);
}

int cuda_stream_fail(struct memory_fault *fault, const char *call, CUresult result)
{
	int r = cuda_fail(fault, call, result);

	switch (result) {
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_VALUE:
		return SHARE_EINVAL;
	default:
		return r;
	}
}

static int push_context_of(struct cuda_place *p, CUstream stream, CUdevice device,
			   struct memory_fault *fault)
{
	CUcontext current = NULL, wanted;
	CUresult result;
	int r;

	result = p->cu->StreamGetCtx(stream, &wanted);
	if (result == CUDA_ERROR_INVALID_CONTEXT) {
		/* it may want to be asked in a context, whichever */
		r = cuda_enter(p->cu, device, &p->scope, fault);
		if (r < 0)
			return r;
		result = p->cu->StreamGetCtx(stream, &wanted);
	}
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(fault, "cuStreamGetCtx", result);
	result = p->cu->CtxGetCurrent(&current);
	if (result != CUDA_SUCCESS)
		return cuda_fail(fault, "cuCtxGetCurrent", result);
	if (current == wanted)
		return 0;
	result = p->cu->CtxPushCurrent(wanted);
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(fault, "cuCtxPushCurrent", result);
	p->pushed = true;
	return 0;
}

/*
 * What is enqueued while a stream is captured happens each time the graph is launched, and not now:
 * a value would be written again and again. The legacy stream must not even be asked for while
 * another one is captured that is ordered with it.
 */
static int check_capture(const struct cuda *cu, CUstream stream, const char *advice,
			 struct memory_fault *fault)
{
	CUstreamCaptureStatus status;
	CUresult result = cu->StreamIsCapturing(stream, &status);

	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	else if (result != CUDA_SUCCESS)
		return cuda_stream_fail(fault, "cuStreamIsCapturing", result);
	if (status != CU_STREAM_CAPTURE_STATUS_NONE)
		return memory_fail(fault, SHARE_ENOTSUP,
				   "the stream is being captured into a graph: %s", advice);
	return 0;
}

int cuda_place_enter(CUstream stream, CUdevice device, const char *advice, struct cuda_place *p,
		     struct memory_fault *fault)
{
	int r;

	*p = (struct cuda_place){0};
	r = cuda_get(&p->cu, fault);
	if (r < 0)
		return r;
	if (is_special(stream))
		r = cuda_enter(p->cu, device, &p->scope, fault);
	else
		r = push_context_of(p, stream, device, fault);
	if (r == 0)
		r = check_capture(p->cu, stream, advice, fault);
	if (r < 0)
		cuda_place_leave(p);
	return r;
}
