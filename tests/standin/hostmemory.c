/* SPDX-License-Identifier: MIT */

/*
 * Host memory that the GPU may use: what was registered, and whether for reading only. The kernel
 * is asked whether the pages could be written at all, as the real driver does when it pins them.
 */

#include <inttypes.h>
#include <stdio.h>

#include "tests/standin/standin.h"

struct registration {
	struct registration *next;
	uintptr_t address;
	uint64_t size;
	bool readonly, gone;
	unsigned n_uses;   /* by work on streams */
	CUcontext context; /* with which it ends */
};

static struct registration *registrations;

static struct registration *find(uintptr_t address, uint64_t size)
{
	for (struct registration *r = registrations; r; r = r->next)
		if (address < r->address + r->size && r->address < address + size)
			return r;
	return NULL;
}

/* With the lock held. */
static void end(struct registration **at)
{
	struct registration *r = *at;

	*at = r->next;
	r->gone = true;
	if (r->n_uses == 0)
		free(r);
}

/* With the lock held. */
void host_forget_context(CUcontext context)
{
	for (struct registration **at = &registrations; *at;) {
		if ((*at)->context == context)
			end(at);
		else
			at = &(*at)->next;
	}
}

struct registration *host_use(uintptr_t address, uint64_t size, bool *writable)
{
	struct registration *r;

	pthread_mutex_lock(&standin_lock);
	r = find(address, size);
	if (r && (address < r->address || size > r->size || address - r->address > r->size - size))
		r = NULL;
	if (r) {
		r->n_uses++;
		*writable = !r->readonly;
	}
	pthread_mutex_unlock(&standin_lock);
	return r;
}

void host_unuse(struct registration *r)
{
	pthread_mutex_lock(&standin_lock);
	if (--r->n_uses == 0 && r->gone)
		free(r);
	pthread_mutex_unlock(&standin_lock);
}

bool host_registered(uintptr_t address, uint64_t size, bool *writable)
{
	struct registration *r = host_use(address, size, writable);

	if (r)
		host_unuse(r);
	return r;
}

/* Whether all of it is mapped, readable, and writable where that is wanted. */
static bool accessible(uintptr_t address, uint64_t size, bool write)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uintptr_t at = address;
	char line[512];

	if (!maps)
		return false;
	while (at < address + size && fgets(line, sizeof(line), maps)) {
		uintptr_t from, to;
		char r, w;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", &from, &to, &r, &w) == 4 &&
		    at >= from && at < to && r == 'r' && (w == 'w' || !write))
			at = to;
	}
	fclose(maps);
	return at >= address + size;
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags)
{
	const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
			       CU_MEMHOSTREGISTER_READ_ONLY;
	struct registration *r;

	ENTER(cuMemHostRegister_v2, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	if (!address || !size || (flags & ~known) ||
	    !accessible((uintptr_t)address, size, !(flags & CU_MEMHOSTREGISTER_READ_ONLY)))
		return CUDA_ERROR_INVALID_VALUE;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	r->address = (uintptr_t)address;
	r->size = size;
	r->readonly = flags & CU_MEMHOSTREGISTER_READ_ONLY;
	r->context = context_current();
	pthread_mutex_lock(&standin_lock);
	if (find(r->address, r->size)) {
		pthread_mutex_unlock(&standin_lock);
		free(r);
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	}
	r->next = registrations;
	registrations = r;
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

/* With the lock held. */
static struct registration **find_from(uintptr_t address)
{
	struct registration **at = &registrations;

	while (*at && (*at)->address != address)
		at = &(*at)->next;
	return at;
}

/* Waits for the work on streams that was to use it, as the real driver does (docs/gpu-results.md).
 */
CUresult cuMemHostUnregister(void *address)
{
	struct registration **at;
	bool is_there;

	ENTER(cuMemHostUnregister, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	stream_stall();
	pthread_mutex_lock(&standin_lock);
	for (unsigned round = 0;; round++) {
		at = find_from((uintptr_t)address);
		if (!*at || (*at)->n_uses == 0)
			break;
		pthread_mutex_unlock(&standin_lock);
		stream_poll(round);
		pthread_mutex_lock(&standin_lock);
	}
	is_there = *at;
	if (is_there)
		end(at);
	pthread_mutex_unlock(&standin_lock);
	return is_there ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned flags)
{
	bool writable;

	ENTER(cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);
	if (!out || flags || !host_registered((uintptr_t)address, 1, &writable))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (uintptr_t)address;
	return CUDA_SUCCESS;
}
