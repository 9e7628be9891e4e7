/* SPDX-License-Identifier: MIT */

/*
 * cuda_workers: many inference workers, one copy of the weights on the GPU.
 *
 * The loader makes the weights of a layer with a kernel, publishes them read-only and persistent,
 * and ends: the name, and so the memory, stays. Then come the workers, one after the other: each
 * looks the weights up and answers requests that come through a socket by a kernel that reads them
 * where they lie. A worker reports how much free memory the device lost by its look-up, and in
 * which segment the weights are: the same one for all.
 *
 * Weights and requests are small whole numbers, so that every sum is exact in a float, whatever
 * the order; the parent computes each answer for itself and compares all of it.
 *
 * A CUDA context does not survive a fork, so loader and workers are started by fork and exec. The
 * parent does not use CUDA at all.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <share/share.h>

#define POOL        "cuda-workers"
#define WEIGHTS     "cuda-workers/weights"
#define COLUMNS     32768 /* of the weights: the length of a request */
#define ROWS        2048  /* the length of an answer */
#define BYTES       ((size_t)ROWS * COLUMNS * sizeof(float))
#define THREADS     256
#define WORKERS_MAX 64
#define MIB         (1024.0 * 1024)

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "cuda_workers: ");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

static void check(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%s)", what, share_strerror(result), share_error_detail());
}

static void check(cudaError_t result, const char *what)
{
	if (result != cudaSuccess)
		fail("%s: %s (%s)", what, cudaGetErrorName(result), cudaGetErrorString(result));
}

static void check_system(bool fine, const char *what)
{
	if (!fine)
		fail("%s: %s", what, strerror(errno));
}

/* ------------------------------------------------------------------------------------------- */
/* The model: answer = weights * request                                                       */

static __host__ __device__ float weight(uint32_t row, uint32_t column)
{
	uint32_t x = (row * 8191u + column) * 2654435761u;

	return (float)((x >> 24) % 7) - 3; /* -3 to 3 */
}

static __global__ void load_weights(float *weights)
{
	uint32_t row = blockIdx.x;

	for (uint32_t i = threadIdx.x; i < COLUMNS; i += blockDim.x)
		weights[(size_t)row * COLUMNS + i] = weight(row, i);
}

/* One block a row. */
static __global__ void infer(const float *weights, const float *request, float *answer)
{
	const float *row = weights + (size_t)blockIdx.x * COLUMNS;
	__shared__ float parts[THREADS];
	float sum = 0;

	for (uint32_t i = threadIdx.x; i < COLUMNS; i += blockDim.x)
		sum += row[i] * request[i];
	parts[threadIdx.x] = sum;
	for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			parts[threadIdx.x] += parts[threadIdx.x + half];
	}
	if (threadIdx.x == 0)
		answer[blockIdx.x] = parts[0];
}

/* CUDA counts devices as CUDA_VISIBLE_DEVICES says; a pool's device is told by its UUID. */
static void use_device_of(share_pool *pool)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;
	cudaDeviceProp properties;
	char text[37];
	int n;

	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
	for (int i = 0; i < n; i++) {
		check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
		for (int k = 0, at = 0; k < 16; k++)
			at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%02x",
				       k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
				       (unsigned char)properties.uuid.bytes[k]);
		if (strcmp(strchr(info.device, '-') + 1, text) == 0) {
			check(cudaSetDevice(i), "cudaSetDevice");
			return;
		}
	}
	fail("this process cannot see %s: is it hidden by CUDA_VISIBLE_DEVICES?", info.device);
}

/* ------------------------------------------------------------------------------------------- */
/* The loader                                                                                  */

static void load(void)
{
	share_publish_options publish = SHARE_PUBLISH_OPTIONS_INIT;
	share_client *client;
	share_buffer *weights;
	cudaStream_t stream;
	share_pool *pool;

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(share_alloc(pool, BYTES, stream, &weights), "share_alloc");
	load_weights<<<ROWS, THREADS, 0, stream>>>((float *)share_ptr(weights));
	check(cudaGetLastError(), "load_weights");
	publish.flags = SHARE_PUBLISH_PERSISTENT;
	publish.mode = SHARE_RDONLY;
	check(share_publish_with(weights, WEIGHTS, &publish, stream, NULL), "share_publish");
	/* data of a process that ends before its work is done means nothing */
	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	check(share_release(weights, stream), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* A worker                                                                                    */

/* Its first message: where it found the weights, and what the look-up cost the device. */
struct greeting {
	uint64_t segment;
	uint64_t offset;
	int64_t cost; /* bytes of free memory less */
};

static void work(int requests)
{
	float *request, *answer, in[COLUMNS], out[ROWS];
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct greeting greeting = {};
	size_t before, after, total;
	share_buffer *weights;
	share_client *client;
	cudaStream_t stream;
	share_pool *pool;

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMalloc(&request, sizeof(in)), "cudaMalloc");
	check(cudaMalloc(&answer, sizeof(out)), "cudaMalloc");

	check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
	check(share_lookup(client, WEIGHTS, SHARE_RDONLY, 0, stream, &weights), WEIGHTS);
	check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
	check(share_buffer_get_info(weights, &info), "share_buffer_get_info");
	greeting.segment = info.segment;
	greeting.offset = info.offset;
	greeting.cost = (int64_t)before - (int64_t)after;
	check_system(send(requests, &greeting, sizeof(greeting), 0) == sizeof(greeting), "send");

	while (recv(requests, in, sizeof(in), 0) == sizeof(in)) {
		check(cudaMemcpyAsync(request, in, sizeof(in), cudaMemcpyHostToDevice, stream),
		      "cudaMemcpyAsync");
		infer<<<ROWS, THREADS, 0, stream>>>((const float *)share_ptr(weights), request,
						    answer);
		check(cudaGetLastError(), "infer");
		check(cudaMemcpyAsync(out, answer, sizeof(out), cudaMemcpyDeviceToHost, stream),
		      "cudaMemcpyAsync");
		check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		check_system(send(requests, out, sizeof(out), 0) == sizeof(out), "send");
	}
	check(share_release(weights, stream), "share_release");
	check(cudaFree(request), "cudaFree");
	check(cudaFree(answer), "cudaFree");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

struct worker {
	pid_t pid;
	int socket;
};

/* @socket: the worker's end, or -1 for the loader. */
static pid_t start(int socket)
{
	pid_t pid = fork();
	char text[16];

	check_system(pid >= 0, "fork");
	if (pid > 0)
		return pid;
	if (socket < 0) {
		execl("/proc/self/exe", "cuda_workers", "--load", (char *)NULL);
	} else {
		snprintf(text, sizeof(text), "%d", dup(socket)); /* without close-on-exec */
		execl("/proc/self/exe", "cuda_workers", "--work", text, (char *)NULL);
	}
	_exit(127);
}

static void await(pid_t pid, const char *who)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status != 0)
		fail("%s failed", who);
}

