/* SPDX-License-Identifier: MIT */

/*
 * The importer of legacy memory: cuIpcOpenMemHandle(). An agent has made it, or a program that had
 * it adopted. The driver maps an allocation once in a context and counts how often it was opened,
 * so each mapping here is one open and one close.
 *
 * What is mapped belongs to a context, of the device that the memory is on: the caller's current
 * one, if that is of this device, and else the primary one. And it is gone with the process that
 * made it, whatever the driver lets an importer do with it afterwards: so nothing here says that it
 * can be used without having looked whether that process lives.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "base/system/descriptor.h"
#include "base/system/process.h"
#include "memory/cuda/context.h"
#include "memory/gpu/imports.h"
#include "memory/importer.h"

struct legacy {
	struct cuda_import import;
	const struct cuda *cu;
	CUdeviceptr pointer;
	CUdevice device;
	CUcontext context;
	bool primary; /* it is the primary one, and has to be released in the end */
	pthread_mutex_t lock;
	int maker, stat; /* the process that made it, under the lock: see process_state() */
};

static bool has_maker_ended(struct legacy *l)
{
	bool ended;

	pthread_mutex_lock(&l->lock);
	ended = process_state(l->maker, &l->stat) == PROCESS_EXITS;
	pthread_mutex_unlock(&l->lock);
	return ended;
}

/* The context of the calling thread, if it is one of the memory's device. */
static CUcontext current_of(const struct legacy *l)
{
	CUcontext context = NULL;
	CUdevice device;

	if (l->cu->CtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
	    l->cu->CtxGetDevice(&device) != CUDA_SUCCESS || device != l->device)
		return NULL;
	return context;
}

static int find_context(struct legacy *l, struct failure *failure)
{
	int r;

	l->context = current_of(l);
	if (l->context)
		return 0;
	r = cuda_check(failure, "cuDevicePrimaryCtxRetain",
		       l->cu->DevicePrimaryCtxRetain(&l->context, l->device));
	l->primary = r == 0;
	return r;
}

static void leave_context(struct legacy *l)
{
	if (l->primary)
		l->cu->DevicePrimaryCtxRelease(l->device);
}

static int fail_open(CUresult result, struct failure *failure)
{
	if (result == CUDA_ERROR_INVALID_CONTEXT)
		return failure_set(
		    failure, SHARE_ENOTSUP,
		    "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT: the driver takes "
		    "this process for the one that made the memory; it does so if they "
		    "have the same number in two PID namespaces: start the program as "
		    "another than the first of its container");
	return cuda_fail(failure, "cuIpcOpenMemHandle", result);
}

/* What an agent has made are whole units, and buffers in them are aligned in them. A program has
 * allocations of any size, which may lie in a larger one of the driver's. */
static bool is_what_it_says(const struct legacy *l, CUdeviceptr base, uint64_t extent,
			    uint64_t size)
{
	CUdeviceptr before = l->pointer - base;

	return l->pointer >= base && before <= extent && size <= extent - before &&
	       (size % MEMORY_ALIGNMENT || l->pointer % MEMORY_ALIGNMENT == 0);
}

static int check_opened(const struct legacy *l, uint64_t size, struct failure *failure)
{
	CUdeviceptr base = 0;
	size_t extent = 0;
	int r = cuda_check(failure, "cuMemGetAddressRange",
			   l->cu->MemGetAddressRange(&base, &extent, l->pointer));

	if (r != 0)
		return r;
	if (!is_what_it_says(l, base, extent, size))
		return failure_set(failure, SHARE_EPROTO,
				   "the recipe says memory of %llu bytes, and its handle leads to "
				   "0x%llx, in %llu at 0x%llx",
				   (unsigned long long)size, (unsigned long long)l->pointer,
				   (unsigned long long)extent, (unsigned long long)base);
	return cuda_check_pointer(l->cu, l->pointer, l->device, failure);
}

