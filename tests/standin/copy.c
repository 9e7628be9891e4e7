/* SPDX-License-Identifier: MIT */

/*
 * Work for streams: copies, fills and host functions. A copy reads and writes through the
 * descriptor behind a device address, when its turn comes. What an address is, is found out when it
 * is enqueued.
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/standin/standin.h"

#define CHUNK (UINT64_C(1) << 20)

static CUresult read_all(const struct target *t, void *to, uint64_t size, uint64_t at)
{
	while (size) {
		ssize_t n =
		    pread(t->backing->fd, to, size < CHUNK ? size : CHUNK, (off_t)(t->offset + at));

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return CUDA_ERROR_LAUNCH_FAILED;
		if (n > 0) {
			to = (char *)to + n;
			at += (uint64_t)n;
			size -= (uint64_t)n;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult write_all(const struct target *t, const void *from, uint64_t size, uint64_t at)
{
	while (size) {
		ssize_t n = pwrite(t->backing->fd, from, size < CHUNK ? size : CHUNK,
				   (off_t)(t->offset + at));

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return CUDA_ERROR_LAUNCH_FAILED;
		if (n > 0) {
			from = (const char *)from + n;
			at += (uint64_t)n;
			size -= (uint64_t)n;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult to_host(struct operation *o, CUcontext context)
{
	(void)context;
	return read_all(&o->from, o->host, o->size, 0);
}

static CUresult from_host(struct operation *o, CUcontext context)
{
	(void)context;
	return write_all(&o->to, o->host, o->size, 0);
}

static CUresult across(struct operation *o, CUcontext context)
{
	CUresult result = CUDA_SUCCESS;
	void *chunk = malloc(CHUNK);

	(void)context;
	if (!chunk)
		abort();
	for (uint64_t at = 0; result == CUDA_SUCCESS && at < o->size; at += CHUNK) {
		uint64_t n = o->size - at < CHUNK ? o->size - at : CHUNK;

		result = read_all(&o->from, chunk, n, at);
		if (result == CUDA_SUCCESS)
			result = write_all(&o->to, chunk, n, at);
	}
	free(chunk);
	return result;
}

/* Memory that reads as zeros takes none. False: it is not to be had like that. */
static bool clear(const struct target *t, uint64_t size)
{
	return fallocate(t->backing->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)t->offset, (off_t)size) == 0;
}

/* @flags is the width of the value. */
static CUresult fill(struct operation *o, CUcontext context)
{
	uint64_t n = o->size < CHUNK ? o->size : CHUNK, done = n < o->flags ? n : o->flags;
	CUresult result = CUDA_SUCCESS;
	unsigned char *chunk;

	(void)context;
	if (o->value == 0 && o->size && clear(&o->to, o->size))
		return CUDA_SUCCESS;
	chunk = malloc(n ? n : 1);
	if (!chunk)
		abort();
	memcpy(chunk, &o->value, done); /* its first bytes are the low ones */
	for (uint64_t more; done < n; done += more) {
		more = n - done < done ? n - done : done;
		memcpy(chunk + done, chunk, more);
	}
	for (uint64_t at = 0; result == CUDA_SUCCESS && at < o->size; at += CHUNK)
		result = write_all(&o->to, chunk, o->size - at < CHUNK ? o->size - at : CHUNK, at);
	free(chunk);
	return result;
}

static CUresult call_host(struct operation *o, CUcontext context)
{
	(void)context;
	o->function(o->host);
	return CUDA_SUCCESS;
}

/* @to or @from are 0 where that side is not device memory. */
static CUresult enqueue(struct operation *o, CUdeviceptr to, CUdeviceptr from, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	if (from)
		result = target_find(from, o->size, false, &o->from);
	if (result == CUDA_SUCCESS && to)
		result = target_find(to, o->size, true, &o->to);
	if (result == CUDA_SUCCESS)
		return stream_enqueue(stream, o);
	backing_unref(o->from.backing);
	free(o);
	return result;
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	struct operation *o;

	if (!to || !from)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(to_host);
	o->host = to;
	o->size = size;
	return enqueue(o, 0, from, stream);
}

static CUresult copy_from_host(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	struct operation *o;

	if (!to || !from)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(from_host);
	memcpy(&o->host, &from, sizeof(from));
	o->size = size;
	return enqueue(o, to, 0, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	ENTER(cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT);
	return copy_to_host(to, from, size, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	ENTER(cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT);
	return copy_from_host(to, from, size, stream);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
	CUresult result;

	ENTER(cuMemcpyDtoH_v2, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	result = copy_to_host(to, from, size, NULL);
	return result == CUDA_SUCCESS ? stream_wait(NULL) : result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
	CUresult result;

	ENTER(cuMemcpyHtoD_v2, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	result = copy_from_host(to, from, size, NULL);
	return result == CUDA_SUCCESS ? stream_wait(NULL) : result;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	struct operation *o;

	ENTER(cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT);
	if (!to || !from)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(across);
	o->size = size;
	return enqueue(o, to, from, stream);
}

static CUresult set(CUdeviceptr to, uint64_t value, unsigned width, size_t count, CUstream stream)
{
	struct operation *o;

	if (!to || to % width)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(fill);
	o->value = value;
	o->flags = width;
	o->size = count * width;
	return enqueue(o, to, 0, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	ENTER(cuMemsetD8Async, NEEDS_CONTEXT);
	return set(to, value, 1, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
	ENTER(cuMemsetD32Async, NEEDS_CONTEXT);
	return set(to, value, 4, count, stream);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	struct operation *o;

	ENTER(cuLaunchHostFunc, NEEDS_CONTEXT);
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(call_host);
	o->function = function;
	o->host = data;
	return stream_enqueue(stream, o);
}
