/* SPDX-License-Identifier: MIT */

/*
 * The importer of vmm memory, which is made by cuMemCreate(), and of pinned memory, which is the
 * same but for where it lies: on the host, so that the CPU gets access as well. It imports the
 * handle, maps it into a range of addresses that it reserves, and releases the handle at once,
 * since the mapping keeps the memory. The importer chooses the protection, so a read-only mapping
 * guards against mistakes and not against attacks.
 *
 * A mapping belongs to the process and not to a context. If the import had to retain a primary
 * context, that context is kept as long as the mapping.
 */

#include <pthread.h>
#include <stdlib.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"
#include "memory/gpu/access.h"
#include "memory/gpu/imports.h"
#include "memory/gpu/vmm_property.h"
#include "memory/importer.h"

struct vmm {
	struct cuda_import import;
	const struct cuda *cu;
	struct cuda_access access;
	bool primary; /* the primary context has to be released in the end */
	bool placed;  /* the mapping lies at an address that the recipe names */
};

/* Held while access is changed, which is rare and short. */
static pthread_mutex_t access_lock = PTHREAD_MUTEX_INITIALIZER;

static CUdeviceptr pointer_of(const struct memory_mapping *m)
{
	return (CUdeviceptr)(uintptr_t)m->address;
}

static int set_access(struct vmm *v, CUdeviceptr pointer, uint64_t size, bool writable,
		      struct failure *failure)
{
	CUmemAccessDesc access[CUDA_ACCESS_MAX];
	size_t n = cuda_access_describe_all(&v->access, writable, access);

	return cuda_check(failure, "cuMemSetAccess", v->cu->MemSetAccess(pointer, size, access, n));
}

/* How many bytes of addresses a segment of @size bytes reserves. */
static uint64_t reservation(uint64_t size, bool placed)
{
	return placed ? (size + MEMORY_PLACE - 1) / MEMORY_PLACE * MEMORY_PLACE : size;
}

static int reserve(const struct cuda *cu, uint64_t size, uint64_t address, CUdeviceptr *out,
		   struct failure *failure)
{
	CUdeviceptr pointer;
	int r;

	size = reservation(size, address != 0);
	r = cuda_check(failure, "cuMemAddressReserve",
		       cu->MemAddressReserve(&pointer, size, MEMORY_ALIGNMENT, address, 0));
	if (r < 0)
		return r;
	if (address && pointer != address) { /* The driver takes the address as a hint. */
		cu->MemAddressFree(pointer, size);
		return failure_set(failure, SHARE_EBUSY,
				   "the pool's memory has to lie at 0x%llx in every process, and "
				   "something else lies there in this one (the driver offered "
				   "0x%llx)",
				   (unsigned long long)address, (unsigned long long)pointer);
	}
	*out = pointer;
	return 0;
}

/* Maps the memory of @handle and gives access to the devices of v->access. */
static int map(struct vmm *v, CUmemGenericAllocationHandle handle,
	       const struct memory_recipe *recipe, bool writable, CUdeviceptr *out,
	       struct failure *failure)
{
	CUdeviceptr pointer = 0;
	int r = reserve(v->cu, recipe->size, recipe->address, &pointer, failure);

	if (r < 0)
		return r;
	r = cuda_check(failure, "cuMemMap", v->cu->MemMap(pointer, recipe->size, 0, handle, 0));
	if (r < 0)
		goto free_address;
	r = set_access(v, pointer, recipe->size, writable, failure);
	/* of the host's memory, what has been said of its node is checked by the driver */
	if (r == 0 && v->access.host.type == CU_MEM_LOCATION_TYPE_INVALID)
		r = cuda_check_pointer(v->cu, pointer, v->access.owner, failure);
	if (r < 0)
		goto unmap;
	*out = pointer;
	return 0;

unmap:
	v->cu->MemUnmap(pointer, recipe->size);
free_address:
	v->cu->MemAddressFree(pointer, reservation(recipe->size, recipe->address != 0));
	return r;
}

/* Needs a current context. */
static int import_here(struct vmm *v, const struct memory_recipe *recipe, int fd,
		       struct memory_mapping *m, struct failure *failure)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr pointer = 0;
	CUdevice peer;
	int r;

	cuda_access_granted(&v->access, v->access.owner);
	r = cuda_access_missing(v->cu, &v->access, &peer, failure);
	if (r < 0)
		return r;
	if (r > 0)
		cuda_access_granted(&v->access, peer);
	r = cuda_check(
	    failure, "cuMemImportFromShareableHandle",
	    v->cu->MemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	if (r < 0)
		return r;
	r = map(v, handle, recipe, m->writable, &pointer, failure);
	v->cu->MemRelease(handle);
	if (r == 0)
		m->address = (void *)(uintptr_t)pointer;
	return r;
}

