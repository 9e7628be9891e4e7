/* SPDX-License-Identifier: MIT */

/*
 * What a pointer is: device memory of ours, registered host memory, or nothing we know.
 */

#include <string.h>

#include "tests/standin/standin.h"

#define PUT(type, value) (*(type *)out = (type)(value), CUDA_SUCCESS)

static CUresult of_device(CUpointer_attribute which, const struct range *r, CUdeviceptr pointer,
			  void *out)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return PUT(unsigned, r->backing->device == STANDIN_HOST ? CU_MEMORYTYPE_HOST
									: CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return PUT(CUdeviceptr, pointer);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		return PUT(unsigned long long, r->id);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return PUT(unsigned, r->managed);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return PUT(int, ordinal_of(r->backing->device));
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		return PUT(int, r->plain && !r->opened && !r->managed);
	case CU_POINTER_ATTRIBUTE_MAPPED:
		return PUT(int, 1);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		return PUT(CUmemoryPool, r->pool ? pool_handle(r->pool) : NULL);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult of_host(CUpointer_attribute which, CUdeviceptr pointer, void *out)
{
	switch (which) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return PUT(unsigned, CU_MEMORYTYPE_HOST);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return PUT(CUdeviceptr, pointer);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		return PUT(unsigned, 0);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult attribute(CUpointer_attribute which, CUdeviceptr pointer, void *out)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range *r;
	bool writable;

	pthread_mutex_lock(&standin_lock);
	r = range_at(pointer);
	if (r)
		result = of_device(which, r, pointer, out);
	pthread_mutex_unlock(&standin_lock);
	if (!r && host_registered(pointer, 1, &writable))
		result = of_host(which, pointer, out);
	return result;
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr pointer)
{
	ENTER(cuPointerGetAttribute, NEEDS_INIT);
	return out ? attribute(which, pointer, out) : CUDA_ERROR_INVALID_VALUE;
}

/* Of a pointer nobody knows: zeros, and no error. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **out,
				CUdeviceptr pointer)
{
	ENTER(cuPointerGetAttributes, NEEDS_INIT);
	if (!count || !which || !out)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		unsigned long long value = 0;
		size_t size = sizeof(value);

		if (which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
		    which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
		    which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
		    which[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
		    which[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
			size = sizeof(int);
		attribute(which[i], pointer, &value);
		memcpy(out[i], &value, size); /* little-endian */
	}
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct range *r;

	ENTER(cuMemGetAddressRange_v2, NEEDS_CONTEXT);
	pthread_mutex_lock(&standin_lock);
	r = range_at(pointer);
	if (r && base)
		*base = r->address;
	if (r && size)
		*size = r->asked ? r->asked : r->size;
	pthread_mutex_unlock(&standin_lock);
	return r ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