/* In its context. */
static int open_here(struct legacy *l, const struct memory_recipe *recipe, struct failure *failure)
{
	CUipcMemHandle handle;
	CUresult result;
	int r;

	_Static_assert(sizeof(handle) == sizeof(recipe->pointer), "it goes over the wire whole");
	memcpy(&handle, recipe->pointer, sizeof(handle));
	result = l->cu->IpcOpenMemHandle(&l->pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (result != CUDA_SUCCESS)
		return has_maker_ended(l) ? memory_fail_lost(failure) : fail_open(result, failure);
	r = check_opened(l, recipe->size, failure);
	/* what was opened may be of another process that has got the number of a dead one */
	if (r == 0 && has_maker_ended(l))
		r = memory_fail_lost(failure);
	if (r < 0)
		l->cu->IpcCloseMemHandle(l->pointer);
	return r;
}

static int open_in_context(struct legacy *l, const struct memory_recipe *recipe,
			   struct failure *failure)
{
	struct cuda_relaxed relaxed;
	CUcontext popped;
	int r = cuda_check(failure, "cuCtxPushCurrent", l->cu->CtxPushCurrent(l->context));

	if (r != 0)
		return r;
	cuda_relax(l->cu, &relaxed);
	r = open_here(l, recipe, failure);
	cuda_relax_end(&relaxed);
	l->cu->CtxPopCurrent(&popped);
	return r;
}

static void legacy_free(struct legacy *l)
{
	fd_close(l->maker);
	fd_close(l->stat);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* A descriptor that is of no process, but of a file, says that there is something to read: so it
 * counts as one of a process that has ended. */
static int find_maker(struct legacy *l, int fd, struct failure *failure)
{
	int own = fd_dup(fd);

	if (own < 0)
		return failure_set(failure, SHARE_ESYSTEM, "a pidfd: %s", strerror(-own));
	l->maker = own;
	return has_maker_ended(l) ? memory_fail_lost(failure) : 0;
}

static int legacy_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
			 struct failure *failure)
{
	struct legacy *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return failure_set(failure, SHARE_ENOMEM, "no memory for a mapping");
	pthread_mutex_init(&l->lock, NULL);
	l->maker = l->stat = -1;
	r = find_maker(l, fd, failure);
	if (r == 0)
		r = cuda_get(&l->cu, failure);
	if (r == 0)
		r = cuda_find_device(l->cu, recipe->device, &l->device, failure);
	if (r == 0)
		r = find_context(l, failure);
	if (r < 0)
		goto free_l;
	r = open_in_context(l, recipe, failure);
	if (r < 0) {
		leave_context(l);
		goto free_l;
	}
	cuda_import_attach(&l->import, l->pointer, recipe->size);
	m->address = (void *)(uintptr_t)l->pointer;
	m->ordinal = l->device;
	m->opaque = l;
	return 0;

free_l:
	legacy_free(l);
	return r;
}

static bool legacy_is_lost(const struct memory_mapping *m)
{
	return has_maker_ended(m->opaque);
}

/* It is mapped for one context. A thread without any has yet to say where it will use it. */
static int legacy_reach(struct memory_mapping *m, struct failure *failure)
{
	struct legacy *l = m->opaque;
	CUcontext context = NULL;
	int r;

	if (has_maker_ended(l))
		return memory_fail_lost(failure);
	r = cuda_check(failure, "cuCtxGetCurrent", l->cu->CtxGetCurrent(&context));
	if (r != 0 || !context || context == l->context)
		return r;
	return failure_set(failure, SHARE_ENOTSUP,
			   "memory of kind legacy can be used in the context in which this process "
			   "first looked it up, of device %d, and the current one is another: "
			   "share_copy() it into a buffer of kind vmm",
			   l->device);
}

/* A call fails here only if the driver is broken, or the context gone and the mapping with it. */
static void legacy_unmap(struct memory_mapping *m)
{
	struct legacy *l = m->opaque;
	struct cuda_relaxed relaxed;
	CUcontext popped;

	cuda_import_detach(&l->import);
	cuda_relax(l->cu, &relaxed);
	if (l->cu->CtxPushCurrent(l->context) == CUDA_SUCCESS) {
		l->cu->IpcCloseMemHandle(l->pointer);
		l->cu->CtxPopCurrent(&popped);
	}
	cuda_relax_end(&relaxed);
	leave_context(l);
	legacy_free(l);
}

const struct memory_importer memory_legacy_importer = {
    .kind = MEMORY_LEGACY,
    .import = legacy_import,
    .reach = legacy_reach,
    .unmap = legacy_unmap,
    .is_lost = legacy_is_lost,
};
