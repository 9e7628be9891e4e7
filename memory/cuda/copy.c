/* SPDX-License-Identifier: MIT */

/* Copies between host memory and a device, and between devices, in the order of a stream of the
 * caller. */

#include <stdlib.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/copier.h"
#include "memory/cuda/stream_context.h"
#include "memory/import.h"

#define STAGE_SIZE (UINT64_C(4) << 20)

static const char copy_advice[] = "nothing can wait for it now";

/* Waits for what was enqueued with @result, and leaves the place. */
static int wait(struct cuda_place *p, CUstream stream, const char *call, CUresult result,
		struct failure *failure)
{
	struct cuda_relaxed relaxed;
	int r = cuda_check(failure, call, result);

	if (r == 0) {
		cuda_relax(p->cu, &relaxed);
		r = cuda_check(failure, "cuStreamSynchronize", p->cu->StreamSynchronize(stream));
		cuda_relax_end(&relaxed);
	}
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
	return memory_is_lost(m) ? memory_fail_lost(failure) : 0;
}

int memory_copy_to_host(const struct memory_mapping *m, uint64_t offset, void *to, uint64_t size,
			void *stream, struct failure *failure)
{
	CUdeviceptr from = (CUdeviceptr)(uintptr_t)m->address + offset;
	struct cuda_place p;
	int r = check_range(m, offset, size, failure);

	if (r == 0)
		r = cuda_place_enter(stream, m->ordinal, copy_advice, &p, failure);
	if (r < 0)
		return r;
	r = wait(&p, stream, "cuMemcpyDtoHAsync",
		 size ? p.cu->MemcpyDtoHAsync(to, from, size, stream) : CUDA_SUCCESS, failure);
	return r == 0 && memory_is_lost(m) ? memory_fail_lost(failure) : r;
}

int memory_copy_from_host(const struct memory_mapping *m, uint64_t offset, const void *from,
			  uint64_t size, void *stream, struct failure *failure)
{
	CUdeviceptr to = (CUdeviceptr)(uintptr_t)m->address + offset;
	struct cuda_place p;
	int r = check_range(m, offset, size, failure);

	/* A GPU that writes to a read-only mapping gets a fault that destroys the context. */
	if (r == 0 && !m->writable)
		r = failure_set(failure, SHARE_EACCES, "the memory is mapped for reading only");
	if (r == 0)
		r = cuda_place_enter(stream, m->ordinal, copy_advice, &p, failure);
	if (r < 0)
		return r;
	return wait(&p, stream, "cuMemcpyHtoDAsync",
		    size ? p.cu->MemcpyHtoDAsync(to, from, size, stream) : CUDA_SUCCESS, failure);
}

/* A GPU that writes to a read-only mapping gets a fault that destroys the context. */
static int check_both(const struct memory_mapping *to, uint64_t to_offset,
		      const struct memory_mapping *from, uint64_t from_offset, uint64_t size,
		      struct failure *failure)
{
	int r = check_range(to, to_offset, size, failure);

	if (r == 0)
		r = check_range(from, from_offset, size, failure);
	if (r == 0 && !to->writable)
		r = failure_set(failure, SHARE_EACCES, "the memory is mapped for reading only");
	return r;
}

int memory_copy_between(struct memory_mapping *to, uint64_t to_offset, struct memory_mapping *from,
			uint64_t from_offset, uint64_t size, void *stream, struct failure *failure)
{
	struct cuda_place p;
	int r = check_both(to, to_offset, from, from_offset, size, failure);

	if (r == 0)
		r = cuda_place_enter(stream, to->ordinal, copy_advice, &p, failure);
	if (r != 0)
		return r;
	r = memory_reach(to, failure);
	if (r == 0)
		r = memory_reach(from, failure);
	if (r == 0 && size > 0)
		r = cuda_check(
		    failure, "cuMemcpyDtoDAsync",
		    p.cu->MemcpyDtoDAsync((CUdeviceptr)(uintptr_t)to->address + to_offset,
					  (CUdeviceptr)(uintptr_t)from->address + from_offset, size,
					  stream));
	cuda_place_leave(&p);
	return r;
}

/* One after the other: the room in host memory is used again. */
static int copy_by_stages(struct memory_copier *reader, struct memory_copier *writer, char *room,
			  const struct memory_mapping *to, uint64_t to_offset,
			  const struct memory_mapping *from, uint64_t from_offset, uint64_t size,
			  struct failure *failure)
{
	int r = 0;

	for (uint64_t done = 0, n; r == 0 && done < size; done += n) {
		n = size - done < STAGE_SIZE ? size - done : STAGE_SIZE;
		r = memory_copier_to_host(
		    reader, room, (const char *)from->address + from_offset + done, n, failure);
		if (r == 0)
			r = memory_stream_synchronize(from, memory_copier_stream(reader), failure);
		if (r == 0)
			r = memory_copier_from_host(writer, (char *)to->address + to_offset + done,
						    room, n, failure);
		if (r == 0)
			r = memory_stream_synchronize(to, memory_copier_stream(writer), failure);
	}
	return r;
}

int memory_copy_staged(const struct memory_mapping *to, uint64_t to_offset,
		       const struct memory_mapping *from, uint64_t from_offset, uint64_t size,
		       struct failure *failure)
{
	struct memory_copier *reader = NULL, *writer = NULL;
	char *room;
	int r = check_both(to, to_offset, from, from_offset, size, failure);

	if (r != 0)
		return r;
	room = malloc(size < STAGE_SIZE ? size + 1 : STAGE_SIZE);
	if (!room)
		return failure_set(failure, SHARE_ENOMEM, "this process is out of memory");
	r = memory_copier_open(from->ordinal, &reader, failure);
	if (r == 0)
		r = memory_copier_open(to->ordinal, &writer, failure);
	if (r == 0)
		r = copy_by_stages(reader, writer, room, to, to_offset, from, from_offset, size,
				   failure);
	memory_copier_close(reader);
	memory_copier_close(writer);
	free(room);
	if (r == 0 && (memory_is_lost(from) || memory_is_lost(to)))
		r = memory_fail_lost(failure);
	return r;
}

int memory_stream_synchronize(const struct memory_mapping *m, void *stream, struct failure *failure)
{
	struct cuda_place p;
	int r = cuda_place_enter(stream, m->ordinal, copy_advice, &p, failure);

	if (r < 0)
		return r;
	return wait(&p, stream, NULL, CUDA_SUCCESS, failure);
}
