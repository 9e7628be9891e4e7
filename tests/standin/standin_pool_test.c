/* SPDX-License-Identifier: MIT */

/*
 * The stand-in driver's memory pools: what an importer may do with them, and when their memory goes
 * back.
 */

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "tests/standin/peer.h"

#define SIZE (4 * MIB)
#define READ CU_MEM_ACCESS_FLAGS_PROT_READ
#define FD   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

TestSuite(standin_pool, .timeout = 60);

/* Imports, shows byte 7, and answers with what may not be done. */
static void import_pool(int channel)
{
	CUmemAccessDesc readonly = access_for(0, READ);
	CUmemPoolPtrExportData data;
	CUdeviceptr p, again, own;
	CUmemoryPool pool;
	struct packet m;
	char byte;
	int fd;

	use_context();
	peer_receive(channel, &m, &fd);
	memcpy(&data, m.bytes, sizeof(data));
	MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, FD, 0));
	MUST(cuMemPoolImportPointer(&p, pool, &data));
	CHECK(byte_at(p) == 7);
	CHECK_RESULT(cuMemAllocFromPoolAsync(&own, SIZE, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemPoolExportPointer(&data, p), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemPoolSetAccess(pool, &readonly, 1), CUDA_ERROR_NOT_SUPPORTED);
	memcpy(&data, m.bytes, sizeof(data));
	MUST(cuMemPoolImportPointer(&again, pool, &data));
	CHECK(again == p);
	peer_send(channel, &m, -1);
	peer_receive(channel, &m, NULL);
	/* the first free is the last: the driver's reported fault */
	MUST(cuMemFreeAsync(p, NULL));
	MUST(cuStreamSynchronize(NULL));
	CHECK_RESULT(cuMemcpyDtoH(&byte, again, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_RESULT(cuMemFreeAsync(again, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemPoolDestroy(pool));
	close(fd);
	peer_send(channel, &m, -1);
}

Test(standin_pool, a_pool_is_imported_with_the_drivers_rules)
{
	CUmemPoolPtrExportData data;
	struct packet m = {0};
	CUmemoryPool pool;
	struct peer p;
	CUdeviceptr a;
	int fd;

	standin_configure("");
	p = peer_start(import_pool);
	use_context();
	pool = pool_create(0);
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	set_byte(a, 7);
	CHECK_RESULT(cuMemPoolExportPointer(&data, a), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0));
	MUST(cuMemPoolExportPointer(&data, a));
	memcpy(m.bytes, &data, sizeof(data));
	peer_send(p.channel, &m, fd);
	peer_receive(p.channel, &m, NULL);
	peer_send(p.channel, &m, -1);
	peer_receive(p.channel, &m, NULL);
	peer_finish(&p);
	CHECK(byte_at(a) == 7);
}

Test(standin_pool, a_pool_returns_its_memory_only_at_its_very_end)
{
	cuuint64_t used, reserved;
	CUmemoryPool pool;
	uint64_t before;
	CUdeviceptr a;
	int fd;

	standin_configure("");
	use_context();
	before = device_free();
	pool = pool_create(0);
	MUST(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0));
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	CHECK(device_free() == before - SIZE);
	MUST(cuMemFreeAsync(a, NULL));
	MUST(cuStreamSynchronize(NULL));
	MUST(cuMemPoolTrimTo(pool, 0));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK(used == 0 && reserved == SIZE);
	CHECK(device_free() == before - SIZE);
	MUST(cuMemPoolDestroy(pool));
	CHECK_RESULT(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	CHECK(device_free() == before - SIZE);
	close(fd);
	CHECK(device_free() == before);
}

Test(standin_pool, a_destroyed_pool_lives_as_long_as_its_last_block)
{
	CUmemoryPool pool;
	uint64_t before;
	CUdeviceptr a;

	standin_configure("");
	use_context();
	before = device_free();
	pool = pool_create(0);
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	MUST(cuMemPoolDestroy(pool));
	set_byte(a, 1);
	CHECK(byte_at(a) == 1);
	MUST(cuMemFreeAsync(a, NULL));
	MUST(cuStreamSynchronize(NULL));
	CHECK(device_free() == before);
}

Test(standin_pool, a_pool_grows_to_its_limit_and_uses_blocks_again)
{
	CUdeviceptr a, b, c;
	CUmemoryPool pool;
	uint64_t before;

	standin_configure("");
	use_context();
	pool = pool_create(2 * SIZE);
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	MUST(cuMemAllocFromPoolAsync(&b, SIZE, pool, NULL));
	CHECK_RESULT(cuMemAllocFromPoolAsync(&c, SIZE, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	before = device_free();
	MUST(cuMemFreeAsync(a, NULL));
	MUST(cuStreamSynchronize(NULL));
	MUST(cuMemAllocFromPoolAsync(&c, SIZE, pool, NULL));
	CHECK(device_free() == before);
	set_byte(c, 1);
	set_byte(b, 2);
	CHECK(byte_at(c) == 1 && byte_at(b) == 2);
}

static void keep_pool(int channel)
{
	CUmemPoolPtrExportData data;
	struct packet m = {0};
	CUmemoryPool pool;
	CUdeviceptr a;
	int fd;

	use_context();
	pool = pool_create(0);
	MUST(cuMemAllocFromPoolAsync(&a, SIZE, pool, NULL));
	set_byte(a, 9);
	MUST(cuMemPoolExportToShareableHandle(&fd, pool, FD, 0));
	MUST(cuMemPoolExportPointer(&data, a));
	memcpy(m.bytes, &data, sizeof(data));
	peer_send(channel, &m, fd);
	peer_receive(channel, &m, NULL);
}

Test(standin_pool, a_killed_exporters_pool_can_be_imported_later)
{
	CUmemPoolPtrExportData data;
	struct packet m;
	CUmemoryPool pool;
	uint64_t before;
	struct peer p;
	CUdeviceptr a;
	int fd;

	standin_configure("");
	p = peer_start(keep_pool);
	use_context();
	peer_receive(p.channel, &m, &fd);
	peer_kill(&p);
	memcpy(&data, m.bytes, sizeof(data));
	before = device_free();
	MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, FD, 0));
	MUST(cuMemPoolImportPointer(&a, pool, &data));
	CHECK(byte_at(a) == 9);
	close(fd);
	MUST(cuMemFree(a)); /* instead of cuMemFreeAsync() */
	CHECK_RESULT(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemPoolDestroy(pool));
	CHECK(device_free() == before + SIZE);
}
