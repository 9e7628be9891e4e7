/* SPDX-License-Identifier: MIT */

/*
 * Facts about streams: what outlives one that is destroyed, how many can be made while others stand
 * still, and what is true of a value that the GPU of a killed process has written.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define PAGE 4096

static _Atomic uint64_t *map_page(int fd, CUdeviceptr *address)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			  fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		failed("mmap: %s", strerror(errno));
	if (address) {
		MUST(MemHostRegister(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
		MUST(MemHostGetDevicePointer(address, page, 0));
	}
	return page;
}

/*
 * Blocks that are kept for their stream carry an event, and not the stream's handle, with which
 * nothing may be called once the stream is destroyed.
 */
static void event_and_destroyed_stream(void)
{
	_Atomic uint64_t *page;
	CUdeviceptr address;
	CUstream first, second;
	CUevent event;

	use_context();
	page = map_page(-1, &address);
	MUST(StreamCreate(&first, CU_STREAM_NON_BLOCKING));
	MUST(StreamCreate(&second, CU_STREAM_NON_BLOCKING));
	MUST(EventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(StreamWaitValue64(first, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
	MUST(StreamWriteValue64(first, address + 8, 1, 0));
	MUST(EventRecord(event, first));
	MUST(StreamDestroy(first));
	MUST(StreamWaitEvent(second, event, 0));
	MUST(StreamWriteValue64(second, address + 16, 1, 0));
	if (settles(second, 100))
		failed("a wait ended before the destroyed stream had done its work");
	page[0] = 1;
	if (!settles(second, 3000))
		failed("a wait for an event of a destroyed stream does not end");
	if (page[1] != 1 || page[2] != 1)
		failed("the destroyed stream has not done its work");
	ok("its event completes with its work, and can be waited for");
}

/* With 35 there, making another one waits until none is parked (seen, not shown here). */
static void made_while_parked(void)
{
	enum { PARKED = 4, ALL = 32 };
	_Atomic uint64_t *page;
	CUstream streams[ALL];
	CUdeviceptr address;

	use_context();
	page = map_page(-1, &address);
	for (int i = 0; i < ALL; i++) {
		MUST(StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		if (i < PARKED)
			MUST(StreamWaitValue64(streams[i], address, 1, CU_STREAM_WAIT_VALUE_GEQ));
	}
	if (settles(streams[0], 0))
		failed("the first is not parked");
	page[0] = 1;
	ok("%d, with %d of them parked", ALL, PARKED);
}

/* ---- the last value of a killed process ---- */

#define SIZE   (256 * MIB)
#define FILLS  900
#define TRIES  20
#define SAMPLE 64

/* Fills shared memory again and again, behind all of which it writes a value. To be killed. */
static void late_writer(int channel)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory, address;
	struct message m;
	CUstream stream;
	int fd;

	use_context();
	hear(channel, &m, &fd);
	handle = vmm_import(fd);
	memory = vmm_map(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	hear(channel, &m, &fd);
	map_page(fd, &address);
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < FILLS; i++)
		MUST(MemsetD8Async(memory, (unsigned char)(i + 1), SIZE, stream));
	MUST(StreamWriteValue64(stream, address, 1, 0));
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void look(CUdeviceptr memory, unsigned char out[SAMPLE])
{
	for (uint64_t i = 0; i < SAMPLE; i++)
		MUST(MemcpyDtoH(out + i, memory + i * (SIZE / SAMPLE), 1));
}

/* Whether its value was there, though not all of its work was done. */
static bool is_seen_late(CUdeviceptr memory, int memory_fd)
{
	int fd = memfd_create("gpu-facts", MFD_CLOEXEC);
	unsigned char then[SAMPLE], later[SAMPLE], last = (unsigned char)FILLS;
	struct role r = role_start("late-writer", NULL);
	struct message m = {0};
	_Atomic uint64_t *page;
	bool seen;

	if (fd < 0 || ftruncate(fd, PAGE) != 0)
		failed("memfd_create: %s", strerror(errno));
	page = map_page(fd, NULL);
	tell(r.channel, &m, memory_fd);
	ask(r.channel, &m, fd);
	role_kill(&r);
	/* dead, as its pidfd would say */
	seen = page[0] == 1;
	look(memory, then);
	for (int i = 0; i < 50; i++)
		a_moment();
	look(memory, later);
	if (memcmp(then, later, SAMPLE) != 0)
		failed("memory still changes after the death of who wrote it");
	munmap((void *)(uintptr_t)page, PAGE);
	close(fd);
	return seen && then[SAMPLE - 1] != last;
}

static void value_of_the_killed(void)
{
	CUmemAllocationProp properties = vmm_properties();
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory;
	unsigned late = 0;
	int fd;

	use_context();
	MUST(MemCreate(&handle, SIZE, &properties, 0));
	MUST(MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	memory = vmm_map(handle, SIZE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	for (int i = 0; i < TRIES; i++)
		late += is_seen_late(memory, fd);
	ok("once it is dead its memory stays as it is; in %u of %d tries the value was there and "
	   "the work before it was not done",
	   late, TRIES);
}

const struct fact stream_facts[] = {
    {"event_outlives_its_stream", event_and_destroyed_stream},
    {"streams_made_while_some_are_parked", made_while_parked},
    {"memory_of_a_killed_process_is_still", value_of_the_killed},
    {NULL, NULL},
};

const struct play stream_plays[] = {
    {"late-writer", late_writer},
    {NULL, NULL},
};
