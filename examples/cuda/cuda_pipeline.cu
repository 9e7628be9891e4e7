/* SPDX-License-Identifier: MIT */

/*
 * cuda_pipeline: kernels of one process make frames, and kernels of others work on them without a
 * copy.
 *
 * The producer fills each frame with a kernel and sends it through a channel, in broadcast, without
 * waiting for the kernel: a consumer that receives the frame on a stream is ordered after what the
 * producer had enqueued. The consumers add up all words of all frames with a kernel of theirs, and
 * acknowledge each frame without waiting for it: the memory is not used again before their kernels
 * have finished. No process waits for a GPU before the end. Then each consumer reports its sum
 * through a pipe to the producer, which knows the right one.
 *
 * A CUDA context does not survive a fork. So consumers are started by fork and exec before this
 * process uses CUDA, and each opens a connection of its own.
 */

#include <share/channel.h>

#include "common.h"

#define POOL          "cuda-pipeline"
#define CHANNEL       "cuda-pipeline"
#define WORDS         (1u << 20) /* words in a frame */
#define BLOCKS        128
#define THREADS       256
#define CONSUMERS_MAX 64
#define TIMEOUT_MS    30000 /* only so that a stuck pipeline ends */

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

/* Adds the words up, weighted by the number of the frame, so that no frame can stand for
 * another. */
static __global__ void add_up(const uint32_t *words, uint32_t n, uint64_t frame,
			      unsigned long long *sum)
{
	unsigned long long part = 0;

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		part += words[i] * (frame + 1);
	atomicAdd(sum, part);
}

static unsigned long long expected_sum(uint32_t frames)
{
	unsigned long long sum = 0;

	for (uint32_t k = 0; k < frames; k++)
		for (uint32_t i = 0; i < WORDS; i++)
			sum += word_of(k, i) * (k + 1ull);
	return sum;
}

static share_channel *open_channel(share_client *client, int as)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *frames;

	options.pool = POOL;
	options.depth = 4;
	check(share_channel_open(client, CHANNEL, as, &options, &frames), "share_channel_open");
	return frames;
}

/* Runs in a consumer. It reports a 0 when it can receive, and the sum at the end. */
static void consume(int reports)
{
	unsigned long long *sum, report = 0;
	share_channel *frames;
	share_client *client;
	cudaStream_t stream;
	share_pool *pool;
	share_message m = SHARE_MESSAGE_INIT;
	int r;

	check(share_connect(NULL, &client), "share_connect");
	check(share_pool_open(client, POOL, &pool), "share_pool_open");
	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	check(cudaMalloc(&sum, sizeof(*sum)), "cudaMalloc");
	check(cudaMemsetAsync(sum, 0, sizeof(*sum), stream), "cudaMemsetAsync");
	frames = open_channel(client, SHARE_CONSUMER);
	check_system(write(reports, &report, sizeof(report)) == sizeof(report), "write");
	while ((r = share_recv(frames, TIMEOUT_MS, stream, &m)) == 0) {
		add_up<<<BLOCKS, THREADS, 0, stream>>>((const uint32_t *)share_ptr(m.buffer), WORDS,
						       m.number, sum);
		check(cudaGetLastError(), "add_up");
		check(share_ack(&m, stream), "share_ack");
	}
	if (r != SHARE_EPIPE) /* the producer has closed the channel */
		check(r, "share_recv");
	check(cudaMemcpy(&report, sum, sizeof(report), cudaMemcpyDeviceToHost), "cudaMemcpy");
	check_system(write(reports, &report, sizeof(report)) == sizeof(report), "write");
	check(cudaFree(sum), "cudaFree");
	share_channel_close(frames);
	share_pool_close(pool);
	share_disconnect(client);
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static void start_consumer(const int *reports)
{
	char text[16];
	pid_t pid = fork();

	check_system(pid >= 0, "fork");
	if (pid > 0)
		return;
	close(reports[0]);
	snprintf(text, sizeof(text), "%d", reports[1]);
	execl("/proc/self/exe", "cuda_pipeline", "--consumer", text, (char *)NULL);
	_exit(127);
}

static void produce(share_client *client, share_pool *pool, uint32_t n)
{
	share_channel *frames = open_channel(client, SHARE_PRODUCER);
	share_buffer *frame;
	cudaStream_t stream;

	use_device_of(pool);
	check(cudaStreamCreate(&stream), "cudaStreamCreate");
	for (uint32_t k = 0; k < n; k++) {
		check(share_alloc(pool, WORDS * sizeof(uint32_t), stream, &frame), "share_alloc");
		fill<<<BLOCKS, THREADS, 0, stream>>>((uint32_t *)share_ptr(frame), WORDS, k);
		check(cudaGetLastError(), "fill");
		check(share_give(frames, frame, NULL, 0, stream), "share_give");
	}
	share_channel_close(frames);
	check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

static void expect_reports(int reports, int n, unsigned long long expected)
{
	unsigned long long report;

	for (int i = 0; i < n; i++) {
		if (read(reports, &report, sizeof(report)) != sizeof(report))
			fail("a consumer has failed");
		if (report != expected)
			fail("a sum is %llu, and should be %llu", report, expected);
	}
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
	check_system(pipe(reports) == 0, "pipe");
	for (int i = 0; i < consumers; i++)
		start_consumer(reports);
	close(reports[1]); /* only the consumers need it */
	expect_reports(reports[0], consumers, 0);
	produce(client, pool, (uint32_t)frames);
	expect_reports(reports[0], consumers, expected_sum((uint32_t)frames));
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
	int frames = argc > 2 ? atoi(argv[2]) : 32, consumers = argc > 3 ? atoi(argv[3]) : 3;
	const char *kind = argc > 1 ? argv[1] : "auto";
	bool help = strcmp(kind, "--help") == 0;

	if (argc == 3 && strcmp(kind, "--consumer") == 0) {
		consume(atoi(argv[2]));
		return 0;
	}
	if (argc > 4 || kind[0] == '-' || frames < 1 || consumers < 1 ||
	    consumers > CONSUMERS_MAX) {
		fprintf(help ? stdout : stderr,
			"usage: cuda_pipeline [KIND [FRAMES [CONSUMERS]]]\n"
			"KIND is auto (default), vmm or mempool.\n");
		return !help;
	}
	return run(kind, frames, consumers);
}
