/* SPDX-License-Identifier: MIT */

/*
 * Recipes in the hands of a program that has no library of ours: it asks the broker for a buffer
 * and its recipe, and gets at the memory with CUDA's own calls. This process does not use the
 * driver itself.
 */

#include <string.h>
#include <unistd.h>

#include "memory/cuda/driver.h"
#include "tests/harness/raw.h"
#include "tests/themes/pools/conformance.h"

TestSuite(conformance, .timeout = 120);

struct reached {
	CUdeviceptr pointer;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
};

static void reach_vmm(const struct cuda *cu, int fd, const struct memory_recipe *recipe,
		      CUdevice device, struct reached *out)
{
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	check(cu->MemImportFromShareableHandle(&out->handle, (void *)(uintptr_t)fd,
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
	      CUDA_SUCCESS);
	check(cu->MemAddressReserve(&out->pointer, recipe->size, 0, 0, 0) == CUDA_SUCCESS);
	check(cu->MemMap(out->pointer, recipe->size, 0, out->handle, 0) == CUDA_SUCCESS);
	check(cu->MemSetAccess(out->pointer, recipe->size, &access, 1) == CUDA_SUCCESS);
}

static void leave_vmm(const struct cuda *cu, const struct memory_recipe *recipe,
		      const struct reached *r)
{
	check(cu->MemUnmap(r->pointer, recipe->size) == CUDA_SUCCESS);
	check(cu->MemAddressFree(r->pointer, recipe->size) == CUDA_SUCCESS);
	check(cu->MemRelease(r->handle) == CUDA_SUCCESS);
}

static void reach_mempool(const struct cuda *cu, int fd, const struct memory_recipe *recipe,
			  struct reached *out)
{
	CUmemPoolPtrExportData data;

	memcpy(&data, recipe->pointer, sizeof(data));
	check(cu->MemPoolImportFromShareableHandle(&out->pool, (void *)(uintptr_t)fd,
						   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						   0) == CUDA_SUCCESS);
	check(cu->MemPoolImportPointer(&out->pointer, out->pool, &data) == CUDA_SUCCESS);
}

static void leave_mempool(const struct cuda *cu, const struct reached *r)
{
	check(cu->MemFreeAsync(r->pointer, NULL) == CUDA_SUCCESS);
	check(cu->StreamSynchronize(NULL) == CUDA_SUCCESS);
	check(cu->MemPoolDestroy(r->pool) == CUDA_SUCCESS);
}

static CUdevice enter(const struct cuda **cu, const struct memory_recipe *recipe)
{
	struct failure failure;
	CUcontext context;
	CUdevice device;

	check_ok(cuda_get(cu, &failure));
	check_ok(cuda_find_device(*cu, recipe->device, &device, &failure));
	check((*cu)->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check((*cu)->CtxPushCurrent(context) == CUDA_SUCCESS);
	return device;
}

/* The recipe of "name", which this process then holds. */
static uint64_t ask(struct raw *r, struct memory_recipe *recipe, uint64_t *offset, int *fd)
{
	struct wire_message lookup = {.type = WIRE_LOOKUP}, get = {.type = WIRE_RECIPE_GET};
	uint64_t id;

	lookup.lookup.mode = SHARE_RDWR;
	lookup.lookup.name = raw_text("name");
	raw_ask(r, &lookup, WIRE_GRANT);
	id = r->m.grant.buffer;
	get.recipe_get.buffer = id;
	raw_ask(r, &get, WIRE_RECIPE);
	check_eq(r->m.recipe.recipe.size, sizeof(*recipe));
	memcpy(recipe, r->m.recipe.recipe.data, sizeof(*recipe));
	*offset = r->m.recipe.offset;
	*fd = fd_list_take(&r->fds, 0);
	check(*fd >= 0);
	return id;
}

static void reach_legacy(const struct cuda *cu, const struct memory_recipe *recipe,
			 struct reached *out)
{
	CUipcMemHandle handle;

	memcpy(&handle, recipe->pointer, sizeof(handle));
	check(cu->IpcOpenMemHandle(&out->pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
	      CUDA_SUCCESS);
}

static void leave_legacy(const struct cuda *cu, const struct reached *r)
{
	check(cu->IpcCloseMemHandle(r->pointer) == CUDA_SUCCESS);
}

static void uses_plain_cuda(struct child *self, void *data)
{
	bool vmm = strcmp(data, "vmm") == 0 || strcmp(data, "pinned") == 0,
	     legacy = strcmp(data, "legacy") == 0;
	struct wire_message release = {.type = WIRE_RELEASE};
	struct memory_recipe recipe;
	struct reached reached;
	const struct cuda *cu;
	uint64_t offset, id;
	char text[16] = "";
	CUdevice device;
	struct raw r;
	int fd;

	child_point(self, "ready");
	raw_open(&r, "plain");
	id = ask(&r, &recipe, &offset, &fd);
	device = enter(&cu, &recipe);
	if (vmm)
		reach_vmm(cu, fd, &recipe, device, &reached);
	else if (legacy)
		reach_legacy(cu, &recipe, &reached);
	else
		reach_mempool(cu, fd, &recipe, &reached);
	close(fd);
	check(cu->MemcpyDtoHAsync(text, reached.pointer + offset, 9, NULL) == CUDA_SUCCESS);
	check(cu->StreamSynchronize(NULL) == CUDA_SUCCESS);
	check(strcmp(text, "question") == 0);
	check(cu->MemcpyHtoDAsync(reached.pointer + offset, "answer", 7, NULL) == CUDA_SUCCESS);
	check(cu->StreamSynchronize(NULL) == CUDA_SUCCESS);
	if (vmm)
		leave_vmm(cu, &recipe, &reached);
	else if (legacy)
		leave_legacy(cu, &reached);
	else
		leave_mempool(cu, &reached);
	release.release.buffer = id;
	release.release.count = 1;
	raw_ask(&r, &release, WIRE_DONE);
	raw_request(&r, &(struct wire_message){.type = WIRE_BYE});
	raw_close(&r);
}

ConformanceTest(a_recipe_is_enough_for_plain_cuda)
{
	struct child *child;
	share_client *c;
	share_buffer *b, *first;
	share_pool *p;

	if (is_host(kind))
		cr_skip_test("host memory needs no CUDA");
	child = child_start(uses_plain_cuda, (void *)(uintptr_t)kind);
	c = connect_as("test");
	p = conformance_pool(c, kind, OPTIONS);
	first = allocate(p, 5000, NULL);
	b = allocate(p, 5000, NULL);
	buffer_write(b, "question");
	check_ok(share_publish(b, "name", NULL));
	child_wait(child, "ready");
	child_go(child);
	child_finish(child);
	check(buffer_reads(b, "answer"));
	check_ok(share_unpublish(c, "name"));
	check_ok(share_release(first, NULL));
	check_ok(share_release(b, NULL));
	settle(c, s.leases == 0);
	share_pool_close(p);
	share_disconnect(c);
}
