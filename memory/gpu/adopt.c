/* SPDX-License-Identifier: MIT */

/*
 * From an address to the allocation of a device that is mapped there, and to what others have it
 * by. The driver is asked what the memory is, and how others can have it: what cuMemCreate() made
 * for descriptors, wherever and in how many pieces it is mapped, can be exported by its handle; and
 * of what cuMemAlloc() made there is a handle of 64 bytes, which keeps nothing.
 */

#include <fcntl.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/adopt.h"
#include "memory/cuda/context.h"
#include "memory/gpu/imports.h"

/* What is mapped there by one call. */
struct range {
	CUdeviceptr base;
	size_t size;
	int device;
};

/* Neither says more than that the driver does not know the address. */
static unsigned attribute(const struct cuda *cu, CUdeviceptr pointer, CUpointer_attribute which)
{
	unsigned value = 0;

	return cu->PointerGetAttribute(&value, which, pointer) == CUDA_SUCCESS ? value : 0;
}

/* Of all these calls this alone needs a context. What the attributes CU_POINTER_ATTRIBUTE_RANGE_*
 * say without one is the whole range that was reserved (gpu-facts, adopt_what_lies_at_an_address).
 */
static int ask_range(const struct cuda *cu, CUdeviceptr pointer, struct range *out,
		     struct failure *failure)
{
	struct cuda_scope scope;
	int r = cuda_check(
	    failure, "cuPointerGetAttribute",
	    cu->PointerGetAttribute(&out->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));

	if (r == 0)
		r = cuda_enter(cu, out->device, &scope, failure);
	if (r != 0)
		return r;
	r = cuda_check(failure, "cuMemGetAddressRange",
		       cu->MemGetAddressRange(&out->base, &out->size, pointer));
	cuda_leave(&scope);
	return r;
}

static int find_range(const struct cuda *cu, CUdeviceptr pointer, uint64_t size, struct range *out,
		      struct failure *failure)
{
	int r = ask_range(cu, pointer, out, failure);

	if (r != 0)
		return r;
	if (pointer >= out->base && pointer - out->base < out->size &&
	    size <= out->size - (pointer - out->base))
		return 0;
	return failure_set(failure, SHARE_EINVAL,
			   "the memory does not lie in one allocation: from 0x%llx on, %llu bytes "
			   "are of one, and %llu were to be adopted",
			   (unsigned long long)pointer,
			   (unsigned long long)(out->size - (pointer - out->base)),
			   (unsigned long long)size);
}

