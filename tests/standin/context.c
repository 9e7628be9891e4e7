/* SPDX-License-Identifier: MIT */

/*
 * Contexts: one primary per device, counted, and those that a program makes itself. Each thread has
 * a stack of them. A context that failed stays failed; one that is gone is remembered, so that
 * using it is an error and not a crash.
 */

#include "tests/standin/standin.h"

#define STACK 16

static struct CUctx_st *contexts;
static _Atomic bool any;
static _Thread_local CUcontext stack[STACK];
static _Thread_local unsigned depth;

CUcontext context_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

bool context_any(void)
{
	return any;
}

void context_fail(CUcontext context, CUresult result)
{
	int none = CUDA_SUCCESS;

	atomic_compare_exchange_strong(&context->sticky, &none, (int)result);
}

static CUcontext find(CUcontext context)
{
	for (struct CUctx_st *c = contexts; c; c = c->next)
		if (c == context)
			return c;
	return NULL;
}

static CUcontext create(unsigned device, bool primary)
{
	struct CUctx_st *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->device = device;
	c->primary = primary;
	c->next = contexts;
	contexts = c;
	return c;
}

static CUcontext primary_of(unsigned device)
{
	for (struct CUctx_st *c = contexts; c; c = c->next)
		if (c->primary && c->device == device)
			return c;
	return create(device, true);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
	CUcontext c;

	ENTER(cuDevicePrimaryCtxRetain, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	c = primary_of((unsigned)device_of(ordinal));
	if (c->retained++ == 0) {
		c->sticky = CUDA_SUCCESS;
		c->alive = any = true;
	}
	pthread_mutex_unlock(&standin_lock);
	*out = c;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
	CUresult result = CUDA_SUCCESS;
	CUcontext c;

	ENTER(cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	c = primary_of((unsigned)device_of(ordinal));
	if (c->retained == 0)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (--c->retained == 0) {
		c->alive = false;
		host_forget_context(c);
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
	ENTER(cuDevicePrimaryCtxGetState, NEEDS_INIT);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	*flags = 0;
	*active = primary_of((unsigned)device_of(ordinal))->alive;
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
	bool known;

	pthread_mutex_lock(&standin_lock);
	known = find(context);
	pthread_mutex_unlock(&standin_lock);
	if (!known)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (depth == STACK)
		return CUDA_ERROR_UNKNOWN;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult create_current(CUcontext *out, CUdevice ordinal)
{
	CUcontext c;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	c = create((unsigned)device_of(ordinal), false);
	c->alive = any = true;
	pthread_mutex_unlock(&standin_lock);
	*out = c;
	return push(c);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice ordinal)
{
	(void)flags;
	ENTER(cuCtxCreate_v2, NEEDS_INIT);
	return create_current(out, ordinal);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice ordinal)
{
	(void)params;
	(void)flags;
	ENTER(cuCtxCreate_v4, NEEDS_INIT);
	return create_current(out, ordinal);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	CUresult result = CUDA_SUCCESS;

	ENTER(cuCtxDestroy_v2, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	if (!find(context) || context->primary || !context->alive)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else {
		context->alive = false;
		host_forget_context(context);
	}
	pthread_mutex_unlock(&standin_lock);
	if (result == CUDA_SUCCESS && context_current() == context)
		depth--;
	return result;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	ENTER(cuCtxGetCurrent, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = context_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER(cuCtxSetCurrent, NEEDS_INIT);
	if (depth)
		depth--;
	return context ? push(context) : CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER(cuCtxPushCurrent_v2, NEEDS_INIT);
	return push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	ENTER(cuCtxPopCurrent_v2, NEEDS_INIT);
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (out)
		*out = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
	ENTER(cuCtxGetDevice, NEEDS_CONTEXT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = ordinal_of(context_current()->device);
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	ENTER(cuCtxSynchronize, NEEDS_CONTEXT);
	stream_wait_all(context_current());
	return (CUresult)context_current()->sticky;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER(cuMemGetInfo_v2, NEEDS_CONTEXT);
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	*free_bytes = device_free(context_current()->device);
	*total = machine.memory;
	return CUDA_SUCCESS;
}
