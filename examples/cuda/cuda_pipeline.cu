/* SPDX-License-Identifier: MIT */

/*
 * cuda_pipeline: kernels of one process make frames, kernels of others work on them where they lie.
 *
 * The producer fills each frame with a kernel and publishes it under a name of its own, without
 * waiting for the kernel: who looks the name up on a stream is ordered after what the producer had
 * enqueued. The consumers add all words of a frame up with a kernel of theirs and report the sum
 * through a pipe; the producer knows what it has to be, and takes a name away when all of them are
 * done with it. DEPTH frames are under way at a time.
 *
 * A CUDA context does not survive a fork. So consumers are started by fork and exec before this
 * process uses CUDA, and each opens a connection of its own.
 */

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <share/share.h>

#define POOL          "cuda-pipeline"
#define NAME          "cuda-pipeline/%d"
#define DEPTH         4
#define WORDS         (1u << 20) /* of a frame */
#define BLOCKS        128
#define THREADS       256
#define CONSUMERS_MAX 64
#define TIMEOUT_MS    30000 /* only so that a stuck pipeline ends */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "cuda_pipeline: ");
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

/* ------------------------------------------------------------------------------------------- */
/* The kernels                                                                                 */

static __host__ __device__ uint32_t word_of(uint32_t frame, uint32_t i)
{
	uint32_t x = i * 2654435761u + frame * 40503u;

	return (x ^ x >> 15) * 2246822519u;
}

static __global__ void fill(uint32_t *words, uint32_t n, uint32_t frame)
{
	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		words[i] = word_of(frame, i);
}

static __global__ void add_up(const uint32_t *words, uint32_t n, unsigned long long *sum)
{
	unsigned long long part = 0;

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		part += words[i];
	atomicAdd(sum, part);
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
/* A consumer                                                                                  */

struct report {
	int frame;
	unsigned long long sum;
};

static void consume(int frames, int reports)
{
	unsigned long long *sum;
	share_client *client;
	share_buffer *frame;
	cudaStream_t stream;
	share_pool *pool;
	struct report r;
	char name[64];

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMalloc(&sum, sizeof(*sum)), "cudaMalloc");
	for (r.frame = 0; r.frame < frames; r.frame++) {
		snprintf(name, sizeof(name), NAME, r.frame);
		check(share_lookup(client, name, SHARE_RDONLY, TIMEOUT_MS, stream, &frame), name);
		check(cudaMemsetAsync(sum, 0, sizeof(*sum), stream), "cudaMemsetAsync");
		add_up<<<BLOCKS, THREADS, 0, stream>>>((const uint32_t *)share_ptr(frame), WORDS,
						       sum);
		check(cudaGetLastError(), "add_up");
		check(share_release(frame, stream), "share_release");
		check(cudaMemcpyAsync(&r.sum, sum, sizeof(r.sum), cudaMemcpyDeviceToHost, stream),
		      "cudaMemcpyAsync");
		check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
		if (write(reports, &r, sizeof(r)) != sizeof(r))
			fail("nobody reads the reports");
	}
	check(cudaFree(sum), "cudaFree");
	share_pool_close(pool);
	share_disconnect(client);
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static void start_consumer(int frames, const int *reports)
{
	char frames_text[16], reports_text[16];
	pid_t pid = fork();

	if (pid < 0)
		fail("fork failed");
	if (pid > 0)
		return;
	close(reports[0]);
	snprintf(frames_text, sizeof(frames_text), "%d", frames);
	snprintf(reports_text, sizeof(reports_text), "%d", reports[1]);
	execl("/proc/self/exe", "cuda_pipeline", "--consumer", frames_text, reports_text,
	      (char *)NULL);
	_exit(127);
}

/* ------------------------------------------------------------------------------------------- */
/* The producer                                                                                */

/* Once all consumers are done with a frame its name goes, and with it the frame. */
static void collect(share_client *client, int frame, int consumers, int reports)
{
	static int seen[DEPTH + 1]; /* reports of the frames from @frame on, and a 0 */
	unsigned long long expected;
	struct report r;
	char name[64];

	while (seen[0] < consumers) {
		if (read(reports, &r, sizeof(r)) != sizeof(r))
			fail("the consumers have ended");
		expected = 0;
		for (uint32_t i = 0; i < WORDS; i++)
			expected += word_of((uint32_t)r.frame, i);
		if (r.sum != expected)
			fail("frame %d: the sum is %llu, and should be %llu", r.frame, r.sum,
			     expected);
		seen[r.frame - frame]++;
	}
	memmove(seen, seen + 1, sizeof(seen) - sizeof(*seen));
	snprintf(name, sizeof(name), NAME, frame);
	check(share_unpublish(client, name), name);
}

static void produce(share_client *client, share_pool *pool, int frames, int consumers, int reports)
{
	share_buffer *frame;
	cudaStream_t stream;
	char name[64];

	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	for (int k = 0; k < frames + DEPTH; k++) {
		if (k >= DEPTH && k - DEPTH < frames)
			collect(client, k - DEPTH, consumers, reports);
		if (k >= frames)
			continue;
		check(share_alloc(pool, WORDS * sizeof(uint32_t), stream, &frame), "share_alloc");
		fill<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)share_ptr(frame), WORDS,
						     (uint32_t)k);
		check(cudaGetLastError(), "fill");
		snprintf(name, sizeof(name), NAME, k);
		check(share_publish(frame, name, stream), name);
		check(share_release(frame, stream), "share_release");
	}
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static int run(const char *kind, int frames, int consumers)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool_info info = SHARE_POOL_INFO_INIT;
	int reports[2], status, failed = 0;
	share_client *client;
	share_pool *pool;

	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1);
	options.kind = kind;
	check(share_pool_create(client, POOL, &options, &pool), "share_pool_create");
	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	if (!info.device)
		fail("kernels need GPU memory, and this is of kind %s: %s", info.kind, info.reason);
	if (pipe(reports) < 0)
		fail("pipe failed");
	for (int i = 0; i < consumers; i++)
		start_consumer(frames, reports);
	close(reports[1]); /* the consumers have it */
	produce(client, pool, frames, consumers, reports[0]);
	while (wait(&status) > 0)
		failed += status != 0;
	if (failed)
		fail("%d of the consumers failed", failed);
	printf("cuda_pipeline: ok kind=%s consumers=%d frames=%d bytes=%zu\n", info.kind, consumers,
	       frames, (size_t)WORDS * sizeof(uint32_t) * (size_t)frames * (size_t)consumers);
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "auto";
	int frames = argc > 2 ? atoi(argv[2]) : 32, consumers = argc > 3 ? atoi(argv[3]) : 3;

	if (argc == 4 && strcmp(argv[1], "--consumer") == 0) {
		consume(atoi(argv[2]), atoi(argv[3]));
		return 0;
	}
	if (argc > 4 || kind[0] == '-' || frames < 1 || consumers < 1 ||
	    consumers > CONSUMERS_MAX) {
		fprintf(stderr,
			"usage: cuda_pipeline [KIND [FRAMES [CONSUMERS]]]\n"
			"KIND is auto (default), vmm or mempool\n");
		return 1;
	}
	return run(kind, frames, consumers);
}
