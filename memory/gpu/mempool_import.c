/* SPDX-License-Identifier: MIT */

/*
 * The importer of mempool memory. The driver lets a process import the same allocation twice, but
 * then the first free unmaps both, and it crashes when an import and a free happen at the same
 * time. So all imports of this process are in one table, with a count of their users, and one lock
 * is held over each import and free. If the memory is imported already, for whichever client, the
 * caller gets the same mapping.
 *
 * All mappings of such memory are writable, because the driver refuses read-only access to it.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"
#include "memory/gpu/access.h"
#include "memory/gpu/imports.h"
#include "memory/importer.h"

struct import {
	struct cuda_import import;
	struct memory_recipe recipe;
	const struct cuda *cu;
	CUmemoryPool pool;
	CUdeviceptr pointer;
	struct cuda_access access;
	bool primary; /* the primary context has to be released in the end */
	size_t users;
	struct import *next;
};

static pthread_mutex_t mempool_lock = PTHREAD_MUTEX_INITIALIZER;

/* A thread of the parent may have held the lock during fork(); in the child that thread does not
 * exist. */
static void unlock_in_child(void)
{
	mempool_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, unlock_in_child);
}
static struct import *imports;

static struct import *find_import(const struct memory_recipe *recipe)
{
	struct import *i = imports;

	while (i && memcmp(i->recipe.identity, recipe->identity, sizeof(recipe->identity)) != 0)
		i = i->next;
	return i;
}

static void forget(struct import *gone)
{
	struct import **at = &imports;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
}

/* Gives access to the device of the current context if it lacks it. The lock is held. */
static int reach_locked(struct import *i, struct failure *failure)
{
	struct cuda_relaxed relaxed;
	CUmemAccessDesc access;
	CUdevice peer;
	int r = cuda_access_missing(i->cu, &i->access, &peer, failure);

	if (r <= 0)
		return r;
	access = cuda_access_describe(peer, true);
	cuda_relax(i->cu, &relaxed);
	r = cuda_check(failure, "cuMemPoolSetAccess", i->cu->MemPoolSetAccess(i->pool, &access, 1));
	cuda_relax_end(&relaxed);
	if (r == 0)
		cuda_access_granted(&i->access, peer);
	return r;
}

/*
 * Frees an imported pointer. Nothing uses the memory any more, so the free needs no order; but it
 * has to be complete when this returns. A stream of its own makes the free wait for nothing on the
 * caller's streams, and them not for the free.
 */
static void free_pointer(const struct cuda *cu, CUdeviceptr pointer)
{
	CUstream stream;

	if (cu->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
		cu->MemFree(pointer); /* this waits for the whole device */
		return;
	}
	if (cu->MemFreeAsync(pointer, stream) == CUDA_SUCCESS)
		cu->StreamSynchronize(stream);
	cu->StreamDestroy(stream);
}

/* Needs a current context. */
static int import_pointer(struct import *i, struct failure *failure)
{
	CUmemPoolPtrExportData data;
	int r;

	_Static_assert(sizeof(data) == sizeof(i->recipe.pointer), "it goes over the wire whole");
	memcpy(&data, i->recipe.pointer, sizeof(data));
	r = cuda_check(failure, "cuMemPoolImportPointer",
		       i->cu->MemPoolImportPointer(&i->pointer, i->pool, &data));
	if (r < 0)
		return r;
	r = cuda_check_pointer(i->cu, i->pointer, i->access.owner, failure);
	if (r < 0)
		free_pointer(i->cu, i->pointer);
	return r;
}

