/* SPDX-License-Identifier: MIT */

/*
 * Facts about 64-bit values that streams write and wait for, in pages shared between processes, and
 * about streams that are parked in such waits.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/themes/facts/gpu.h"

#define PAGE 4096

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum step { STEP_WAIT = 1, STEP_SETTLED, STEP_WRITE };

static void *map(int fd, int protection)
{
	return mmap(NULL, PAGE, protection, MAP_SHARED, fd, 0);
}

static CUdeviceptr use_page(void *page, unsigned flags)
{
	CUdeviceptr address;

	MUST(MemHostRegister(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP | flags));
	MUST(MemHostGetDevicePointer(&address, page, 0));
	return address;
}

/* Has the page for reading only. value[0]: the step, value[1]: the value; result: what came. */
static void peer(int channel)
{
	CUdeviceptr address;
	struct message m;
	CUstream stream;
	int fd;

	hear(channel, &m, &fd);
	if (map(fd, PROT_READ | PROT_WRITE) != MAP_FAILED || errno != EPERM)
		failed("a sealed page can be mapped for writing");
	use_context();
	address = use_page(map(fd, PROT_READ), CU_MEMHOSTREGISTER_READ_ONLY);
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	tell(channel, &m, -1);
	for (;;) {
		CUresult result = CUDA_SUCCESS;

		hear(channel, &m, NULL);
		if (m.value[0] == STEP_WAIT) {
			result = cu.StreamWaitValue64(stream, address, m.value[1],
						      CU_STREAM_WAIT_VALUE_GEQ);
		} else if (m.value[0] == STEP_SETTLED) {
			result =
			    settles(stream, (int)m.value[1]) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		} else {
			result = cu.StreamWriteValue64(stream, address, m.value[1], 0);
			m.value[0] = result;
			result = cu.StreamSynchronize(stream);
		}
		m.result = (int32_t)result;
		tell(channel, &m, -1);
	}
}

static CUresult step(struct role *r, enum step what, uint64_t value)
{
	struct message m = {.value = {what, value}};

	ask(r->channel, &m, -1);
	return (CUresult)m.result;
}

