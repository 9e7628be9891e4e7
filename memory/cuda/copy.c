/* SPDX-License-Identifier: MIT */

/* Copies between host memory and a device, in the order of a stream of the caller. */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/stream_context.h"
#include "memory/import.h"

static const char advice[] = "nothing can wait for it now";

/* Waits for what was enqueued with @result, and leaves the place. */
static int wait(struct cuda_place *p, CUstream stream, const char *call, CUresult result,
		struct failure *failure)
{
	struct cuda_relaxed relaxed;
	int r = 0;

	if (result == CUDA_SUCCESS) {
		call = "cuStreamSynchronize";
		cuda_relax(p->cu, &relaxed);
		result = p->cu->StreamSynchronize(stream);
		cuda_relax_end(&relaxed);
	}
	if (result != CUDA_SUCCESS)
		r = cuda_fail(failure, call, result);
	cuda_place_leave(p);
	return r;
}

static int check_range(const struct memory_mapping *m, uint64_t offset, uint64_t size,
		       struct failure *failure)
{
	if (!m->kind->on_device)
		return failure_set(failure, SHARE_EINVAL, "the memory is on no device");
	if (offset > m->size || size > m->size - offset)
		return failure_set(failure, SHARE_EINVAL, "outside of the segment");
	return 0;
}

int memory_copy_to_host(const struct memory_mapping *m, uint64_t offset, void *to, uint64_t size,
			void *stream, struct failure *failure)
{
	CUdeviceptr from = (CUdeviceptr)(uintptr_t)m->address + offset;
	struct cuda_place p;
	int r;

	r = check_range(m, offset, size, failure);
	if (r == 0)
		r = cuda_place_enter(stream, m->ordinal, advice, &p, failure);
	if (r < 0)
		return r;
	return wait(&p, stream, "cuMemcpyDtoHAsync",
		    size ? p.cu->MemcpyDtoHAsync(to, from, size, stream) : CUDA_SUCCESS, failure);
}

int memory_copy_from_host(const struct memory_mapping *m, uint64_t offset, const void *from,
			  uint64_t size, void *stream, struct failure *failure)
{
	CUdeviceptr to = (CUdeviceptr)(uintptr_t)m->address + offset;
	struct cuda_place p;
	int r;

	r = check_range(m, offset, size, failure);
	/* A GPU that writes to a read-only mapping gets a fault that destroys the context. */
	if (r == 0 && !m->writable)
		r = failure_set(failure, SHARE_EACCES, "the memory is mapped for reading only");
	if (r == 0)
		r = cuda_place_enter(stream, m->ordinal, advice, &p, failure);
	if (r < 0)
		return r;
	return wait(&p, stream, "cuMemcpyHtoDAsync",
		    size ? p.cu->MemcpyHtoDAsync(to, from, size, stream) : CUDA_SUCCESS, failure);
}

int memory_stream_synchronize(const struct memory_mapping *m, void *stream, struct failure *failure)
{
	struct cuda_place p;
	int r;

	r = cuda_place_enter(stream, m->ordinal, advice, &p, failure);
	if (r < 0)
		return r;
	return wait(&p, stream, NULL, CUDA_SUCCESS, failure);
}
