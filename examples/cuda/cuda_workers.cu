/* SPDX-License-Identifier: MIT */

/*
 * cuda_workers: many inference workers, one copy of the weights on the GPU, and a queue of requests
 * between them.
 *
 * The loader makes the weights of a layer with a kernel, publishes them read-only and persistent,
 * and ends: the name stays, and so does the memory. Then the workers start, one after the other:
 * each looks the weights up and answers the requests of a service by a kernel. Requests and answers
 * are memory of the GPU too, ordered on streams: a worker never waits for its kernel, and receives
 * the next request while the kernel runs. A worker reports how much free memory the device lost by
 * its look-up, and in which segment the weights are: the same one for all.
 *
 * Weights and requests are small integers, so that every sum is exact in a float, in whatever order
 * it is added up; the parent computes each answer itself and compares all of it.
 *
 * A CUDA context does not survive a fork, so loader and workers are started by fork and exec.
 */

#include <share/service.h>

#include "common.h"

#define POOL        "cuda-workers"
#define WEIGHTS     "cuda-workers/weights"
#define COLUMNS     32768 /* of the weights: the length of a request */
#define ROWS        2048  /* the length of an answer */
#define BYTES       ((size_t)ROWS * COLUMNS * sizeof(float))
#define THREADS     256
#define WORKERS_MAX 64
#define SERVICE     "cuda-workers"
#define TIMEOUT_MS  60000 /* only so that a stuck program ends */
#define MIB         (1024.0 * 1024)

/* ------------------------------------------------------------------------------------------- */
/* The model: answer = weights * request                                                       */

static __host__ __device__ float weight(uint32_t row, uint32_t column)
{
	uint32_t x = (row * 8191u + column) * 2654435761u;

	return (float)((x >> 24) % 7) - 3; /* from -3 to 3 */
}

static __global__ void load_weights(float *weights)
{
	uint32_t row = blockIdx.x;

	for (uint32_t i = threadIdx.x; i < COLUMNS; i += blockDim.x)
		weights[(size_t)row * COLUMNS + i] = weight(row, i);
}

/* One block computes one row. */
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
	/* The data of a process that ends before its work is done means nothing. */
	check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	check(share_release(weights, stream), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* A worker                                                                                    */

static share_service *open_service(share_client *client, int as)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *service;

	options.pool = POOL;
	check(share_service_open(client, SERVICE, as, &options, &service), "share_service_open");
	return service;
}

/* What a worker reports: where it found the weights, and how much memory the look-up took. */
struct greeting {
	uint64_t segment;
	uint64_t offset;
	int64_t cost; /* how many bytes of free memory the device lost */
};

static void work(int greetings)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct greeting greeting = {};
	share_buffer *weights, *reply;
	size_t before, after, total;
	share_service *service;
	share_client *client;
	cudaStream_t stream;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
	check(share_lookup(client, WEIGHTS, SHARE_RDONLY, 0, stream, &weights), WEIGHTS);
	check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
	check(share_buffer_get_info(weights, &info), "share_buffer_get_info");
	greeting.segment = info.segment;
	greeting.offset = info.offset;
	greeting.cost = (int64_t)before - (int64_t)after;
	service = open_service(client, SHARE_WORKER);
	check_system(write(greetings, &greeting, sizeof(greeting)) == sizeof(greeting), "write");

	while ((r = share_next_request(service, -1, stream, &m)) == 0) {
		check(share_alloc(pool, ROWS * sizeof(float), stream, &reply), "share_alloc");
		infer<<<ROWS, THREADS, 0, stream>>>((const float *)share_ptr(weights),
						    (const float *)share_ptr(m.buffer),
						    (float *)share_ptr(reply));
		check(cudaGetLastError(), "infer");
		check(share_reply(&m, reply, NULL, 0, stream), "share_reply");
		check(share_release(reply, stream), "share_release");
	}
	if (r != SHARE_EPIPE) /* the caller has left */
		check(r, "share_next_request");
	share_service_close(service);
	check(share_release(weights, stream), "share_release");
	share_pool_close(pool);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* The parent                                                                                  */

