/* SPDX-License-Identifier: MIT */

/*
 * plain_cuda: shared memory in a program that uses only CUDA, and not the library.
 *
 * The owner uses the library: it allocates a buffer, fills it by a kernel, and leases an
 * interprocess event. Then it starts the guest and gives it what share_get_recipe() and
 * share_event_handle() return: a descriptor and some bytes. From these the guest maps the memory
 * and opens the event with calls of CUDA alone: it waits for the event on its stream, changes the
 * words by a kernel of its own, and records the event again for the owner.
 *
 * The guest may use the memory as long as the owner holds the buffer, and has to unmap it before
 * the owner releases the buffer. Mapping takes four calls of the driver for kind vmm, and two for
 * mempool.
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>

#include <cuda.h>

#include "common.h"

#define POOL    "plain-cuda"
#define WORDS   (1u << 20)
#define BLOCKS  128
#define THREADS 256

/* Descriptors of the guest: the memory's, one to read its recipe from, and one to answer on. */
enum { MEMORY = 3, TOLD = 4, ANSWER = 5 };

static void check(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		fail("%s: error %d of the driver", what, (int)result);
}

/* ------------------------------------------------------------------------------------------- */

static __global__ void number(uint32_t *words, uint32_t n)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		words[i] = i;
}

static __global__ void change(uint32_t *words, uint32_t n)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		words[i] = 5 * words[i] + 2;
}

static __global__ void count_wrong(const uint32_t *words, uint32_t n, unsigned *wrong)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		if (words[i] != 5 * i + 2)
			atomicAdd(wrong, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* The guest: no call of the library                                                           */

/* What the guest is told, beside the descriptor. */
struct guest_recipe {
	char kind[16];
	char device[64];
	uint64_t segment_size;
	uint64_t offset;
	unsigned char pointer[64]; /* for mempool */
	unsigned char event[64];
};

struct guest_memory {
	CUdeviceptr segment;
	size_t size;
	cudaMemPool_t pool; /* for mempool */
};

/* Programs that link libcuda simply call the function. This one must also start without libcuda, to
 * say that it is missing. */
template <typename Function> static Function driver(Function, const char *name)
{
	static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function)
		fail("libcuda.so.1 has no %s", name);
	return (Function)function;
}
#define DRIVER(function) driver(decltype (&function)(nullptr), #function)

static struct guest_memory map_vmm(const struct guest_recipe *recipe, int device)
{
	struct guest_memory m = {0, (size_t)recipe->segment_size, NULL};
	CUmemGenericAllocationHandle handle;
	CUmemAccessDesc access = {};

	check(DRIVER(cuMemImportFromShareableHandle)(&handle, (void *)(uintptr_t)MEMORY,
						     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
	      "cuMemImportFromShareableHandle");
	check(DRIVER(cuMemAddressReserve)(&m.segment, m.size, 0, 0, 0), "cuMemAddressReserve");
	check(DRIVER(cuMemMap)(m.segment, m.size, 0, handle, 0), "cuMemMap");
	check(DRIVER(cuMemRelease)(handle), "cuMemRelease"); /* the mapping keeps the memory */
	access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = device;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	check(DRIVER(cuMemSetAccess)(m.segment, m.size, &access, 1), "cuMemSetAccess");
	return m;
}

static struct guest_memory map_mempool(const struct guest_recipe *recipe)
{
	cudaMemPoolPtrExportData pointer;
	struct guest_memory m = {};
	void *segment;

	static_assert(sizeof(pointer) == sizeof(recipe->pointer), "64 bytes");
	memcpy(&pointer, recipe->pointer, sizeof(pointer));
	check(cudaMemPoolImportFromShareableHandle(&m.pool, (void *)(uintptr_t)MEMORY,
						   cudaMemHandleTypePosixFileDescriptor, 0),
	      "cudaMemPoolImportFromShareableHandle");
	check(cudaMemPoolImportPointer(&segment, m.pool, &pointer), "cudaMemPoolImportPointer");
	m.segment = (CUdeviceptr)segment;
	return m;
}

static void unmap(const struct guest_memory *m)
{
	if (m->pool) {
		check(cudaFree((void *)m->segment), "cudaFree");
		check(cudaMemPoolDestroy(m->pool), "cudaMemPoolDestroy");
	} else {
		check(DRIVER(cuMemUnmap)(m->segment, m->size), "cuMemUnmap");
		check(DRIVER(cuMemAddressFree)(m->segment, m->size), "cuMemAddressFree");
	}
}

static cudaEvent_t open_event(const void *handle)
{
	cudaIpcEventHandle_t h;
	cudaEvent_t event;

	memcpy(&h, handle, sizeof(h));
	check(cudaIpcOpenEventHandle(&event, h), "cudaIpcOpenEventHandle");
	return event;
}

static void visit(void)
{
	struct guest_recipe recipe;
	struct guest_memory memory;
	cudaStream_t stream;
	cudaEvent_t event;
	int device;

	role = "guest";
	if (read(TOLD, &recipe, sizeof(recipe)) != sizeof(recipe))
		fail("it is told nothing");
	device = use_device(recipe.device);
	check(cudaFree(NULL), "cudaFree"); /* creates the context, which the calls below need */
	memory = strcmp(recipe.kind, "vmm") == 0 ? map_vmm(&recipe, device) : map_mempool(&recipe);
	close(MEMORY);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	event = open_event(recipe.event);

	check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
	change<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)(memory.segment + recipe.offset), WORDS);
	check(cudaGetLastError(), "change");
	check(cudaEventRecord(event, stream), "cudaEventRecord");
	if (write(ANSWER, "", 1) != 1) /* the event is recorded, so the owner may wait for it now */
		fail("the owner has ended");

	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	unmap(&memory);
	check(cudaEventDestroy(event), "cudaEventDestroy");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

