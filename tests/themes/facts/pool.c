/* SPDX-License-Identifier: MIT */

/*
 * Facts about memory pools that cross processes: the order of exports, the size of a block, what an
 * importer may do, who keeps the memory and when it goes back to the device.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define SMALL (64 * MIB)

/* value[0]: bytes. Then each question is a step: see below. */
enum step { STEP_FREE_BLOCK = 1, STEP_TRIM, STEP_DESTROY };

static void exporter(int channel)
{
	CUmemPoolProps properties = pool_properties();
	CUmemPoolPtrExportData data;
	struct message m;
	CUmemoryPool pool;
	CUdeviceptr p;
	uint64_t size;
	int fd;

	use_context();
	hear(channel, &m, NULL);
	size = m.value[0];
	MUST(MemPoolCreate(&pool, &properties));
	MUST(MemAllocFromPoolAsync(&p, size, pool, NULL));
	must(fill(p, 0x33, size), "fill");
	m.value[1] = cu.MemPoolExportPointer(&data, p);
	MUST(MemPoolExport(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(MemPoolExportPointer(&data, p));
	memcpy(m.bytes, &data, sizeof(data));
	tell(channel, &m, fd);
	close(fd);
	for (;;) {
		hear(channel, &m, NULL);
		switch (m.value[0]) {
		case STEP_FREE_BLOCK:
			MUST(MemFreeAsync(p, NULL));
			MUST(StreamSynchronize(NULL));
			break;
		case STEP_TRIM:
			MUST(MemPoolTrimTo(pool, 0));
			break;
		default:
			MUST(MemPoolDestroy(pool));
			break;
		}
		tell(channel, &m, -1);
	}
}

/* What an importer finds, in m.value. */
enum finding {
	FOUND_POOL,      /* result of the import of the pool, */
	FOUND_POINTER,   /* of its pointer, */
	FOUND_AGAIN,     /* of the same pointer again: its address is the same */
	FOUND_DATA,      /* 1: the bytes are there */
	FOUND_ALLOC,     /* result of an allocation from the imported pool, */
	FOUND_READONLY,  /* of access for reading only, */
	FOUND_TYPE,      /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
	FOUND_AFTER_FREE /* 1: the second address still works after the first was freed */
};

static CUresult import(int fd, const unsigned char bytes[64], CUmemoryPool *pool, CUdeviceptr *p,
		       struct message *m)
{
	CUmemPoolPtrExportData data;

	memcpy(&data, bytes, sizeof(data));
	m->value[FOUND_POOL] = cu.MemPoolImport(pool, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (m->value[FOUND_POOL] == CUDA_SUCCESS)
		m->value[FOUND_POINTER] = cu.MemPoolImportPointer(p, *pool, &data);
	return m->value[FOUND_POOL] ? (CUresult)m->value[FOUND_POOL]
				    : (CUresult)m->value[FOUND_POINTER];
}

/* value[0]: bytes. Reports, then lets go of all when asked. */
static void importer(int channel)
{
	CUmemAccessDesc readonly = access_for(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	struct message m, found = {0};
	CUmemoryPool pool;
	CUdeviceptr p, own;
	unsigned type = 0;
	int fd;

	use_context();
	hear(channel, &m, &fd);
	if (import(fd, m.bytes, &pool, &p, &found) == CUDA_SUCCESS) {
		found.value[FOUND_DATA] = holds(p, 0x33, m.value[0]);
		found.value[FOUND_ALLOC] = cu.MemAllocFromPoolAsync(&own, MIB, pool, NULL);
		found.value[FOUND_READONLY] = cu.MemPoolSetAccess(pool, &readonly, 1);
		MUST(PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
		found.value[FOUND_TYPE] = type;
	}
	close(fd);
	tell(channel, &found, -1);
	hear(channel, &m, NULL);
	MUST(MemFreeAsync(p, NULL));
	MUST(StreamSynchronize(NULL));
	MUST(MemPoolDestroy(pool));
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void check_found(const struct message *found, const char *when)
{
	if (found->value[FOUND_POOL] || found->value[FOUND_POINTER])
		failed("%s: pool %s, pointer %s", when,
		       error_name((CUresult)found->value[FOUND_POOL]),
		       error_name((CUresult)found->value[FOUND_POINTER]));
	if (!found->value[FOUND_DATA])
		failed("%s: the data is not there", when);
}

static void export_and_import(void)
{
	struct role e = role_start("pool-exporter", NULL), i = role_start("pool-importer", NULL);
	uint64_t size = 4096 * MIB;
	struct message m = {0};
	uint64_t before;
	int fd;

	use_context();
	before = device_free();
	if (before < 3 * size)
		size = SMALL;
	m.value[0] = size;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	if (m.value[1] != CUDA_ERROR_INVALID_VALUE)
		failed("a pointer exported before the pool's descriptor: %s",
		       error_name((CUresult)m.value[1]));
	m.value[0] = size;
	ask(i.channel, &m, fd);
	check_found(&m, "import");
	if (m.value[FOUND_ALLOC] != CUDA_ERROR_INVALID_VALUE)
		failed("allocating from an imported pool: %s",
		       error_name((CUresult)m.value[FOUND_ALLOC]));
	if (m.value[FOUND_READONLY] == CUDA_SUCCESS)
		failed("an imported pool can be read-only after all");
	if (m.value[FOUND_TYPE] != CU_MEMORYTYPE_DEVICE)
		failed("memory type %lu", (unsigned long)m.value[FOUND_TYPE]);
	ok("descriptor before pointer; %lu MiB imported; no allocation from an imported pool; "
	   "reading only: %s",
	   (unsigned long)(size / MIB), error_name((CUresult)m.value[FOUND_READONLY]));
}

static void memory_comes_back_at_the_end(void)
{
	struct role e = role_start("pool-exporter", NULL), i = role_start("pool-importer", NULL);
	uint64_t before, made, freed, trimmed, destroyed, last;
	struct message m = {0};
	int fd;

	use_context();
	/* both contexts are there before we look: a step of each */
	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	m.value[0] = SMALL;
	ask(i.channel, &m, fd);
	check_found(&m, "import");
	made = device_free();
	ask(i.channel, &m, -1); /* the importer lets go */
	m.value[0] = STEP_FREE_BLOCK;
	ask(e.channel, &m, -1);
	freed = device_free();
	m.value[0] = STEP_TRIM;
	ask(e.channel, &m, -1);
	trimmed = device_free();
	m.value[0] = STEP_DESTROY;
	ask(e.channel, &m, -1);
	destroyed = device_free();
	close(fd);
	before = made + SMALL;
	last = device_free_reaches(before);
	if (last < before)
		failed("%ld KiB of %lu never came back", ((long)before - (long)last) / 1024,
		       (unsigned long)SMALL / 1024);
	ok("of %lu KiB back: %ld after free, %ld after trim, %ld after the exporter destroyed the "
	   "pool, %ld after the descriptor was closed",
	   (unsigned long)SMALL / 1024, ((long)freed - (long)made) / 1024,
	   ((long)trimmed - (long)made) / 1024, ((long)destroyed - (long)made) / 1024,
	   ((long)last - (long)made) / 1024);
}

static void exporter_killed(void)
{
	struct role e = role_start("pool-exporter", NULL), i = role_start("pool-importer", NULL),
		    late = role_start("pool-importer", NULL);
	unsigned char data[64];
	struct message m = {0};
	uint64_t made, last;
	int fd;

	use_context();
	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	memcpy(data, m.bytes, sizeof(data));
	m.value[0] = SMALL;
	ask(i.channel, &m, fd);
	check_found(&m, "import before the exporter's death");
	role_kill(&e);
	ask(i.channel, &m, -1); /* lets go: only our descriptor is left */
	m.value[0] = SMALL;
	memcpy(m.bytes, data, sizeof(data));
	ask(late.channel, &m, fd);
	check_found(&m, "first import after the exporter's death");
	made = device_free();
	close(fd);
	ask(late.channel, &m, -1);
	last = device_free_reaches(made + SMALL);
	if (last < made + SMALL)
		failed("%ld of %lu KiB came back", ((long)last - (long)made) / 1024,
		       (unsigned long)SMALL / 1024);
	ok("imported after the exporter was killed, data intact; all back after the last import");
}

static void exporter_destroyed(void)
{
	struct role e = role_start("pool-exporter", NULL), i = role_start("pool-importer", NULL);
	unsigned char data[64];
	struct message m = {0};
	const char *trouble;
	int fd;

	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	memcpy(data, m.bytes, sizeof(data));
	m.value[0] = STEP_FREE_BLOCK;
	ask(e.channel, &m, -1);
	m.value[0] = STEP_DESTROY;
	ask(e.channel, &m, -1);
	m.value[0] = SMALL;
	memcpy(m.bytes, data, sizeof(data));
	trouble = try(i.channel, &m, fd, 5000);
	use_driver();
	if (trouble)
		ok("(report) after the exporter freed the block and destroyed the pool: the "
		   "importer %s",
		   trouble);
	ok("(report) after the exporter freed the block and destroyed the pool: pool %s, pointer "
	   "%s, data %s",
	   error_name((CUresult)m.value[FOUND_POOL]), error_name((CUresult)m.value[FOUND_POINTER]),
	   m.value[FOUND_DATA] ? "there" : "not there");
}

/* value[0]: 0 no context at all, 1 one retained and not current. */
static void lonely_importer(int channel)
{
	struct message m, found = {0};
	CUmemoryPool pool;
	CUcontext context;
	CUdeviceptr p;
	int fd;

	use_driver();
	hear(channel, &m, &fd);
	if (m.value[0])
		MUST(DevicePrimaryCtxRetain(&context, 0));
	import(fd, m.bytes, &pool, &p, &found);
	tell(channel, &found, -1);
	hear(channel, &m, NULL);
}

static void import_without_context(void)
{
	struct role e = role_start("pool-exporter", NULL),
		    none = role_start("pool-lonely-importer", NULL),
		    retained = role_start("pool-lonely-importer", NULL);
	struct message m = {0}, first, second;
	const char *trouble, *trouble_too;
	int fd;

	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	first = second = m;
	first.value[0] = 0;
	second.value[0] = 1;
	trouble = try(none.channel, &first, fd, 5000);
	trouble_too = try(retained.channel, &second, fd, 5000);
	use_driver();
	ok("(report) without a context: pool %s, pointer %s; with one that is not current: pool "
	   "%s, pointer %s",
	   trouble ? trouble : error_name((CUresult)first.value[FOUND_POOL]),
	   trouble ? trouble : error_name((CUresult)first.value[FOUND_POINTER]),
	   trouble_too ? trouble_too : error_name((CUresult)second.value[FOUND_POOL]),
	   trouble_too ? trouble_too : error_name((CUresult)second.value[FOUND_POINTER]));
}

static void double_importer(int channel)
{
	CUmemPoolPtrExportData data;
	struct message m, found = {0};
	CUmemoryPool pool;
	CUdeviceptr p, again = 0;
	char byte;
	int fd;

	use_context();
	hear(channel, &m, &fd);
	must(import(fd, m.bytes, &pool, &p, &found), "import");
	memcpy(&data, m.bytes, sizeof(data));
	found.value[FOUND_AGAIN] = cu.MemPoolImportPointer(&again, pool, &data);
	found.value[FOUND_DATA] = again == p;
	tell(channel, &found, -1);
	hear(channel, &m, NULL);
	MUST(MemFreeAsync(p, NULL));
	MUST(StreamSynchronize(NULL));
	found.value[FOUND_AFTER_FREE] = cu.MemcpyDtoH(&byte, again, 1);
	tell(channel, &found, -1);
	hear(channel, &m, NULL);
}

static void imported_twice(void)
{
	struct role e = role_start("pool-exporter", NULL),
		    i = role_start("pool-double-importer", NULL);
	struct message m = {0};
	const char *trouble;
	int fd;

	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	ask(i.channel, &m, fd);
	use_driver();
	if (m.value[FOUND_AGAIN] != CUDA_SUCCESS || !m.value[FOUND_DATA])
		failed("the second import: %s, %s address",
		       error_name((CUresult)m.value[FOUND_AGAIN]),
		       m.value[FOUND_DATA] ? "the same" : "another");
	trouble = try(i.channel, &m, -1, 5000);
	ok("same address; after one free a copy from it: %s",
	   trouble ? trouble : error_name((CUresult)m.value[FOUND_AFTER_FREE]));
}

/* ---- another GPU ---- */

static void importer_elsewhere(int channel)
{
	CUmemAccessDesc access = access_for(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	struct message m, found = {0};
	CUmemoryPool pool;
	CUcontext context;
	CUdeviceptr p;
	int fd;

	hear(channel, &m, &fd);
	use_driver();
	MUST(DevicePrimaryCtxRetain(&context, 1));
	MUST(CtxSetCurrent(context));
	must(import(fd, m.bytes, &pool, &p, &found), "import");
	must(cu.MemPoolSetAccess(pool, &access, 1), "cuMemPoolSetAccess");
	found.value[FOUND_DATA] = holds(p, 0x33, m.value[0]);
	tell(channel, &found, -1);
	hear(channel, &m, NULL);
}

static void other_gpu(void)
{
	struct role e = role_start("pool-exporter", NULL),
		    i = role_start("pool-importer-elsewhere", NULL);
	struct message m = {0};
	int devices, can = 0, fd;

	use_driver();
	MUST(DeviceGetCount(&devices));
	if (devices < 2)
		skipped("one GPU");
	MUST(DeviceCanAccessPeer(&can, 1, 0));
	if (!can)
		skipped("GPU 1 cannot reach GPU 0");
	m.value[0] = SMALL;
	tell(e.channel, &m, -1);
	hear(e.channel, &m, &fd);
	m.value[0] = SMALL;
	ask(i.channel, &m, fd);
	check_found(&m, "import for GPU 1");
	ok("GPU 1 reads an imported pool of GPU 0 once its access is set");
}

const struct fact pool_facts[] = {
    {"pool_export_and_import", export_and_import},
    {"pool_memory_comes_back_at_the_end", memory_comes_back_at_the_end},
    {"pool_outlives_its_killed_exporter", exporter_killed},
    {"pool_destroyed_and_imported_later", exporter_destroyed},
    {"pool_imported_without_a_current_context", import_without_context},
    {"pool_pointer_imported_twice", imported_twice},
    {"pool_from_another_gpu", other_gpu},
    {NULL, NULL},
};

const struct play pool_plays[] = {
    {"pool-exporter", exporter},
    {"pool-importer", importer},
    {"pool-lonely-importer", lonely_importer},
    {"pool-double-importer", double_importer},
    {"pool-importer-elsewhere", importer_elsewhere},
    {NULL, NULL},
};
