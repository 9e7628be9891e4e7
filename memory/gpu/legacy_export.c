/* SPDX-License-Identifier: MIT */

/*
 * The exporter of legacy memory: cuMemAlloc(), and a handle of 64 bytes that every consumer of
 * cudaIpcMemHandle_t can open. The handle keeps nothing, so the memory is gone with this process,
 * and so that others see when that is the descriptor of a segment is a pidfd of this process. All
 * of this needs a context.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/export.h"

/* The legacy stream will do, since this process enqueues nothing else. */
#define LEGACY_STREAM CU_STREAM_LEGACY

struct exported_allocation {
	CUdeviceptr pointer;
};

/*
 * The handle is of the allocation of the driver's in which the pointer lies, so it has to lie at
 * its beginning. And what this process has freed it may get again as it was, while new memory
 * counts as memory that nobody has written to.
 */
static int make_ready(const struct cuda *cu, CUdeviceptr pointer, uint64_t size,
		      CUipcMemHandle *handle, struct failure *failure)
{
	CUdeviceptr base = 0;
	size_t extent = 0;
	int r = cuda_check(failure, "cuMemGetAddressRange",
			   cu->MemGetAddressRange(&base, &extent, pointer));

	if (r == 0 && (base != pointer || extent < size || base % MEMORY_ALIGNMENT))
		return failure_set(failure, SHARE_ENOTSUP,
				   "the driver made no allocation of its own of this: it lies at "
				   "0x%llx, in %llu bytes at 0x%llx",
				   (unsigned long long)pointer, (unsigned long long)extent,
				   (unsigned long long)base);
	if (r == 0)
		r = cuda_check(failure, "cuMemsetD8Async",
			       cu->MemsetD8Async(pointer, 0, size, LEGACY_STREAM));
	if (r == 0)
		r = cuda_check(failure, "cuStreamSynchronize",
			       cu->StreamSynchronize(LEGACY_STREAM));
	if (r == 0)
		r = cuda_check(failure, "cuIpcGetMemHandle", cu->IpcGetMemHandle(handle, pointer));
	return r;
}

static int allocate_legacy(const struct cuda *cu, uint64_t size, CUdeviceptr *out,
			   CUipcMemHandle *handle, struct failure *failure)
{
	int r = cuda_check(failure, "cuMemAlloc", cu->MemAlloc(out, size));

	if (r < 0)
		return r;
	r = make_ready(cu, *out, size, handle, failure);
	if (r < 0)
		cu->MemFree(*out);
	return r;
}

static int own_pidfd(struct failure *failure)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	return fd >= 0 ? fd
		       : failure_set(failure, SHARE_ESYSTEM, "pidfd_open: %s", strerror(errno));
}

static int check(uint64_t size, uint64_t address, struct failure *failure)
{
	if (address)
		return failure_set(failure, SHARE_ENOTSUP,
				   "the driver places legacy segments, nobody else: kind vmm can "
				   "lie at the same address everywhere");
	if (size == 0 || size % MEMORY_ALIGNMENT)
		return failure_set(failure, SHARE_EINVAL,
				   "sizes of legacy segments are multiples of 2 MiB");
	return 0;
}

static int legacy_create(uint64_t size, uint64_t address, struct memory_segment *out,
			 struct failure *failure)
{
	const struct device_open *opened;
	CUipcMemHandle handle;
	struct exported_allocation *e;
	int fd, r;

	r = check(size, address, failure);
	if (r == 0)
		r = device_opened_context(&opened, failure);
	if (r < 0)
		return r;
	fd = own_pidfd(failure);
	if (fd < 0)
		return fd;
	e = malloc(sizeof(*e));
	r = e ? allocate_legacy(opened->cu, size, &e->pointer, &handle, failure)
	      : failure_set(failure, SHARE_ENOMEM, "no memory for a segment");
	if (r < 0) {
		free(e);
		close(fd);
		return r;
	}
	*out = (struct memory_segment){
	    .recipe = {.size = size}, .fd = fd, .fd_readonly = -1, .opaque = e};
	device_name_in(opened, &out->recipe);
	_Static_assert(sizeof(handle) == sizeof(out->recipe.pointer),
		       "it goes over the wire whole");
	memcpy(out->recipe.pointer, &handle, sizeof(handle));
	memory_identify(&out->recipe);
	return 0;
}

static int legacy_destroy(struct memory_segment *segment, struct failure *failure)
{
	const struct exported_allocation *e = segment->opaque;
	const struct device_open *opened;
	int r;

	if (!e)
		return 0;
	if (segment->fd >= 0)
		close(segment->fd);
	r = device_opened_context(&opened, failure);
	if (r == 0)
		r = cuda_check(failure, "cuMemFree", opened->cu->MemFree(e->pointer));
	free(segment->opaque);
	segment->fd = -1;
	segment->opaque = NULL;
	return r;
}

/* No attribute of a device tells this; where handles are refused, the first segment says so. */
static bool legacy_can(uint32_t ordinal, uint64_t *granularity)
{
	const struct cuda *cu;
	CUdevice device;

	(void)granularity;
	return cuda_device(&cu, ordinal, &device) &&
	       cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
}

static uint64_t legacy_pointer(const struct memory_segment *segment)
{
	const struct exported_allocation *e = segment->opaque;

	return e->pointer;
}

const struct memory_exporter memory_legacy_exporter = {
    .kind = MEMORY_LEGACY,
    .create = legacy_create,
    .destroy = legacy_destroy,
    .can = legacy_can,
    .pointer = legacy_pointer,
};
