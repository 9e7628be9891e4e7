/* SPDX-License-Identifier: MIT */

/*
 * cuda_two_gpus: memory of one GPU, used by kernels of another process on another GPU.
 *
 * The owner allocates memory on the first GPU, numbers its words with a kernel there, and publishes
 * it. The guest makes the second GPU its current device before it looks the buffer up; the library
 * gives that GPU access, and the guest's kernel reads and changes the words across the link between
 * the two. The owner then checks each word by a kernel on the first GPU.
 *
 * With fewer than two GPUs, or two that cannot reach each other's memory, it says so and fails.
 */

#include "common.h"

#define POOL       "cuda-two-gpus"
#define GIVEN      "cuda-two-gpus/given"
#define RETURNED   "cuda-two-gpus/returned"
#define WORDS      (4u << 20) /* 16 MiB */
#define BLOCKS     128
#define THREADS    256
#define TIMEOUT_MS 30000 /* only so that a stuck program ends */

/* ------------------------------------------------------------------------------------------- */

static __global__ void number(uint32_t *words, uint32_t n)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		words[i] = i;
}

static __global__ void change(uint32_t *words, uint32_t n)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		words[i] = 3 * words[i] + 1;
}

static __global__ void count_wrong(const uint32_t *words, uint32_t n, unsigned *wrong)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		if (words[i] != 3 * i + 1)
			atomicAdd(wrong, 1);
}

static void describe(int device, char uuid[41], char bus[32])
{
	uuid_of(device, uuid);
	check(cudaDeviceGetPCIBusId(bus, 32, device), "cudaDeviceGetPCIBusId");
}

/* ------------------------------------------------------------------------------------------- */

/* Runs in the guest. It waits until its owner says by a byte on @go that there are two GPUs. */
static void visit(int go)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_client *client;
	share_buffer *given;
	cudaStream_t stream;
	char byte;

	role = "guest";
	if (read(go, &byte, 1) != 1)
		return;
	check(share_connect(NULL, &client), "share_connect");
	check(cudaSetDevice(1), "cudaSetDevice");
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(share_lookup(client, GIVEN, SHARE_RDWR, TIMEOUT_MS, stream, &given), GIVEN);
	check(share_buffer_get_info(given, &info), "share_buffer_get_info");
	if (info.ordinal == 1)
		fail("the memory is on this process's own GPU");
	change<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)share_ptr(given), WORDS);
	check(cudaGetLastError(), "change");
	check(share_publish(given, RETURNED, stream), RETURNED);
	/* The name ends with this process, so it stays until the owner has removed the name. */
	check(read(go, &byte, 1) == 0 ? 0 : SHARE_EPROTO, "waiting for the end");
	check(share_release(given, stream), "share_release");
	share_disconnect(client);
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static pid_t start_guest(const int *go)
{
	pid_t pid = fork();
	char text[16];

	if (pid < 0)
		fail("fork failed");
	if (pid > 0)
		return pid;
	close(go[1]);
	snprintf(text, sizeof(text), "%d", go[0]);
	execl("/proc/self/exe", "cuda_two_gpus", "--guest", text, (char *)NULL);
	_exit(127);
}

/* Runs in the owner. Returns how many words are not what the guest should have made of them. */
static unsigned own(share_client *client, const char *kind, const char *uuid, int go)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *buffer, *returned;
	unsigned *wrong, result;
	cudaStream_t stream;
	share_pool *pool;

	check(cudaSetDevice(0), "cudaSetDevice");
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMalloc(&wrong, sizeof(*wrong)), "cudaMalloc");
	check(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream), "cudaMemsetAsync");
	options.kind = kind;
	options.device = uuid;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_alloc(pool, WORDS * sizeof(uint32_t), stream, &buffer), "share_alloc");
	number<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)share_ptr(buffer), WORDS);
	check(cudaGetLastError(), "number");
	check(share_publish(buffer, GIVEN, stream), GIVEN);
	if (write(go, "", 1) != 1)
		fail("the guest has ended");

	check(share_lookup(client, RETURNED, SHARE_RDONLY, TIMEOUT_MS, stream, &returned),
	      RETURNED);
	count_wrong<<<BLOCKS, THREADS, 0, stream>>>((const uint32_t *)share_ptr(returned), WORDS,
						    wrong);
	check(cudaGetLastError(), "count_wrong");
	check(cudaMemcpyAsync(&result, wrong, sizeof(result), cudaMemcpyDeviceToHost, stream),
	      "cudaMemcpyAsync");
	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	check(share_release(returned, stream), "share_release");
	check(share_unpublish(client, GIVEN), GIVEN);
	check(share_release(buffer, stream), "share_release");
	share_pool_close(pool);
	check(cudaFree(wrong), "cudaFree");
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
	return result;
}

static int count_devices(void)
{
	int n = 0, driver = 0;
	cudaError_t result;

	check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
	if (driver == 0) /* there is no driver */
		return 0;
	result = cudaGetDeviceCount(&n);
	if (result == cudaErrorNoDevice)
		return 0;
	check(result, "cudaGetDeviceCount");
	return n;
}

static int run(const char *kind)
{
	char first[41], second[41], first_bus[32], second_bus[32];
	int go[2], n, status;
	share_client *client;
	unsigned wrong;
	pid_t guest;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1);
	if (pipe(go) < 0)
		fail("pipe failed");
	guest = start_guest(go); /* before this process uses CUDA */
	close(go[0]);
	n = count_devices();
	if (n < 2)
		fail("it takes two GPUs, and this process sees %d", n);
	describe(0, first, first_bus);
	describe(1, second, second_bus);
	wrong = own(client, kind, first, go[1]);
	close(go[1]);
	if (waitpid(guest, &status, 0) != guest || status != 0)
		fail("the guest failed");
	if (wrong)
		fail("%u words are wrong", wrong);
	printf("cuda_two_gpus: ok kind=%s memory=%s kernels=%s bytes=%zu\n", kind, first_bus,
	       second_bus, (size_t)WORDS * sizeof(uint32_t));
	share_disconnect(client);
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "vmm";
	bool help = strcmp(kind, "--help") == 0;

	role = "owner";
	if (argc == 3 && strcmp(argv[1], "--guest") == 0) {
		visit(atoi(argv[2]));
		return 0;
	}
	if (argc > 2 || (strcmp(kind, "vmm") != 0 && strcmp(kind, "mempool") != 0)) {
		fprintf(help ? stdout : stderr, "usage: cuda_two_gpus [vmm|mempool]\n");
		return !help;
	}
	return run(kind);
}
