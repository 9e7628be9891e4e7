/* SPDX-License-Identifier: MIT */

/*
 * Memory pools that cross processes: a pool is one memfd that only ever grows, since such a pool
 * returns nothing to the device while it lives (it goes with its last block, its last importer and
 * the last descriptor). Blocks are whole granules of it, mapped one by one.
 *
 * Imports have the driver's habits: the pool's descriptor must have been exported before any
 * pointer, the same pointer imported again is the same address, and the first free of it unmaps it
 * for both.
 */

#include <stdio.h>
#include <string.h>

#include "tests/standin/standin.h"

struct hole {
	struct hole *next;
	uint64_t offset, size;
};

struct pool {
	struct pool *next;
	struct backing *backing;
	struct hole *holes;  /* free blocks of it */
	uint64_t used, most; /* bytes; most 0: no limit */
	unsigned blocks;
	bool imported, exported, exportable, destroyed;
	unsigned char access[STANDIN_DEVICES];
};

/* CUmemPoolPtrExportData, as the other process finds it. */
struct export_data {
	char magic[8];
	uint64_t inode, offset, size;
	unsigned char unused[32];
};
_Static_assert(sizeof(struct export_data) == sizeof(CUmemPoolPtrExportData), "64 bytes");

static struct pool *pools;

static struct pool *find(CUmemoryPool handle)
{
	for (struct pool *p = pools; p; p = p->next)
		if ((CUmemoryPool)p == handle && !p->destroyed)
			return p;
	return NULL;
}

CUmemoryPool pool_handle(struct pool *p)
{
	return (CUmemoryPool)p;
}

unsigned pool_access(const struct pool *p, unsigned device)
{
	return p->access[device];
}

bool range_imported(const struct range *r)
{
	return r->pool && r->pool->imported;
}