/* Needs a current context. */
static int import_pool(struct import *i, int fd, struct failure *failure)
{
	int r = cuda_check(
	    failure, "cuMemPoolImportFromShareableHandle",
	    i->cu->MemPoolImportFromShareableHandle(&i->pool, (void *)(uintptr_t)fd,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

	if (r < 0)
		return r;
	r = reach_locked(i, failure);
	if (r == 0)
		r = import_pointer(i, failure);
	if (r < 0)
		i->cu->MemPoolDestroy(i->pool);
	return r;
}

static int import_first(const struct memory_recipe *recipe, int fd, struct import **out,
			struct failure *failure)
{
	struct cuda_relaxed relaxed;
	struct cuda_scope scope;
	struct import *i;
	int r;

	i = calloc(1, sizeof(*i));
	if (!i)
		return failure_set(failure, SHARE_ENOMEM, "no memory for a mapping");
	i->recipe = *recipe;
	r = cuda_get(&i->cu, failure);
	if (r == 0)
		r = cuda_find_device(i->cu, recipe->device, &i->access.owner, failure);
	if (r == 0)
		r = cuda_enter(i->cu, i->access.owner, &scope, failure);
	if (r < 0)
		goto free_i;
	cuda_relax(i->cu, &relaxed);
	r = import_pool(i, fd, failure);
	cuda_relax_end(&relaxed);
	if (r < 0) {
		cuda_leave(&scope);
		goto free_i;
	}
	i->primary = cuda_leave_keeping(&scope);
	cuda_import_attach(&i->import, i->pointer, recipe->size);
	i->next = imports;
	imports = i;
	*out = i;
	return 0;

free_i:
	free(i);
	return r;
}

static int import_again(const struct memory_recipe *recipe, struct import *i,
			struct failure *failure)
{
	if (memcmp(&i->recipe, recipe, sizeof(*recipe)) != 0)
		return failure_set(failure, SHARE_EPROTO,
				   "two recipes claim to be the same memory, and differ");
	return reach_locked(i, failure);
}

static int mempool_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
			  struct failure *failure)
{
	struct import *i;
	int r;

	pthread_mutex_lock(&mempool_lock);
	i = find_import(recipe);
	r = i ? import_again(recipe, i, failure) : import_first(recipe, fd, &i, failure);
	if (r == 0) {
		i->users++;
		m->address = (void *)(uintptr_t)i->pointer;
		m->ordinal = i->access.owner;
		m->opaque = i;
	}
	pthread_mutex_unlock(&mempool_lock);
	return r;
}

static int mempool_reach(struct memory_mapping *m, struct failure *failure)
{
	struct import *i = m->opaque;
	CUdevice peer;
	/* In the usual case the device has access, and no lock is needed to see that. */
	int r = cuda_access_missing(i->cu, &i->access, &peer, failure);

	if (r <= 0)
		return r;
	pthread_mutex_lock(&mempool_lock);
	r = reach_locked(i, failure);
	pthread_mutex_unlock(&mempool_lock);
	return r;
}

/* A call fails here only if the driver is broken or gone, and then the memory is gone too. */
static void let_go(struct import *i)
{
	struct cuda_relaxed relaxed;
	struct cuda_scope scope;
	struct failure ignored;

	cuda_import_detach(&i->import);
	cuda_relax(i->cu, &relaxed);
	if (cuda_enter(i->cu, i->access.owner, &scope, &ignored) == 0) {
		free_pointer(i->cu, i->pointer);
		cuda_leave(&scope);
	}
	i->cu->MemPoolDestroy(i->pool);
	cuda_relax_end(&relaxed);
	if (i->primary)
		i->cu->DevicePrimaryCtxRelease(i->access.owner);
	free(i);
}

static void mempool_unmap(struct memory_mapping *m)
{
	struct import *i = m->opaque;

	pthread_mutex_lock(&mempool_lock);
	if (--i->users == 0) {
		forget(i);
		let_go(i);
	}
	pthread_mutex_unlock(&mempool_lock);
}

const struct memory_importer memory_mempool_importer = {
    .kind = MEMORY_MEMPOOL,
    .import = mempool_import,
    .reach = mempool_reach,
    .unmap = mempool_unmap,
};
