/* SPDX-License-Identifier: MIT */

/*
 * The exporter of vmm memory, which is made by cuMemCreate(), and of pinned memory, which is made
 * by it at a NUMA node of the host. It exports the handle as a descriptor and releases the handle
 * at once. The descriptor keeps the memory, so the exporter keeps nothing, and the memory is freed
 * with the last descriptor and mapping, whichever process ends first. No context is needed.
 */

#include <fcntl.h>
#include <unistd.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/export.h"
#include "memory/gpu/vmm_property.h"

/* What cuMemCreate() needs, to make memory of one of the two kinds. */
typedef CUmemAllocationProp vmm_property(const struct cuda *cu, CUdevice device);

static int create(vmm_property *property_of, uint64_t size, uint64_t address,
		  struct memory_segment *out, struct failure *failure)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp property;
	const struct device_open *opened;
	CUresult released;
	int fd = -1, r;

	if (size == 0 || size % MEMORY_ALIGNMENT || address % MEMORY_ALIGNMENT)
		return failure_set(failure, SHARE_EINVAL,
				   "sizes and addresses of such segments are multiples of 2 MiB");
	r = device_opened(&opened, failure);
	if (r < 0)
		return r;
	property = property_of(opened->cu, opened->device);
	r = cuda_check(failure, "cuMemCreate", opened->cu->MemCreate(&handle, size, &property, 0));
	if (r < 0)
		return r;
	r = cuda_check(failure, "cuMemExportToShareableHandle",
		       opened->cu->MemExportToShareableHandle(
			   &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	released = opened->cu->MemRelease(handle);
	if (r == 0 && released != CUDA_SUCCESS) {
		r = cuda_fail(failure, "cuMemRelease", released);
		close(fd);
	}
	if (r < 0)
		return r;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*out = (struct memory_segment){
	    .recipe = {.size = size, .address = address}, .fd = fd, .fd_readonly = -1};
	device_name_in(opened, &out->recipe);
	memory_identify(&out->recipe);
	return 0;
}

static int vmm_create(uint64_t size, uint64_t address, struct memory_segment *out,
		      struct failure *failure)
{
	return create(cuda_vmm_property, size, address, out, failure);
}

static int pinned_create(uint64_t size, uint64_t address, struct memory_segment *out,
			 struct failure *failure)
{
	return create(cuda_pinned_property, size, address, out, failure);
}

static int vmm_destroy(struct memory_segment *segment, struct failure *failure)
{
	(void)failure;
	if (segment->fd >= 0)
		close(segment->fd);
	segment->fd = -1;
	return 0;
}

static bool can(vmm_property *property_of, uint32_t ordinal, size_t *granularity)
{
	CUmemAllocationProp property;
	const struct cuda *cu;
	CUdevice device;

	if (!cuda_device(&cu, ordinal, &device) ||
	    !cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
	    !cuda_attribute(cu, device,
			    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		return false;
	property = property_of(cu, device);
	return property.location.type != CU_MEM_LOCATION_TYPE_INVALID &&
	       cu->MemGetAllocationGranularity(granularity, &property,
					       CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
}

static bool vmm_can(uint32_t ordinal, uint64_t *granularity)
{
	size_t bytes;

	if (!can(cuda_vmm_property, ordinal, &bytes))
		return false;
	*granularity = bytes;
	return true;
}

/* What the device says of its own memory holds for vmm alone. */
static bool pinned_can(uint32_t ordinal, uint64_t *granularity)
{
	size_t bytes;

	(void)granularity;
	return can(cuda_pinned_property, ordinal, &bytes) && MEMORY_ALIGNMENT % bytes == 0;
}

const struct memory_exporter memory_vmm_exporter = {
    .kind = MEMORY_VMM,
    .create = vmm_create,
    .destroy = vmm_destroy,
    .can = vmm_can,
};

const struct memory_exporter memory_pinned_exporter = {
    .kind = MEMORY_PINNED,
    .create = pinned_create,
    .destroy = vmm_destroy,
    .can = pinned_can,
};
