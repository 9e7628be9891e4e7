/* SPDX-License-Identifier: MIT */

/*
 * The exporter of mempool memory. Each segment is a pool of the driver of its own, with one
 * allocation of the pool's whole size: a pool that is exported returns nothing to the system as
 * long as it lives, so only destroying the pool frees memory. The driver exports the pointer only
 * after it has exported the pool's descriptor. All of this needs a context.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/export.h"

/* The legacy stream will do, since this process enqueues nothing else. */
#define MEMPOOL_STREAM CU_STREAM_LEGACY

struct exported_pool {
	CUmemoryPool pool;
	CUdeviceptr pointer;
};

static int allocate_in_pool(const struct cuda *cu, CUmemoryPool pool, uint64_t size,
			    CUdeviceptr *out, CUmemPoolPtrExportData *data, struct failure *failure)
{
	CUdeviceptr pointer;
	int r = cuda_check(failure, "cuMemAllocFromPoolAsync",
			   cu->MemAllocFromPoolAsync(&pointer, size, pool, MEMPOOL_STREAM));

	if (r < 0)
		return r;
	/* Importers may use the memory as soon as they get it, so the allocation must have
	 * happened. */
	r = cuda_check(failure, "cuStreamSynchronize", cu->StreamSynchronize(MEMPOOL_STREAM));
	if (r == 0)
		r = cuda_check(failure, "cuMemPoolExportPointer",
			       cu->MemPoolExportPointer(data, pointer));
	if (r < 0) {
		cu->MemFreeAsync(pointer, MEMPOOL_STREAM);
		cu->StreamSynchronize(MEMPOOL_STREAM);
		return r;
	}
	*out = pointer;
	return 0;
}

/* Returns the descriptor of a new pool, which the caller owns, or a SHARE_E... number. */
static int create_pool(const struct device_open *opened, uint64_t size, CUmemoryPool *out,
		       struct failure *failure)
{
	CUmemPoolProps properties = {
	    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
	    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = opened->device},
	    .maxSize = size,
	};
	CUmemoryPool pool;
	int fd = -1;
	int r =
	    cuda_check(failure, "cuMemPoolCreate", opened->cu->MemPoolCreate(&pool, &properties));

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuMemPoolExportToShareableHandle",
		       opened->cu->MemPoolExportToShareableHandle(
			   &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (r < 0) {
		opened->cu->MemPoolDestroy(pool);
		return r;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*out = pool;
	return fd;
}

static int mempool_create(uint64_t size, uint64_t address, struct memory_segment *out,
			  struct failure *failure)
{
	const struct memory_kind *kind = memory_kind_by_id(MEMORY_MEMPOOL);
	const struct device_open *opened;
	CUmemPoolPtrExportData data;
	struct exported_pool *e;
	int fd, r;

	if (size > kind->segment_max)
		return failure_set(failure, SHARE_ENOTSUP,
				   "a mempool segment has 4 GiB at most, and this one would have "
				   "%llu bytes: the driver crashes who imports a larger one; kind "
				   "vmm can do it",
				   (unsigned long long)size);
	if (address)
		return failure_set(failure, SHARE_ENOTSUP,
				   "the driver places mempool segments, nobody else: kind vmm can "
				   "lie at the same address everywhere");
	if (size == 0 || size % kind->granularity)
		return failure_set(failure, SHARE_EINVAL,
				   "sizes of mempool segments are multiples of 2 MiB");
	r = device_opened_context(&opened, failure);
	if (r < 0)
		return r;
	e = malloc(sizeof(*e));
	if (!e)
		return failure_set(failure, SHARE_ENOMEM, "no memory for a segment");
	fd = create_pool(opened, size, &e->pool, failure);
	if (fd < 0) {
		free(e);
		return fd;
	}
	r = allocate_in_pool(opened->cu, e->pool, size, &e->pointer, &data, failure);
	if (r < 0) {
		close(fd);
		opened->cu->MemPoolDestroy(e->pool);
		free(e);
		return r;
	}
	*out = (struct memory_segment){
	    .recipe = {.size = size}, .fd = fd, .fd_readonly = -1, .opaque = e};
	device_name_in(opened, &out->recipe);
	memcpy(out->recipe.pointer, &data, sizeof(out->recipe.pointer));
	memory_identify(&out->recipe);
	return 0;
}

/* Frees what is in the pool, and then the pool: all that can be freed. */
static int free_pool(const struct exported_pool *e, struct failure *failure)
{
	const struct device_open *opened;
	CUresult last;
	int r = device_opened_context(&opened, failure);

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuMemFreeAsync",
		       opened->cu->MemFreeAsync(e->pointer, MEMPOOL_STREAM));
	if (r == 0)
		r = cuda_check(failure, "cuStreamSynchronize",
			       opened->cu->StreamSynchronize(MEMPOOL_STREAM));
	last = opened->cu->MemPoolDestroy(e->pool);
	return r == 0 ? cuda_check(failure, "cuMemPoolDestroy", last) : r;
}

static int mempool_destroy(struct memory_segment *segment, struct failure *failure)
{
	int r;

	if (!segment->opaque)
		return 0;
	if (segment->fd >= 0)
		close(segment->fd);
	r = free_pool(segment->opaque, failure);
	free(segment->opaque);
	segment->fd = -1;
	segment->opaque = NULL;
	return r;
}

static bool mempool_can(uint32_t ordinal, uint64_t *granularity)
{
	const struct cuda *cu;
	CUdevice device;

	(void)granularity;
	return cuda_device(&cu, ordinal, &device) &&
	       cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) &&
	       cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) &
		   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static uint64_t mempool_pointer(const struct memory_segment *segment)
{
	const struct exported_pool *e = segment->opaque;

	return e->pointer;
}

const struct memory_exporter memory_mempool_exporter = {
    .kind = MEMORY_MEMPOOL,
    .create = mempool_create,
    .destroy = mempool_destroy,
    .can = mempool_can,
    .pointer = mempool_pointer,
};