static int find_host(struct vmm *v, struct failure *failure)
{
	v->access.host = cuda_host_node(v->cu, v->access.owner);
	if (v->access.host.type != CU_MEM_LOCATION_TYPE_INVALID)
		return 0;
	return failure_set(failure, SHARE_ENOTSUP,
			   "this driver does not say that device %d reaches memory of a NUMA node "
			   "of the host: update it",
			   v->access.owner);
}

static int vmm_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
		      struct failure *failure)
{
	struct cuda_relaxed relaxed;
	struct cuda_scope scope;
	struct vmm *v;
	int r;

	v = calloc(1, sizeof(*v));
	if (!v)
		return failure_set(failure, SHARE_ENOMEM, "no memory for a mapping");
	r = cuda_get(&v->cu, failure);
	if (r == 0)
		r = cuda_find_device(v->cu, recipe->device, &v->access.owner, failure);
	if (r == 0 && m->kind->of_host)
		r = find_host(v, failure);
	if (r == 0)
		r = cuda_enter(v->cu, v->access.owner, &scope, failure);
	if (r < 0)
		goto free_v;
	cuda_relax(v->cu, &relaxed);
	r = import_here(v, recipe, fd, m, failure);
	cuda_relax_end(&relaxed);
	if (r < 0) {
		cuda_leave(&scope);
		goto free_v;
	}
	v->primary = cuda_leave_keeping(&scope);
	v->placed = recipe->address != 0;
	cuda_import_attach(&v->import, pointer_of(m), m->size);
	m->ordinal = v->access.owner;
	m->opaque = v;
	return 0;

free_v:
	free(v);
	return r;
}

static int vmm_make_writable(struct memory_mapping *m, int fd, struct failure *failure)
{
	struct vmm *v = m->opaque;
	struct cuda_relaxed relaxed;
	int r;

	(void)fd;
	pthread_mutex_lock(&access_lock);
	cuda_relax(v->cu, &relaxed);
	r = set_access(v, pointer_of(m), m->size, true, failure);
	cuda_relax_end(&relaxed);
	pthread_mutex_unlock(&access_lock);
	return r;
}

static int vmm_reach(struct memory_mapping *m, struct failure *failure)
{
	struct vmm *v = m->opaque;
	struct cuda_relaxed relaxed;
	CUmemAccessDesc access;
	CUdevice peer;
	int r = cuda_access_missing(v->cu, &v->access, &peer, failure);

	if (r <= 0)
		return r;
	pthread_mutex_lock(&access_lock);
	access = cuda_access_describe(peer, m->writable);
	cuda_relax(v->cu, &relaxed);
	r = cuda_check(failure, "cuMemSetAccess",
		       v->cu->MemSetAccess(pointer_of(m), m->size, &access, 1));
	cuda_relax_end(&relaxed);
	if (r == 0)
		cuda_access_granted(&v->access, peer);
	pthread_mutex_unlock(&access_lock);
	return r;
}

/* A call fails here only if the driver is broken or gone, and then the mapping is gone too. */
static void vmm_unmap(struct memory_mapping *m)
{
	struct vmm *v = m->opaque;
	struct cuda_relaxed relaxed;

	cuda_import_detach(&v->import);
	cuda_relax(v->cu, &relaxed);
	v->cu->MemUnmap(pointer_of(m), m->size);
	v->cu->MemAddressFree(pointer_of(m), reservation(m->size, v->placed));
	cuda_relax_end(&relaxed);
	if (v->primary)
		v->cu->DevicePrimaryCtxRelease(v->access.owner);
	free(v);
}

const struct memory_importer memory_vmm_importer = {
    .kind = MEMORY_VMM,
    .import = vmm_import,
    .make_writable = vmm_make_writable,
    .reach = vmm_reach,
    .unmap = vmm_unmap,
};

const struct memory_importer memory_pinned_importer = {
    .kind = MEMORY_PINNED,
    .import = vmm_import,
    .make_writable = vmm_make_writable,
    .reach = vmm_reach,
    .unmap = vmm_unmap,
};
