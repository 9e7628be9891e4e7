/* SPDX-License-Identifier: MIT */

/*
 * Copies that go on by themselves. The stream is a non-blocking one, so that the legacy default
 * stream, which others may make wait for long, does not hold it up.
 */

#include <stdlib.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/copier.h"
#include "memory/cuda/context.h"

struct memory_copier {
	struct cuda_own_stream own;
};

static int enter(const struct memory_copier *c, struct failure *failure)
{
	return cuda_check(failure, "cuCtxPushCurrent", c->own.cu->CtxPushCurrent(c->own.context));
}

/* Leaves the context, and says what the call between has come to. */
static int leave(const struct memory_copier *c, const char *call, CUresult result,
		 struct failure *failure)
{
	CUcontext popped;

	c->own.cu->CtxPopCurrent(&popped);
	return cuda_check(failure, call, result);
}

int memory_copier_open(int ordinal, struct memory_copier **out, struct failure *failure)
{
	struct memory_copier *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return failure_set(failure, SHARE_ENOMEM, "this process is out of memory");
	r = cuda_own_stream_init(&c->own, ordinal, failure);
	if (r == 0)
		*out = c;
	else
		free(c);
	return r;
}

void memory_copier_close(struct memory_copier *c)
{
	if (c)
		cuda_own_stream_deinit(&c->own);
	free(c);
}

void *memory_copier_stream(struct memory_copier *c)
{
	return c->own.stream;
}

int memory_copier_stay(struct memory_copier *c, struct failure *failure)
{
	return enter(c, failure);
}

int memory_copier_to_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			  struct failure *failure)
{
	int r = enter(c, failure);

	if (r != 0)
		return r;
	return leave(
	    c, "cuMemcpyDtoHAsync",
	    c->own.cu->MemcpyDtoHAsync(to, (CUdeviceptr)(uintptr_t)from, size, c->own.stream),
	    failure);
}

int memory_copier_from_host(struct memory_copier *c, void *to, const void *from, uint64_t size,
			    struct failure *failure)
{
	int r = enter(c, failure);

	if (r != 0)
		return r;
	return leave(
	    c, "cuMemcpyHtoDAsync",
	    c->own.cu->MemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, size, c->own.stream),
	    failure);
}

int memory_copier_set(struct memory_copier *c, struct memory_point *p, struct failure *failure)
{
	CUresult result = CUDA_SUCCESS;
	CUevent event = p->event;
	int r = enter(c, failure);

	if (r != 0)
		return r;
	if (!event) {
		result = c->own.cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING);
		if (result != CUDA_SUCCESS)
			return leave(c, "cuEventCreate", result, failure);
		p->event = event;
	}
	return leave(c, "cuEventRecord", c->own.cu->EventRecord(event, c->own.stream), failure);
}

int memory_copier_reached(struct memory_copier *c, const struct memory_point *p,
			  struct failure *failure)
{
	CUresult result;
	int r = enter(c, failure);

	if (r != 0)
		return r;
	result = c->own.cu->EventQuery(p->event);
	if (result != CUDA_ERROR_NOT_READY)
		return leave(c, "cuEventQuery", result, failure);
	leave(c, NULL, CUDA_SUCCESS, failure);
	return SHARE_EAGAIN;
}

void memory_copier_forget(struct memory_copier *c, struct memory_point *p)
{
	struct failure ignored;

	if (p->event && enter(c, &ignored) == 0)
		leave(c, "cuEventDestroy", c->own.cu->EventDestroy(p->event), &ignored);
	p->event = NULL;
}