static void start_worker(struct worker *w, struct greeting *greeting)
{
	int pair[2], size = sizeof(float) * COLUMNS * 2;

	/* one packet is one request, or one answer */
	check_system(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0,
		     "socketpair");
	for (int i = 0; i < 2; i++)
		check_system(setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0,
			     "SO_SNDBUF");
	w->socket = pair[0];
	w->pid = start(pair[1]);
	close(pair[1]);
	if (recv(w->socket, greeting, sizeof(*greeting), 0) != sizeof(*greeting))
		fail("a worker did not come up");
}

static void make_request(int number, float *request)
{
	for (uint32_t i = 0; i < COLUMNS; i++)
		request[i] = (float)((i * 7u + (uint32_t)number * 13u) % 5) - 2; /* -2 to 2 */
}

static void check_answer(int number, const float *request, const float *answer)
{
	for (uint32_t row = 0; row < ROWS; row++) {
		float sum = 0;

		for (uint32_t i = 0; i < COLUMNS; i++)
			sum += weight(row, i) * request[i];
		if (answer[row] != sum)
			fail("answer %d, row %u: %.0f, and should be %.0f", number, row,
			     answer[row], sum);
	}
}

/* One request to each worker, then one answer from each. */
static void ask_all(const struct worker *workers, int n, int first)
{
	float request[COLUMNS], answer[ROWS];

	for (int i = 0; i < n; i++) {
		make_request(first + i, request);
		check_system(send(workers[i].socket, request, sizeof(request), MSG_NOSIGNAL) ==
				 sizeof(request),
			     "sending a request");
	}
	for (int i = 0; i < n; i++) {
		if (recv(workers[i].socket, answer, sizeof(answer), 0) != sizeof(answer))
			fail("a worker did not answer");
		make_request(first + i, request);
		check_answer(first + i, request, answer);
	}
}

static int run(const char *kind, int n, int rounds)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct worker workers[WORKERS_MAX];
	struct greeting first = {}, greeting;
	share_client *client;
	share_pool *pool;
	double cost = 0;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1);
	options.kind = kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	if (!info.device)
		fail("kernels need GPU memory, and this is of kind %s: %s", info.kind, info.reason);
	await(start(-1), "the loader");
	for (int i = 0; i < n; i++) {
		start_worker(&workers[i], &greeting);
		if (i == 0)
			first = greeting;
		if (greeting.segment != first.segment || greeting.offset != first.offset)
			fail("worker %d has other weights than the first", i);
		cost += (double)greeting.cost / MIB;
	}
	for (int i = 0; i < rounds; i++)
		ask_all(workers, n, i * n);
	for (int i = 0; i < n; i++)
		close(workers[i].socket);
	for (int i = 0; i < n; i++)
		await(workers[i].pid, "a worker");
	check(share_unpublish(client, WEIGHTS), WEIGHTS);

	printf(
	    "%d workers, one copy of %.0f MiB; the look-ups took %.0f MiB of the device, copies "
	    "would have taken %.0f MiB\n",
	    n, BYTES / MIB, cost, (double)n * (BYTES / MIB));
	printf("cuda_workers: ok kind=%s workers=%d requests=%d model=%.0fMiB saved=%.0fMiB\n",
	       info.kind, n, n * rounds, BYTES / MIB, (double)n * (BYTES / MIB) - cost);
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "auto";
	int n = argc > 2 ? atoi(argv[2]) : 4, rounds = argc > 3 ? atoi(argv[3]) : 2;

	if (argc == 2 && strcmp(argv[1], "--load") == 0) {
		load();
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "--work") == 0) {
		work(atoi(argv[2]));
		return 0;
	}
	if (argc > 4 || kind[0] == '-' || n < 1 || n > WORKERS_MAX || rounds < 1) {
		fprintf(stderr,
			"usage: cuda_workers [KIND [WORKERS [ROUNDS]]]\n"
			"KIND is auto (default), vmm or mempool\n");
		return 1;
	}
	return run(kind, n, rounds);
}
