/* SPDX-License-Identifier: MIT */

/*
 * Zeroes memory of the device for the next user; an agent does this, in a context. If this process
 * keeps nothing of the segment, it maps the segment as any importer does, and unmaps it afterwards,
 * because a mapping would keep the memory.
 */

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/import.h"

/* A stream of its own waits for no other work. */
static int fill(const struct cuda *cu, CUdeviceptr pointer, uint64_t size, struct failure *failure)
{
	CUstream stream;
	int r = cuda_check(failure, "cuStreamCreate",
			   cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuMemsetD8Async", cu->MemsetD8Async(pointer, 0, size, stream));
	if (r == 0)
		r = cuda_check(failure, "cuStreamSynchronize", cu->StreamSynchronize(stream));
	if (r < 0) {
		/* The GPU may still be writing, and only the end of this process is sure to end
		 * that. */
		failure->fatal = true;
		return r;
	}
	cu->StreamDestroy(stream);
	return 0;
}

static int fill_imported(const struct cuda *cu, const struct memory_kind *kind,
			 const struct memory_segment *segment, uint64_t offset, uint64_t size,
			 struct failure *failure)
{
	/* It stays mapped when the GPU may still be writing, until this process ends. It is static
	 * because a leak checker that finds no pointer to it would call it lost. */
	static struct memory_mapping m;
	struct memory_recipe recipe = segment->recipe;
	int r;

	recipe.address = 0; /* this mapping may lie anywhere */
	r = memory_import(kind, &recipe, segment->fd, true, &m, failure);
	if (r < 0)
		return r;
	r = fill(cu, (CUdeviceptr)(uintptr_t)m.address + offset, size, failure);
	if (!failure->fatal)
		memory_unmap(&m);
	return r;
}

int memory_device_zero(enum memory_kind_id id, const struct memory_segment *segment,
		       uint64_t offset, uint64_t size, struct failure *failure)
{
	const struct memory_kind *kind = memory_kind_by_id(id);
	const struct device_open *opened;
	int r;

	if (!kind || !kind->on_device)
		return failure_set(failure, SHARE_ENOTSUP, "this is no kind of GPU memory");
	if (offset > segment->recipe.size || size > segment->recipe.size - offset)
		return failure_set(failure, SHARE_EINVAL, "the segment ends before that");
	r = device_opened_context(&opened, failure);
	if (r < 0)
		return r;
	if (segment->opaque)
		return fill(opened->cu, memory_device_exporter(id)->pointer(segment) + offset, size,
			    failure);
	return fill_imported(opened->cu, kind, segment, offset, size, failure);
}