/* Starts a worker that writes its greeting to @greetings; -1: starts the loader. */
static void start(int greetings)
{
	pid_t pid = fork();
	char text[16];

	check_system(pid >= 0, "fork");
	if (pid > 0)
		return;
	snprintf(text, sizeof(text), "%d", greetings);
	execl("/proc/self/exe", "cuda_workers", greetings < 0 ? "--load" : "--work", text,
	      (char *)NULL);
	_exit(127);
}

static void await(const char *who)
{
	int status;

	if (wait(&status) < 0 || status != 0)
		fail("%s failed", who);
}

static struct greeting start_worker(void)
{
	struct greeting greeting;
	int ends[2];

	check_system(pipe(ends) == 0, "pipe");
	start(ends[1]);
	close(ends[1]);
	if (read(ends[0], &greeting, sizeof(greeting)) != sizeof(greeting))
		fail("a worker did not come up");
	close(ends[0]);
	return greeting;
}

static void make_request(int number, float *request)
{
	for (uint32_t i = 0; i < COLUMNS; i++)
		request[i] = (float)((i * 7u + (uint32_t)number * 13u) % 5) - 2; /* from -2 to 2 */
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

/* Makes a request for each worker, and checks the answers. */
static void ask_all(share_service *service, share_pool *pool, int n, int first)
{
	share_pending *calls[WORKERS_MAX];
	float request[COLUMNS], answer[ROWS];
	share_buffer *b;
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < n; i++) {
		check(share_alloc(pool, sizeof(request), NULL, &b), "share_alloc");
		make_request(first + i, request);
		check(share_copy_from_host(b, 0, request, sizeof(request), NULL),
		      "share_copy_from_host");
		check(share_call_start(service, b, NULL, 0, TIMEOUT_MS, NULL, &calls[i]),
		      "share_call_start");
		check(share_release(b, NULL), "share_release"); /* the request keeps it */
	}
	for (int i = 0; i < n; i++) {
		check(share_call_finish(calls[i], TIMEOUT_MS, NULL, &m), "share_call_finish");
		make_request(first + i, request);
		check(share_copy_to_host(m.buffer, 0, answer, sizeof(answer), NULL),
		      "share_copy_to_host");
		check_answer(first + i, request, answer);
		check(share_ack(&m, NULL), "share_ack");
	}
}

static int run(const char *kind, int n, int rounds)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	struct greeting first = {}, greeting;
	share_pool *pool;
	share_service *service;
	share_client *client;
	double cost = 0;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1);
	options.kind = kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	if (!info.device)
		fail("kernels need GPU memory, and this is of kind %s: %s", info.kind, info.reason);
	service = open_service(client, SHARE_CALLER);
	start(-1);
	await("the loader");
	for (int i = 0; i < n; i++) {
		greeting = start_worker();
		if (i == 0)
			first = greeting;
		if (greeting.segment != first.segment || greeting.offset != first.offset)
			fail("worker %d has other weights than the first", i);
		cost += (double)greeting.cost / MIB;
	}
	for (int i = 0; i < rounds; i++)
		ask_all(service, pool, n, i * n);
	share_service_close(service); /* this ends the workers */
	for (int i = 0; i < n; i++)
		await("a worker");
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

	bool help = strcmp(kind, "--help") == 0;

	if (argc == 3 && strcmp(argv[1], "--load") == 0) {
		load();
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "--work") == 0) {
		work(atoi(argv[2]));
		return 0;
	}
	if (argc > 4 || kind[0] == '-' || n < 1 || n > WORKERS_MAX || rounds < 1) {
		fprintf(help ? stdout : stderr,
			"usage: cuda_workers [KIND [WORKERS [ROUNDS]]]\n"
			"KIND is auto (default), vmm or mempool.\n");
		return !help;
	}
	return run(kind, n, rounds);
}
