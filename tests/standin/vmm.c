/* SPDX-License-Identifier: MIT */

/*
 * Memory and addresses apart: cuMemCreate() makes memory, cuMemAddressReserve() an address,
 * cuMemMap() puts one at the other, cuMemSetAccess() lets devices reach it. None of it needs a
 * context.
 */

#include "tests/standin/standin.h"

/* What a CUmemGenericAllocationHandle is. */
struct allocation {
	struct allocation *next;
	struct backing *backing;
};

struct reservation {
	struct reservation *next;
	uintptr_t address;
	uint64_t size;
};

static struct allocation *allocations;
static struct reservation *reservations;

static struct allocation *find_allocation(CUmemGenericAllocationHandle handle)
{
	for (struct allocation *a = allocations; a; a = a->next)
		if ((uintptr_t)a == handle)
			return a;
	return NULL;
}

static bool is_host(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* A device, or STANDIN_HOST, which has one node; -1: there is none. */
static int place_of(const CUmemLocation *location)
{
	if (is_host(location))
		return location->id == 0 ? STANDIN_HOST : -1;
	return device_of(location->id);
}

static CUresult check_properties(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (is_host(&prop->location) ? !machine.numa
				     : prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (place_of(&prop->location) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->allocFlags.gpuDirectRDMACapable && (!machine.rdma || is_host(&prop->location)))
		return CUDA_ERROR_NOT_SUPPORTED;
	return machine.vmm ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult result;

	(void)option;
	ENTER(cuMemGetAllocationGranularity, NEEDS_INIT);
	result = check_properties(prop);
	if (result != CUDA_SUCCESS || !out)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	*out = machine.granularity;
	return CUDA_SUCCESS;
}

/* Takes the backing. */
static CUresult add_allocation(struct backing *b, CUmemGenericAllocationHandle *out)
{
	struct allocation *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	a->backing = b;
	pthread_mutex_lock(&standin_lock);
	a->next = allocations;
	allocations = a;
	pthread_mutex_unlock(&standin_lock);
	*out = (uintptr_t)a;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct backing *b;
	CUresult result;

	ENTER(cuMemCreate, NEEDS_INIT);
	result = check_properties(prop);
	if (result != CUDA_SUCCESS)
		return result;
	if (!out || flags || !size || size % machine.granularity)
		return CUDA_ERROR_INVALID_VALUE;
	result =
	    backing_create((unsigned)place_of(&prop->location),
			   prop->allocFlags.gpuDirectRDMACapable ? "vmm:rdma" : "vmm", size, &b);
	if (result != CUDA_SUCCESS)
		return result;
	b->handle_types = prop->requestedHandleTypes;
	b->rdma = prop->allocFlags.gpuDirectRDMACapable;
	return add_allocation(b, out);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	ENTER(cuMemRelease, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	for (struct allocation **at = &allocations; *at; at = &(*at)->next)
		if ((uintptr_t)*at == handle) {
			struct allocation *a = *at;

			*at = a->next;
			backing_unref(a->backing);
			free(a);
			result = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* Of whatever cuMemMap() has mapped there, from any address in it. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
	struct backing *b = NULL;
	struct range *r;

	ENTER(cuMemRetainAllocationHandle, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	r = range_at((uintptr_t)address);
	if (r && !r->pool && !r->plain)
		b = backing_ref(r->backing);
	pthread_mutex_unlock(&standin_lock);
	return b ? add_allocation(b, out) : CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation location_of(const struct backing *b)
{
	if (b->device == STANDIN_HOST)
		return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal_of(b->device)};
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
						CUmemGenericAllocationHandle handle)
{
	struct allocation *a;

	ENTER(cuMemGetAllocationPropertiesFromHandle, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	a = find_allocation(handle);
	if (a)
		*out = (CUmemAllocationProp){
		    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		    .requestedHandleTypes = a->backing->handle_types,
		    .location = location_of(a->backing),
		    .allocFlags.gpuDirectRDMACapable = a->backing->rdma,
		};
	pthread_mutex_unlock(&standin_lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct allocation *a;
	int fd = -1;

	ENTER(cuMemExportToShareableHandle, NEEDS_INIT);
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	a = find_allocation(handle);
	if (a && a->backing->handle_types)
		fd = backing_export(a->backing);
	pthread_mutex_unlock(&standin_lock);
	if (fd < 0 && (!a || !a->backing->handle_types))
		return CUDA_ERROR_INVALID_VALUE;
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
					CUmemAllocationHandleType type)
{
	struct backing *b;
	CUresult result;

	ENTER(cuMemImportFromShareableHandle, NEEDS_INIT);
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	result = backing_import((int)(intptr_t)handle, "vmm", &b);
	if (result != CUDA_SUCCESS)
		return result;
	b->handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return add_allocation(b, out);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint,
			     unsigned long long flags)
{
	struct reservation *r;
	CUresult result;

	ENTER(cuMemAddressReserve, NEEDS_INIT);
	if (!out || flags || !size || size % machine.granularity || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	r->size = size;
	result = address_reserve(size, alignment, hint, &r->address);
	if (result != CUDA_SUCCESS) {
		free(r);
		return result;
	}
	*out = r->address;
	pthread_mutex_lock(&standin_lock);
	r->next = reservations;
	reservations = r;
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

/* What is mapped there must have been unmapped. */
CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	ENTER(cuMemAddressFree, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
		struct reservation *r = *at;

		if (r->address != address || r->size != size || ranges_overlap(address, size))
			continue;
		*at = r->next;
		address_release(r->address, r->size);
		free(r);
		result = CUDA_SUCCESS;
		break;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

static bool reserved(uintptr_t address, uint64_t size)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (address >= r->address && size <= r->size &&
		    address - r->address <= r->size - size)
			return true;
	return false;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
		  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct allocation *a;
	struct range *r;

	ENTER(cuMemMap, NEEDS_INIT);
	if (flags || offset || !size || size % machine.granularity || address % machine.granularity)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	a = find_allocation(handle);
	if (a && size <= a->backing->size && reserved(address, size) &&
	    !ranges_overlap(address, size))
		result = range_map(address, size, a->backing, 0, &r);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* [address, address + size) as whole mappings of ours, without a hole. */
static bool whole_mappings(uintptr_t address, uint64_t size)
{
	uintptr_t at = address;

	while (size && at < address + size) {
		struct range *r = range_at(at);

		if (!r || r->address != at || r->pool || r->plain)
			return false;
		at += r->size;
	}
	return size && at == address + size;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	ENTER(cuMemUnmap, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	if (whole_mappings(address, size)) {
		for (uintptr_t at = address; at < address + size;) {
			struct range *r = range_at(at);

			at += r->size;
			range_unmap(r);
		}
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

static CUresult check_access(const CUmemAccessDesc *desc, size_t count, uintptr_t address)
{
	unsigned home = range_at(address)->backing->device;

	for (size_t i = 0; i < count; i++) {
		int place = place_of(&desc[i].location);

		if (is_host(&desc[i].location)
			? home != STANDIN_HOST
			: desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (place < 0 ||
		    ((unsigned)place != home && home != STANDIN_HOST && !machine.peers))
			return CUDA_ERROR_INVALID_DEVICE;
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult give_access(struct range *r, const CUmemAccessDesc *desc)
{
	int place = place_of(&desc->location);
	CUresult result = place == STANDIN_HOST ? range_protect(r, desc->flags) : CUDA_SUCCESS;

	if (result == CUDA_SUCCESS)
		r->access[place] = (unsigned char)desc->flags;
	return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	ENTER(cuMemSetAccess, NEEDS_INIT);
	UNSAFE_IN_CAPTURE();
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	if (whole_mappings(address, size))
		result = check_access(desc, count, address);
	for (uintptr_t at = address; result == CUDA_SUCCESS && at < address + size;) {
		struct range *r = range_at(at);

		for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
			result = give_access(r, &desc[i]);
		at += r->size;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}