static void sealed_page(void)
{
	struct role p = role_start("value-peer", NULL);
	int fd = memfd_create("gpu-facts", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	_Atomic uint64_t *page;
	struct message m = {0};
	CUdeviceptr address;
	CUstream stream;
	CUresult offence;

	if (fd < 0 || ftruncate(fd, PAGE) != 0)
		failed("memfd_create: %s", strerror(errno));
	page = map(fd, PROT_READ | PROT_WRITE);
	if (page == MAP_FAILED ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0)
		failed("sealing: %s", strerror(errno));
	use_context();
	address = use_page((void *)(uintptr_t)page, 0);
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ask(p.channel, &m, fd);

	must(step(&p, STEP_WAIT, 5), "cuStreamWaitValue64 on a read-only registration");
	if (step(&p, STEP_SETTLED, 50) != CUDA_ERROR_NOT_READY)
		failed("a wait for 5 ended at 0");
	MUST(StreamWriteValue64(stream, address, 5, 0));
	must(step(&p, STEP_SETTLED, 3000), "after the owner's GPU wrote 5, the peer's wait");

	must(step(&p, STEP_WAIT, 9), "cuStreamWaitValue64");
	*page = 9;
	must(step(&p, STEP_SETTLED, 3000), "after a store by a CPU, the peer's wait");

	must(step(&p, STEP_WAIT, 12), "cuStreamWaitValue64");
	*page = UINT64_C(1) << 62;
	must(step(&p, STEP_SETTLED, 3000), "after a store of 2^62, the peer's wait");

	/* far behind, the signed way: 2^63 + 20 is before 12 */
	*page = (UINT64_C(1) << 63) + 20;
	must(step(&p, STEP_WAIT, 12), "cuStreamWaitValue64");
	if (step(&p, STEP_SETTLED, 50) != CUDA_ERROR_NOT_READY)
		failed("the comparison is not cyclic");
	*page = 12;
	must(step(&p, STEP_SETTLED, 3000), "after a store of 12, the peer's wait");

	offence = step(&p, STEP_WRITE, 99);
	if (offence == CUDA_SUCCESS || *page != 12)
		failed("a GPU write through the read-only registration: %s, the page says %lu",
		       error_name(offence), (unsigned long)*page);
	MUST(StreamWriteValue64(stream, address, 13, 0));
	MUST(StreamSynchronize(stream));
	ok("GPU write and CPU store release the peer's wait; comparison cyclic; the peer's GPU "
	   "write: %s, in the peer only",
	   error_name(offence));
}

/* ---- capture ---- */

static CUstream capturing(CUstreamCaptureMode mode)
{
	CUstream stream;

	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(StreamBeginCapture(stream, mode));
	return stream;
}

static void *new_page(void)
{
	return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* What else may be called meanwhile: capture.c. */
static void inside_capture(void)
{
	CUresult write, wait, end_write, end_wait, synchronise;
	CUdeviceptr address;
	CUgraph graph;
	CUstream s;

	use_context();
	address = use_page(new_page(), 0);
	s = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	write = cu.StreamWriteValue64(s, address, 1, 0);
	end_write = cu.StreamEndCapture(s, &graph);
	s = capturing(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	wait = cu.StreamWaitValue64(s, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
	end_wait = cu.StreamEndCapture(s, &graph);
	s = capturing(CU_STREAM_CAPTURE_MODE_GLOBAL);
	synchronise = cu.StreamSynchronize(s);
	ok("(report) write value: %s (end %s); wait value: %s (end %s); synchronise the stream: %s",
	   error_name(write), error_name(end_write), error_name(wait), error_name(end_wait),
	   error_name(synchronise));
}

/* ---- parked streams ---- */

#define CONNECTIONS 8
#define CROWD       24

struct parking {
	_Atomic uint64_t *page;
	CUdeviceptr address, memory;
	CUstream parked[CONNECTIONS], other;
	unsigned count;
};

static void park(struct parking *p)
{
	CUstream *stream = &p->parked[p->count++];

	MUST(StreamCreate(stream, CU_STREAM_NON_BLOCKING));
	MUST(StreamWaitValue64(*stream, p->address, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static bool other_runs(struct parking *p, int milliseconds)
{
	MUST(MemsetD8Async(p->memory, 2, MIB, p->other));
	return settles(p->other, milliseconds);
}

static void begin_parking(struct parking *p)
{
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	use_context();
	*p = (struct parking){.page = page, .address = use_page(page, 0)};
	MUST(MemAlloc(&p->memory, MIB));
	MUST(StreamCreate(&p->other, CU_STREAM_NON_BLOCKING));
	if (!other_runs(p, 3000))
		failed("nothing runs");
}

/* New streams, with work each: how many get it done. */
static unsigned crowd(struct parking *p, CUstream streams[CROWD], int milliseconds)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CROWD; i++) {
		MUST(StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		MUST(MemsetD8Async(p->memory, 3, MIB, streams[i]));
	}
	for (unsigned i = 0; i < CROWD; i++)
		n += settles(streams[i], milliseconds);
	return n;
}

static void end_parking(struct parking *p)
{
	*p->page = 1;
	for (unsigned i = 0; i < p->count; i++)
		if (!settles(p->parked[i], 3000))
			failed("a parked stream does not go on after the release");
	if (!settles(p->other, 3000))
		failed("not everything ran after the release");
}

/* As many as the library parks at most. */
static void half_parked(void)
{
	CUstream streams[CROWD];
	struct parking p;
	unsigned ran;

	begin_parking(&p);
	while (p.count < CONNECTIONS / 2)
		park(&p);
	if (!other_runs(&p, 3000))
		failed("with %u parked another stream stands still", p.count);
	ran = crowd(&p, streams, 500);
	end_parking(&p);
	if (ran < CROWD)
		failed("with %u parked, %u of %u other streams ran", p.count, ran, CROWD);
	ok("with %u parked, all of %u others ran", p.count, CROWD);
}

static void all_parked(void)
{
	bool seven, eight;
	CUstream streams[CROWD];
	struct parking p;
	unsigned ran;

	begin_parking(&p);
	while (p.count < CONNECTIONS - 1)
		park(&p);
	seven = other_runs(&p, 3000);
	ran = crowd(&p, streams, 100);
	park(&p);
	/* the eighth may take a moment to get there */
	eight = true;
	for (unsigned tries = 0; tries < 20 && eight; tries++)
		eight = other_runs(&p, 500);
	end_parking(&p);
	if (!seven)
		failed("with %u streams parked another one stands still", CONNECTIONS - 1);
	ok("with 7 parked another stream runs, and %u of %u new ones; with 8 %s; all ran after the "
	   "release",
	   ran, CROWD, eight ? "it runs too" : "it stands still");
}

/* Copies to the host go through one queue: one that cannot start yet may hold up all that come
 * later. Half of the connections are parked, with such a copy behind each wait. */
static void copies_behind_parked(void)
{
	CUstream streams[CROWD];
	unsigned memsets, copies = 0;
	struct parking p;
	void *host;

	begin_parking(&p);
	host = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(MemHostRegister(host, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	while (p.count < CONNECTIONS / 2) {
		park(&p);
		MUST(MemcpyDtoHAsync(host, p.memory, PAGE, p.parked[p.count - 1]));
	}
	memsets = crowd(&p, streams, 500);
	for (unsigned i = 0; i < CROWD; i++)
		MUST(MemcpyDtoHAsync((char *)host + PAGE, p.memory, PAGE, streams[i]));
	for (unsigned i = 0; i < CROWD; i++)
		copies += settles(streams[i], 50);
	end_parking(&p);
	ok("(report) with %u parked and a copy to the host behind each, %u of %u others filled "
	   "memory, and %u copied to the host",
	   p.count, memsets, CROWD, copies);
}

const struct fact value_facts[] = {
    {"values_on_a_sealed_page", sealed_page},
    {"values_inside_capture", inside_capture},
    {"parked_streams_of_half_the_connections", half_parked},
    {"parked_streams_of_all_connections", all_parked},
    {"copies_to_the_host_behind_parked_streams", copies_behind_parked},
    {NULL, NULL},
};

const struct play value_plays[] = {
    {"value-peer", peer},
    {NULL, NULL},
};