/* A destroyed pool goes with its last block. */
static void let_go(struct pool *p)
{
	if (!p->destroyed || p->blocks)
		return;
	for (struct pool **at = &pools; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	while (p->holes) {
		struct hole *h = p->holes;

		p->holes = h->next;
		free(h);
	}
	backing_unref(p->backing);
	free(p);
}

/* Takes the backing. */
static struct pool *add(struct backing *b)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->backing = b;
	p->access[b->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	pthread_mutex_lock(&standin_lock);
	p->next = pools;
	pools = p;
	pthread_mutex_unlock(&standin_lock);
	return p;
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	struct backing *b;
	struct pool *p;
	CUresult result;

	ENTER(cuMemPoolCreate, NEEDS_INIT);
	UNSAFE_IN_CAPTURE();
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!machine.mempool || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (device_of(props->location.id) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	result = backing_create((unsigned)device_of(props->location.id), "pool", 0, &b);
	if (result != CUDA_SUCCESS)
		return result;
	p = add(b);
	p->exportable = props->handleTypes;
	p->most = props->maxSize;
	*out = pool_handle(p);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *p;

	ENTER(cuMemPoolDestroy, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	if (p) {
		p->destroyed = true;
		let_go(p);
	}
	pthread_mutex_unlock(&standin_lock);
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(struct pool *p, const CUmemAccessDesc *map)
{
	int device = device_of(map->location.id);

	if (map->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned)device == p->backing->device) {
		if (map->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			return CUDA_ERROR_INVALID_DEVICE;
		if (map->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_NOT_SUPPORTED;
	} else if (!machine.peers) {
		return CUDA_ERROR_INVALID_DEVICE;
	} else if (map->flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	p->access[device] = (unsigned char)map->flags;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	CUresult result = CUDA_SUCCESS;
	struct pool *p;

	ENTER(cuMemPoolSetAccess, NEEDS_INIT);
	if (!map || !count)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	for (size_t i = 0; p && result == CUDA_SUCCESS && i < count; i++)
		result = set_access(p, &map[i]);
	pthread_mutex_unlock(&standin_lock);
	return p ? result : CUDA_ERROR_INVALID_VALUE;
}

/* Does nothing, though the call succeeds: FACTS, "IPC pools return no memory". */
CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	bool known;

	(void)keep;
	ENTER(cuMemPoolTrimTo, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	known = find(handle);
	pthread_mutex_unlock(&standin_lock);
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	CUresult result = CUDA_SUCCESS;
	struct pool *p;

	ENTER(cuMemPoolGetAttribute, NEEDS_INIT);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	if (!p)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		*(cuuint64_t *)value = p->used;
	else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		*(cuuint64_t *)value = p->backing->size;
	else
		result = CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* When memory goes back, and which block is used again: a pool that crosses processes does as it
 * always does. */
CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
	bool known;

	ENTER(cuMemPoolSetAttribute, NEEDS_INIT);
	pthread_mutex_lock(&standin_lock);
	known = find(handle);
	pthread_mutex_unlock(&standin_lock);
	if (!known || !value || attribute > CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool handle,
					  CUmemAllocationHandleType type, unsigned long long flags)
{
	struct pool *p;
	int fd = -1;
	bool can;

	ENTER(cuMemPoolExportToShareableHandle, NEEDS_INIT);
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	can = p && p->exportable && !p->imported;
	if (can)
		fd = backing_export(p->backing);
	if (fd >= 0)
		p->exported = true;
	pthread_mutex_unlock(&standin_lock);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle,
					    CUmemAllocationHandleType type,
					    unsigned long long flags)
{
	struct backing *b;
	struct pool *p;
	CUresult result;

	ENTER(cuMemPoolImportFromShareableHandle, NEEDS_INIT);
	UNSAFE_IN_CAPTURE();
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	result = backing_import((int)(intptr_t)handle, "pool", &b);
	if (result != CUDA_SUCCESS)
		return result;
	p = add(b);
	p->imported = true;
	*out = pool_handle(p);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr pointer)
{
	struct export_data data = {.magic = "standin"};
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range *r;

	ENTER(cuMemPoolExportPointer, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	r = range_at(pointer);
	if (r && r->pool && r->pool->exported && !r->pool->imported && !r->freed &&
	    r->address == pointer) {
		data.inode = r->backing->inode;
		data.offset = r->offset;
		data.size = r->size;
		memcpy(out, &data, sizeof(data));
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* Reserves and maps; the lock is held. */
static CUresult map_block(struct pool *p, uint64_t offset, uint64_t size, CUdeviceptr *out)
{
	uintptr_t address;
	struct range *r;
	CUresult result = address_reserve(size, machine.granularity, 0, &address);

	if (result != CUDA_SUCCESS)
		return result;
	result = range_map(address, size, p->backing, offset, &r);
	if (result != CUDA_SUCCESS) {
		address_release(address, size);
		return result;
	}
	r->pool = p;
	p->blocks++;
	p->used += size;
	*out = address;
	return CUDA_SUCCESS;
}

static CUresult import_block(struct pool *p, const struct export_data *data, CUdeviceptr *out)
{
	if (!p->imported || memcmp(data->magic, "standin", 8) != 0 ||
	    data->inode != p->backing->inode || !data->size || data->offset > p->backing->size ||
	    data->size > p->backing->size - data->offset)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct range *r = range_first(); r; r = r->next)
		if (r->pool && r->pool->imported && r->backing->inode == data->inode &&
		    r->offset == data->offset) {
			*out = r->address;
			return CUDA_SUCCESS;
		}
	return map_block(p, data->offset, data->size, out);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool handle,
				CUmemPoolPtrExportData *exported)
{
	struct export_data data;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct pool *p;

	ENTER(cuMemPoolImportPointer, NEEDS_INIT);
	if (!out || !exported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&data, exported, sizeof(data));
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	if (p)
		result = import_block(p, &data, out);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* First fit, else more of the device. */
static CUresult take_space(struct pool *p, uint64_t size, uint64_t *offset)
{
	for (struct hole **at = &p->holes; *at; at = &(*at)->next) {
		struct hole *h = *at;

		if (h->size < size)
			continue;
		*offset = h->offset;
		h->offset += size;
		h->size -= size;
		if (!h->size) {
			*at = h->next;
			free(h);
		}
		return CUDA_SUCCESS;
	}
	*offset = p->backing->size;
	if (p->most && *offset + size > p->most)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return backing_grow(p->backing, *offset + size);
}

static void return_space(struct pool *p, uint64_t offset, uint64_t size)
{
	struct hole *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	h->offset = offset;
	h->size = size;
	h->next = p->holes;
	p->holes = h;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool handle,
				 CUstream stream)
{
	uint64_t g = machine.granularity, offset;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct pool *p;

	ENTER(cuMemAllocFromPoolAsync, NEEDS_CONTEXT);
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stream_find(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	size = (size + g - 1) / g * g;
	pthread_mutex_lock(&standin_lock);
	p = find(handle);
	if (p && !p->imported) {
		result = take_space(p, size, &offset);
		if (result == CUDA_SUCCESS) {
			result = map_block(p, offset, size, out);
			if (result != CUDA_SUCCESS)
				return_space(p, offset, size);
		}
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

static CUresult free_now(struct operation *o, CUcontext context)
{
	struct range *r = o->range;
	struct pool *p = r->pool;

	(void)context;
	pthread_mutex_lock(&standin_lock);
	if (!p->imported)
		return_space(p, r->offset, r->size);
	p->blocks--;
	p->used -= r->size;
	address_release(r->address, r->size);
	range_unmap(r);
	let_go(p);
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

/* A block, which is being freed then; NULL when it is none, or is so already. */
static struct range *take_block(CUdeviceptr pointer)
{
	struct range *r;

	pthread_mutex_lock(&standin_lock);
	r = range_at(pointer);
	if (r && (!r->pool || r->address != pointer || r->freed))
		r = NULL;
	if (r)
		r->freed = true;
	pthread_mutex_unlock(&standin_lock);
	return r;
}

CUresult pool_free(CUdeviceptr pointer)
{
	struct operation o = {.range = take_block(pointer)};

	return o.range ? free_now(&o, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	struct range *r;
	struct operation *o;

	ENTER(cuMemFreeAsync, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	if (!stream_find(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	r = take_block(pointer);
	if (!r)
		return CUDA_ERROR_INVALID_VALUE;
	o = operation_create(free_now);
	o->range = r;
	return stream_enqueue(stream, o);
}
