/* SPDX-License-Identifier: MIT */

/*
 * Device addresses. They are addresses of the process that nobody may touch: a host access to
 * device memory faults, as on a real GPU without managed memory, and copies go through the
 * descriptor behind. Forked children have none of it.
 */

#include <stdio.h>
#include <sys/mman.h>

#include "tests/standin/standin.h"

/* What the driver makes of an address asked for: it is rounded up to a multiple of the first, and
 * in a process with a context heard only for reservations of at least the second (H200, driver
 * 580). */
#define HINT_ALIGNMENT (UINT64_C(32) << 20)
#define HINT_LEAST     (UINT64_C(128) << 20)

static struct range *ranges;
static uint64_t last_id;

static void *claim(uintptr_t address, uint64_t size, int flags)
{
	void *hint = (void *)address; /* NOLINT: an address is what it is */
	void *p =
	    mmap(hint, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK);
	return p;
}

CUresult address_reserve(uint64_t size, uint64_t alignment, uintptr_t hint, uintptr_t *out)
{
	uintptr_t start, at;
	void *p;

	if (alignment < machine.granularity)
		alignment = machine.granularity;
	if (context_any() && size < HINT_LEAST)
		hint = 0;
#if defined(__SANITIZE_THREAD__)
	hint = 0; /* it ends a process that maps where it has no room for it */
#endif
	hint = (hint + HINT_ALIGNMENT - 1) / HINT_ALIGNMENT * HINT_ALIGNMENT;
	if (hint && hint % alignment == 0) {
		p = claim(hint, size, MAP_FIXED_NOREPLACE);
		if (p && (uintptr_t)p == hint) {
			*out = hint;
			return CUDA_SUCCESS;
		}
		if (p)
			munmap(p, size);
	}
	p = claim(0, size + alignment, 0);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	start = (uintptr_t)p;
	at = (start + alignment - 1) / alignment * alignment;
	if (at > start)
		munmap(p, at - start);
	if (start + alignment > at)
		munmap((void *)(at + size), start + alignment - at);
	*out = at;
	return CUDA_SUCCESS;
}

void address_release(uintptr_t address, uint64_t size)
{
	munmap((void *)address, size);
}

CUresult range_map(uintptr_t address, uint64_t size, struct backing *b, uint64_t offset,
		   struct range **out)
{
	struct range *r = calloc(1, sizeof(*r));

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->address = address;
	r->size = size;
	r->offset = offset;
	r->backing = backing_ref(b);
	r->id = ++last_id;
	r->next = ranges;
	ranges = r;
	*out = r;
	return CUDA_SUCCESS;
}

CUresult range_protect(struct range *r, CUmemAccess_flags flags)
{
	int protection = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
			 : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
								     : PROT_NONE;
	void *p = mmap((void *)r->address, r->size, protection, MAP_SHARED | MAP_FIXED,
		       r->backing->fd, (off_t)r->offset);

	if (p == MAP_FAILED)
		return CUDA_ERROR_OPERATING_SYSTEM;
	madvise(p, r->size, MADV_DONTFORK);
	return CUDA_SUCCESS;
}

/* Nobody may touch the address any more, which stays reserved. */
void range_unmap(struct range *r)
{
	if (r->access[STANDIN_HOST])
		claim(r->address, r->size, MAP_FIXED);
	for (struct range **at = &ranges; *at; at = &(*at)->next)
		if (*at == r) {
			*at = r->next;
			break;
		}
	backing_unref(r->backing);
	free(r);
}

struct range *range_at(uintptr_t address)
{
	for (struct range *r = ranges; r; r = r->next)
		if (address >= r->address && address - r->address < r->size)
			return r;
	return NULL;
}

bool ranges_overlap(uintptr_t address, uint64_t size)
{
	for (struct range *r = ranges; r; r = r->next)
		if (address < r->address + r->size && r->address < address + size)
			return true;
	return false;
}

struct range *range_first(void)
{
	return ranges;
}

/* One mapping at a time: copies over the seam of two are not asked for here. */
CUresult target_find(CUdeviceptr address, uint64_t size, bool write, struct target *out)
{
	unsigned device = context_current()->device;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range *r;
	unsigned access;

	pthread_mutex_lock(&standin_lock);
	r = range_at((uintptr_t)address);
	if (r && !r->freed && size <= r->size - (address - r->address)) {
		access = r->pool ? pool_access(r->pool, device) : r->access[device];
		if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
		    (access == CU_MEM_ACCESS_FLAGS_PROT_READ && !write))
			result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS) {
		out->backing = backing_ref(r->backing);
		out->offset = r->offset + (address - r->address);
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}