/* ------------------------------------------------------------------------------------------- */
/* The owner                                                                                   */

static void describe(share_buffer *buffer, share_event *event, struct guest_recipe *out, int *fd)
{
	share_recipe recipe = SHARE_RECIPE_INIT;

	check(share_get_recipe(buffer, &recipe), "share_get_recipe");
	snprintf(out->kind, sizeof(out->kind), "%s", recipe.kind);
	memcpy(out->device, recipe.device, sizeof(out->device));
	out->segment_size = recipe.segment_size;
	out->offset = recipe.offset;
	memcpy(out->pointer, recipe.pointer, sizeof(out->pointer));
	memcpy(out->event, share_event_handle(event), sizeof(out->event));
	*fd = recipe.fd;
}

/* Moves a descriptor above the numbers that the guest uses. Takes @fd over, and returns the new
 * one. */
static int move(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, ANSWER + 1);

	if (moved < 0)
		fail("there are no descriptors left");
	close(fd);
	return moved;
}

/* Starts the guest, and takes @fd over. It uses posix_spawn() and not fork(), because this process
 * has used CUDA already. */
static pid_t start_guest(const struct guest_recipe *recipe, int fd, int *answer)
{
	const char *arguments[] = {"plain_cuda", "--guest", NULL};
	posix_spawn_file_actions_t actions;
	int told[2], answers[2];
	extern char **environ;
	pid_t pid;

	if (pipe2(told, O_CLOEXEC) < 0 || pipe2(answers, O_CLOEXEC) < 0)
		fail("pipe failed");
	fd = move(fd);
	told[0] = move(told[0]);
	answers[1] = move(answers[1]);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, MEMORY);
	posix_spawn_file_actions_adddup2(&actions, told[0], TOLD);
	posix_spawn_file_actions_adddup2(&actions, answers[1], ANSWER);
	if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)arguments, environ))
		fail("the guest could not be started");
	posix_spawn_file_actions_destroy(&actions);
	if (write(told[1], recipe, sizeof(*recipe)) != sizeof(*recipe))
		fail("the guest has ended");
	close(fd);
	close(told[0]);
	close(told[1]);
	close(answers[1]);
	*answer = answers[0];
	return pid;
}

static int run(const char *kind)
{
	share_event_options event_options = SHARE_EVENT_OPTIONS_INIT;
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct guest_recipe recipe = {};
	unsigned *wrong, result;
	share_client *client;
	share_buffer *buffer;
	share_event *lease;
	cudaStream_t stream;
	cudaEvent_t event;
	share_pool *pool;
	int status, fd, answer;
	pid_t guest;
	char byte;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	options.kind = kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	use_device(info.device);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMalloc(&wrong, sizeof(*wrong)), "cudaMalloc");
	check(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream), "cudaMemsetAsync");
	check(share_alloc(pool, WORDS * sizeof(uint32_t), stream, &buffer), "share_alloc");
	event_options.device = info.device;
	check(share_event_create(client, &event_options, &lease), "share_event_create");
	event = open_event(share_event_handle(lease));

	number<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)share_ptr(buffer), WORDS);
	check(cudaGetLastError(), "number");
	check(cudaEventRecord(event, stream), "cudaEventRecord");
	describe(buffer, lease, &recipe, &fd);
	guest = start_guest(&recipe, fd, &answer);
	if (read(answer, &byte, 1) != 1)
		fail("the guest has ended");
	check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
	count_wrong<<<BLOCKS, THREADS, 0, stream>>>((const uint32_t *)share_ptr(buffer), WORDS,
						    wrong);
	check(cudaGetLastError(), "count_wrong");
	check(cudaMemcpyAsync(&result, wrong, sizeof(result), cudaMemcpyDeviceToHost, stream),
	      "cudaMemcpyAsync");
	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	/* The guest must have finished with the memory before it is released. */
	if (waitpid(guest, &status, 0) != guest || status != 0)
		fail("the guest failed");
	if (result)
		fail("%u words are wrong", result);
	printf("plain_cuda: ok kind=%s bytes=%zu\n", info.kind, (size_t)WORDS * sizeof(uint32_t));

	check(cudaEventDestroy(event), "cudaEventDestroy");
	share_event_release(lease);
	check(share_release(buffer, stream), "share_release");
	share_pool_close(pool);
	check(cudaFree(wrong), "cudaFree");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	share_disconnect(client);
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "vmm";
	bool help = strcmp(kind, "--help") == 0;

	role = "owner";
	if (argc == 2 && strcmp(argv[1], "--guest") == 0) {
		visit();
		return 0;
	}
	if (argc > 2 || (strcmp(kind, "vmm") != 0 && strcmp(kind, "mempool") != 0)) {
		fprintf(help ? stdout : stderr, "usage: plain_cuda [vmm|mempool]\n");
		return !help;
	}
	return run(kind);
}
