/* SPDX-License-Identifier: MIT */

/*
 * Work on a GPU, which needs no CUDA compiler: fills and copies on CUDA streams with host functions
 * between them that take their time, which is all that the stand-in driver can do; and every other
 * time, on a real one, kernels that spin and then fill or copy. What is read goes into pinned
 * memory and is looked at by a host function behind the copy.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "memory/cuda/driver.h"
#include "tests/support/gpu_memory.h"
#include "tests/themes/checker/gpu_kernels.h"
#include "tests/themes/checker/worker.h"

#define PIECE (UINT64_C(2) << 20)

/* What libshare has no use for. */
static PFN_cuMemsetD32Async_v3020 memset_d32;
static PFN_cuLaunchHostFunc_v10000 launch_host_function;
static const struct cuda *cu;

static CUdevice device;
static void *pinned;
static size_t pinned_size;
static CUdeviceptr pinned_address; /* for kernels */
static bool has_kernels;

static void must(struct worker *w, const char *call, CUresult result)
{
	const char *name = NULL;

	if (result == CUDA_SUCCESS)
		return;
	cu->GetErrorName(result, &name);
	fprintf(stderr, "share-checker: process %u: %s: %s\n", w->index, call, name ? name : "?");
	unexpected(w, call, SHARE_EDEVICE);
}

static int find_driver(void)
{
	struct failure failure;
	void *library;

	if (cuda_get(&cu, &failure) != 0) {
		fprintf(stderr, "share-checker: %s\n", failure.text);
		return 77;
	}
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (library) {
		*(void **)&memset_d32 = dlsym(library, "cuMemsetD32Async");
		*(void **)&launch_host_function = dlsym(library, "cuLaunchHostFunc");
	}
	if (memset_d32 && launch_host_function)
		return 0;
	fprintf(stderr,
		"share-checker: the driver has no cuMemsetD32Async or no "
		"cuLaunchHostFunc\n");
	return 77;
}

static int start(struct worker *w)
{
	size_t most = w->board->options.pool_size / 8;
	CUcontext context;
	int r = find_driver();

	if (r != 0)
		return r;
	must(w, "cuDeviceGet", cu->DeviceGet(&device, 0));
	must(w, "cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&context, device));
	must(w, "cuCtxPushCurrent", cu->CtxPushCurrent(context));
	pinned_size = JOBS * most;
	pinned =
	    mmap(NULL, pinned_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pinned == MAP_FAILED)
		unexpected(w, "mmap", SHARE_ENOMEM);
	must(w, "cuMemHostRegister",
	     cu->MemHostRegister(pinned, pinned_size, CU_MEMHOSTREGISTER_DEVICEMAP));
	must(w, "cuMemHostGetDevicePointer",
	     cu->MemHostGetDevicePointer(&pinned_address, pinned, 0));
	has_kernels = kernels_load();
	for (unsigned i = 0; i < JOBS; i++)
		w->jobs[i].copy = (uint32_t *)(void *)((char *)pinned + i * most);
	for (unsigned i = 0; i < w->n_streams; i++) {
		CUstream s;

		/* half of them are ordered with the legacy default stream, which nobody uses */
		must(w, "cuStreamCreate", cu->StreamCreate(&s, i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		w->streams[i] = s;
	}
	w->streams[w->n_streams++] = CU_STREAM_PER_THREAD;
	return 0;
}

static void stop(struct worker *w)
{
	for (unsigned i = 0; i + 1 < w->n_streams; i++)
		must(w, "cuStreamDestroy", cu->StreamDestroy(w->streams[i]));
}

static void end(struct worker *w)
{
	CUcontext popped;

	must(w, "cuMemHostUnregister", cu->MemHostUnregister(pinned));
	munmap(pinned, pinned_size);
	must(w, "cuCtxPopCurrent", cu->CtxPopCurrent(&popped));
	must(w, "cuDevicePrimaryCtxRelease", cu->DevicePrimaryCtxRelease(device));
}

/* ------------------------------------------------------------------------------------------- */

static void CUDA_CB pause_first(void *data)
{
	job_pause(data, 0);
}

static void CUDA_CB pause_second(void *data)
{
	job_pause(data, 1);
}

static void CUDA_CB finish(void *data)
{
	struct job *j = data;

	if (j->reads)
		job_compare(j, j->copy, 0, PARTS);
	atomic_store(&j->done, true);
}

static void pause_stream(struct worker *w, struct job *j, unsigned half)
{
	CUhostFn function = half ? pause_second : pause_first;

	if (j->pauses_us[half] > 0)
		must(w, "cuLaunchHostFunc",
		     launch_host_function(w->streams[j->stream], function, j));
}

static CUdeviceptr address(const struct job *j, uint64_t part)
{
	return (CUdeviceptr)(uintptr_t)j->memory + j->size / PARTS * part;
}

static bool by_kernels(struct worker *w)
{
	if (!has_kernels || !dice_hit(&w->dice, 50))
		return false;
	atomic_fetch_add(&w->board->kernels, 1);
	return true;
}

static void fill(struct worker *w, struct job *j)
{
	CUstream stream = w->streams[j->stream];
	uint64_t words = j->size / PARTS / sizeof(uint32_t);
	bool kernels = by_kernels(w);

	for (unsigned part = 0; part < PARTS; part++) {
		unsigned half = part / (PARTS / 2);
		bool first = part % (PARTS / 2) == 0;
		uint32_t word = mark_word(&j->mark, part);

		if (kernels) {
			must(w, "cuLaunchKernel",
			     kernel_fill(stream, address(j, part), words, word,
					 first ? j->pauses_us[half] : 0));
			continue;
		}
		if (first)
			pause_stream(w, j, half);
		must(w, "cuMemsetD32Async", memset_d32(address(j, part), word, words, stream));
	}
	must(w, "cuLaunchHostFunc", launch_host_function(stream, finish, j));
}

static void read_half(struct worker *w, struct job *j, unsigned half, bool kernels)
{
	CUstream stream = w->streams[j->stream];
	char *to = (char *)j->copy + j->size / 2 * half;
	CUdeviceptr from = address(j, PARTS / 2 * half);

	if (kernels) {
		must(w, "cuLaunchKernel",
		     kernel_copy(stream, pinned_address + (uint64_t)(to - (char *)pinned), from,
				 j->size / 2 / sizeof(uint32_t), j->pauses_us[half]));
		return;
	}
	pause_stream(w, j, half);
	must(w, "cuMemcpyDtoHAsync", cu->MemcpyDtoHAsync(to, from, j->size / 2, stream));
}

static void read_back(struct worker *w, struct job *j)
{
	bool kernels = by_kernels(w);

	read_half(w, j, 0, kernels);
	read_half(w, j, 1, kernels);
	must(w, "cuLaunchHostFunc", launch_host_function(w->streams[j->stream], finish, j));
}

static void synchronize(struct worker *w, unsigned stream)
{
	must(w, "cuStreamSynchronize", cu->StreamSynchronize(w->streams[stream]));
}

/* One allocation, of as many pieces as it takes on every device. */
static void make(uint64_t size, struct own *out)
{
	uint64_t whole = (size + PIECE - 1) / PIECE * PIECE;

	*out = (struct own){gpu_memory_make(device, whole, whole, true), whole, -1};
}

static void unmake(const struct own *own)
{
	gpu_memory_free(own->address, own->size, own->size);
}

const struct engine gpu_engine = {
    .start = start,
    .stop = stop,
    .end = end,
    .fill = fill,
    .read = read_back,
    .synchronize = synchronize,
    .make = make,
    .unmake = unmake,
};
