/* SPDX-License-Identifier: MIT */

/*
 * What counts_test.sh counts the instructions and the driver's calls of, over the stand-in for the
 * driver: fences on streams of a GPU, and memory of one that the process keeps. Each function here
 * calls one function of the library, once. What the driver does is not counted.
 *
 * usage: counts_gpu VALGRIND OUT, which starts a broker, and itself under callgrind, and says on
 * stdout how often each function of the library called the driver; or counts_gpu ADDRESS.
 */

#include <cuda.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/fence.h>
#include <share/share.h>

#include "tests/standin/calls.h"

#define TURNS 400

#define COUNTED __attribute__((noinline, noipa))

static share_client *client, *peer;
static share_pool *pool;
static share_buffer *buffer;
static share_host_stream *before;
static sem_t gate;
static CUstream stream;
static CUresult (*synchronize)(CUstream);
static share_fence fence, behind;
static struct standin_calls *calls;

static void must(int r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "counts_gpu: %s\n", share_error_detail());
	exit(1);
}

static void must_driver(CUresult r)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "counts_gpu: the driver: %d\n", r);
	exit(1);
}

/* What is counted, and the same before that, so that what happens once is over. */
#define STEP(name, ...)                    \
	static void name(void)             \
	{                                  \
		must(__VA_ARGS__);         \
	}                                  \
	COUNTED void counted_##name(void); \
	void counted_##name(void)          \
	{                                  \
		name();                    \
	}

STEP(fence_signal, share_fence_record(client, 0, stream, &behind))
STEP(fence_wait, share_fence_wait(client, &fence, 0, stream))
STEP(fence_wait_reached, share_fence_wait(client, &fence, 0, stream))
STEP(fence_query_pending, share_fence_query(client, &fence) == SHARE_EAGAIN ? 0 : -1)
STEP(fence_query, share_fence_query(client, &fence))
STEP(gpu_alloc, share_alloc(pool, 4096, stream, &buffer))
STEP(gpu_release, share_release(buffer, stream))

/* ------------------------------------------------------------------------------------------- */

static void find(void *function, const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *symbol = library ? dlsym(library, name) : NULL;

	if (!symbol) {
		fprintf(stderr, "counts_gpu: there is no %s\n", name);
		exit(1);
	}
	memcpy(function, &symbol, sizeof(symbol));
}

static void start_driver(void)
{
	CUresult (*init)(unsigned);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*push)(CUcontext);
	CUresult (*create)(CUstream *, unsigned);
	CUcontext context;

	find(&init, "cuInit");
	find(&retain, "cuDevicePrimaryCtxRetain");
	find(&push, "cuCtxPushCurrent_v2");
	find(&create, "cuStreamCreate");
	find(&synchronize, "cuStreamSynchronize");
	must_driver(init(0));
	must_driver(retain(&context, 0));
	must_driver(push(context));
	must_driver(create(&stream, CU_STREAM_NON_BLOCKING));
}

static void stand_at_gate(void *data)
{
	while (sem_wait(data) < 0)
		;
}

static uint64_t count_calls(void)
{
	uint64_t n = 0;

	for (int i = 0; i < STANDIN_FUNCTION_COUNT; i++)
		n += atomic_load(&calls->count[i]);
	return n;
}

/* Says how often the driver is called. */
static void say(const char *name, void (*step)(void))
{
	uint64_t n = count_calls();

	step();
	printf("%s %llu\n", name, (unsigned long long)(count_calls() - n));
}

enum turn { BEFORE, SAID, COUNTS };

static void take(enum turn turn, const char *name, void (*step)(void), void (*counted)(void))
{
	if (turn == SAID)
		say(name, step);
	else if (turn == COUNTS)
		counted();
	else
		step();
}
#define TAKE(turn, name) take(turn, #name, name, counted_##name)

static void play(enum turn turn)
{
	must(share_host_stream_launch(before, stand_at_gate, &gate));
	must(share_fence_record(peer, -1, before, &fence));
	TAKE(turn, fence_signal);
	TAKE(turn, fence_query_pending);
	TAKE(turn, fence_wait);
	sem_post(&gate);
	must_driver(synchronize(stream));
	must(share_host_stream_synchronize(before));
	TAKE(turn, fence_query);
	TAKE(turn, fence_wait_reached);
	TAKE(turn, gpu_alloc);
	TAKE(turn, gpu_release);
}

static int run(const char *address)
{
	share_pool_options memory = SHARE_POOL_OPTIONS_INIT;

	calls = standin_calls_open(getenv("SHARE_STANDIN_CALLS"));
	if (!calls)
		return 1;
	start_driver();
	must(share_connect(address, &client));
	must(share_connect(address, &peer));
	memory.kind = "vmm";
	must(share_pool_create(client, "counts", &memory, &pool));
	must_driver(sem_init(&gate, 0, 0) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
	must(share_host_stream_create(peer, &before));
	for (int i = 0; i < TURNS; i++)
		play(BEFORE);
	play(SAID);
	for (int i = 0; i < TURNS; i++)
		play(COUNTS);
	fflush(stdout);
	_exit(0); /* the broker, which is no child of ours, sees us go */
}

int main(int argc, char **argv)
{
	char file[1024];
	share_client *c;
	pid_t pid;
	int status;

	if (argc == 2)
		return run(argv[1]);
	if (argc != 3)
		return 64;
	must(share_connect("embedded", &c));
	snprintf(file, sizeof(file), "--callgrind-out-file=%s", argv[2]);
	pid = fork();
	if (pid == 0) {
		execl(argv[1], argv[1], "--tool=callgrind", "-q", file,
		      "--toggle-collect=counted_*", "--toggle-collect=cuStream*",
		      "--toggle-collect=cuCtx*", "--toggle-collect=cuEvent*",
		      "--separate-threads=yes", argv[0], share_address(c), (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	share_disconnect(c);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