/* Which device it is on, as recipes say it. Only the name tells of an instance of a device. */
static int name_device(const struct cuda *cu, CUdevice device, struct memory_recipe *recipe,
		       struct failure *failure)
{
	char name[128];
	CUuuid uuid;
	int r = cuda_check(failure, "cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, device));

	if (r != 0)
		return r;
	memcpy(recipe->device, uuid.bytes, sizeof(recipe->device));
	if (cu->DeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS && strstr(name, " MIG "))
		recipe->flags |= MEMORY_ON_MIG;
	return 0;
}

static int check_properties(const CUmemAllocationProp *property, struct failure *failure)
{
	if (property->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "the memory was made by cuMemCreate(), and lies on the host: only "
		    "that of devices can be adopted");
	if (!(property->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "the memory was made by cuMemCreate() without "
		    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, so no other process can "
		    "have it");
	return 0;
}

static int export_handle(const struct cuda *cu, CUmemGenericAllocationHandle handle,
			 struct memory_found *out, struct failure *failure)
{
	CUmemAllocationProp property;
	int fd = -1, r;

	r = cuda_check(failure, "cuMemGetAllocationPropertiesFromHandle",
		       cu->MemGetAllocationPropertiesFromHandle(&property, handle));
	if (r == 0)
		r = check_properties(&property, failure);
	if (r == 0)
		r = name_device(cu, property.location.id, &out->segment.recipe, failure);
	if (r == 0)
		r = cuda_check(failure, "cuMemExportToShareableHandle",
			       cu->MemExportToShareableHandle(
				   &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (r != 0)
		return r;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	out->segment.fd = fd;
	out->ordinal = property.location.id;
	return 0;
}

static int refuse(const struct cuda *cu, CUdeviceptr pointer, struct failure *failure)
{
	CUmemoryPool pool = NULL;

	if (cu->PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer) ==
		CUDA_SUCCESS &&
	    pool)
		return failure_set(failure, SHARE_ENOTSUP,
				   "the memory is of a memory pool (cuMemAllocAsync(), "
				   "cudaMallocAsync()), and cannot be adopted: a process that "
				   "had two buffers of one allocation would lose both with one");
	return failure_set(failure, SHARE_ENOTSUP,
			   "the driver says of this memory that no other process can have it");
}

/* Which descriptor says that the memory is gone, the broker knows. */
static int get_handle(const struct cuda *cu, const struct range *range, struct memory_found *out,
		      struct failure *failure)
{
	struct memory_recipe *recipe = &out->segment.recipe;
	struct cuda_scope scope;
	CUipcMemHandle handle;
	int r;

	if (!attribute(cu, range->base, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE))
		return refuse(cu, range->base, failure);
	r = name_device(cu, range->device, recipe, failure);
	if (r == 0)
		r = cuda_enter(cu, range->device, &scope, failure);
	if (r != 0)
		return r;
	r = cuda_check(failure, "cuIpcGetMemHandle", cu->IpcGetMemHandle(&handle, range->base));
	cuda_leave(&scope);
	if (r != 0)
		return r;
	memcpy(recipe->pointer, &handle, sizeof(handle));
	out->kind = memory_kind_by_id(MEMORY_LEGACY);
	out->ordinal = range->device;
	return 0;
}

static int export_range(const struct cuda *cu, const struct range *range, struct memory_found *out,
			struct failure *failure)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;
	int r;

	*out = (struct memory_found){
	    .kind = memory_kind_by_id(MEMORY_VMM),
	    .segment = {.recipe = {.size = range->size}, .fd = -1, .fd_readonly = -1},
	    .ordinal = -1};
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): that is what the call takes */
	result = cu->MemRetainAllocationHandle(&handle, (void *)(uintptr_t)range->base);
	if (result != CUDA_SUCCESS)
		return get_handle(cu, range, out, failure);
	r = export_handle(cu, handle, out, failure);
	cu->MemRelease(handle);
	return r;
}

static int find_allocation(const struct cuda *cu, CUdeviceptr pointer, uint64_t size,
			   struct memory_found *out, struct failure *failure)
{
	struct range range;
	int r;

	if (attribute(cu, pointer, CU_POINTER_ATTRIBUTE_IS_MANAGED))
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "the memory is managed (cuMemAllocManaged()), and no other process "
		    "can have it");
	r = find_range(cu, pointer, size, &range, failure);
	if (r == 0)
		r = export_range(cu, &range, out, failure);
	if (r == 0)
		out->offset = pointer - range.base;
	return r;
}

bool memory_device_find(const void *address, uint64_t size, struct memory_found *out, int *r,
			struct failure *failure)
{
	CUdeviceptr pointer = (uintptr_t)address;
	struct cuda_relaxed relaxed;
	const struct cuda *cu;

	if (!cuda_is_in_use(&cu))
		return false;
	/* which may be of the host */
	if (cuda_is_import(pointer)) {
		*r = failure_set(failure, SHARE_EEXIST, "the memory is of a buffer already");
		return true;
	}
	if (attribute(cu, pointer, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) != CU_MEMORYTYPE_DEVICE &&
	    !attribute(cu, pointer, CU_POINTER_ATTRIBUTE_IS_MANAGED))
		return false;
	cuda_relax(cu, &relaxed);
	*r = find_allocation(cu, pointer, size, out, failure);
	cuda_relax_end(&relaxed);
	return true;
}
