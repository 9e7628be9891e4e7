/* SPDX-License-Identifier: MIT */

/*
 * Finds the context of a stream, and whether anything may be enqueued on the stream now.
 *
 * A stream never changes its context, and no other stream ever gets its identifier. So each thread
 * remembers the streams that it used last. It has to ask the driver for the identifier each time,
 * because another stream may get the same handle later. Before that it asks whether the stream is
 * being captured, since asking for the identifier would spoil a capture.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/stream_context.h"

/* Each context has its own stream for each of these handles. */
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

/* Like cuda_fail(), for a call that may have failed because of the stream: returns SHARE_EINVAL if
 * the driver knows no such stream. */
static int cuda_stream_fail(struct failure *failure, const char *call, CUresult result)
{
	int r = cuda_fail(failure, call, result);

	switch (result) {
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_VALUE:
		return failure->error = SHARE_EINVAL;
	default:
		return r;
	}
}

#define REMEMBERED 8 /* streams in each thread */

struct remembered {
	unsigned long long id;
	CUcontext context; /* NULL: the place is empty */
	CUdevice device;
};

static _Thread_local struct remembered remembered[REMEMBERED];

static struct remembered *place_for(unsigned long long id)
{
	return &remembered[id % REMEMBERED];
}

static int push(struct cuda_place *p, CUcontext wanted, struct failure *failure)
{
	CUcontext current = NULL;
	CUresult result = p->cu->CtxGetCurrent(&current);

	if (result != CUDA_SUCCESS)
		return cuda_fail(failure, "cuCtxGetCurrent", result);
	if (current == wanted)
		return 0;
	result = p->cu->CtxPushCurrent(wanted);
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(failure, "cuCtxPushCurrent", result);
	p->pushed = true;
	return 0;
}

static int push_unknown(struct cuda_place *p, CUstream stream, CUdevice device,
			struct failure *failure)
{
	CUcontext wanted;
	CUresult result;
	int r;

	result = p->cu->StreamGetCtx(stream, &wanted);
	if (result == CUDA_ERROR_INVALID_CONTEXT) {
		/* The driver may need a current context to answer, but it can be any. */
		r = cuda_enter(p->cu, device, &p->scope, failure);
		if (r < 0)
			return r;
		result = p->cu->StreamGetCtx(stream, &wanted);
	}
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(failure, "cuStreamGetCtx", result);
	r = push(p, wanted, failure);
	if (r == 0 && p->known && p->cu->CtxGetDevice(&p->device) == CUDA_SUCCESS)
		*place_for(p->id) = (struct remembered){p->id, wanted, p->device};
	else
		p->known = false;
	return r;
}

int cuda_place_identify(struct cuda_place *p, CUstream stream, struct failure *failure)
{
	CUresult result;

	if (p->known)
		return 0;
	result = p->cu->StreamGetId(stream, &p->id);
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(failure, "cuStreamGetId", result);
	/* This is the device of the stream, which can be another one than the memory's. */
	result = p->cu->CtxGetDevice(&p->device);
	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(failure, "cuCtxGetDevice", result);
	return 0;
}

/*
 * Finds out whether the stream is being captured. What is enqueued during a capture happens each
 * time the graph is launched, and not now, so a value would be written again and again. If a stream
 * is captured that is ordered with the legacy stream, the driver refuses even the question about
 * the legacy stream.
 */
static CUresult ask_captured(const struct cuda *cu, CUstream stream, bool *captured)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = cu->StreamIsCapturing(stream, &status);

	*captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
	if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		return result;
	*captured = true;
	return CUDA_SUCCESS;
}

static int refuse(const char *advice, struct failure *failure)
{
	return failure_set(failure, SHARE_ENOTSUP, "the stream is being captured into a graph: %s",
			   advice);
}

static int check_capture(const struct cuda *cu, CUstream stream, const char *advice,
			 struct failure *failure)
{
	bool captured;
	CUresult result = ask_captured(cu, stream, &captured);

	if (result != CUDA_SUCCESS)
		return cuda_stream_fail(failure, "cuStreamIsCapturing", result);
	return captured ? refuse(advice, failure) : 0;
}

bool cuda_stream_id(const struct cuda *cu, CUstream stream, unsigned long long *id)
{
	bool captured;

	return !is_special(stream) && ask_captured(cu, stream, &captured) == CUDA_SUCCESS &&
	       !captured && cu->StreamGetId(stream, id) == CUDA_SUCCESS;
}

static int enter_own(struct cuda_place *p, CUstream stream, CUdevice device, const char *advice,
		     struct failure *failure)
{
	const struct remembered *known;
	bool captured;
	int r;

	if (ask_captured(p->cu, stream, &captured) != CUDA_SUCCESS) {
		/* The driver may need the stream's context to answer. */
		r = push_unknown(p, stream, device, failure);
		return r == 0 ? check_capture(p->cu, stream, advice, failure) : r;
	}
	if (captured)
		return refuse(advice, failure);
	p->known = p->cu->StreamGetId(stream, &p->id) == CUDA_SUCCESS;
	known = p->known ? place_for(p->id) : NULL;
	if (!known || !known->context || known->id != p->id)
		return push_unknown(p, stream, device, failure);
	p->device = known->device;
	return push(p, known->context, failure);
}

int cuda_place_enter(CUstream stream, CUdevice device, const char *advice, struct cuda_place *p,
		     struct failure *failure)
{
	int r;

	*p = (struct cuda_place){0};
	r = cuda_get(&p->cu, failure);
	if (r < 0)
		return r;
	if (!is_special(stream)) {
		r = enter_own(p, stream, device, advice, failure);
	} else {
		r = cuda_enter(p->cu, device, &p->scope, failure);
		if (r == 0)
			r = check_capture(p->cu, stream, advice, failure);
	}
	if (r < 0)
		cuda_place_leave(p);
	return r;
}
