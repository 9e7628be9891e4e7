/* SPDX-License-Identifier: MIT */

/*
 * fences: passes on memory on which work is still being done, without waiting for that work.
 *
 * The parent has a stream fill a buffer, slowly, and publishes the buffer behind that work: both
 * calls return at once. The child gets the buffer at once, too, and finds out about its content in
 * each of the three possible ways:
 *
 *   - It has a stream of its own do something with it, which is ordered after the parent's work.
 *   - It asks (share_buffer_status()), or is told by a callback (share_buffer_watch()).
 *   - It waits for a fence (share_fence_synchronize()): a point on a stream, 16 bytes that may be
 *     sent to other processes by any means; here it is the parent's, in another buffer.
 *
 * The streams here are threads of the library, on memory of the host. With memory of a GPU they are
 * CUDA streams, the work is kernels, and everything else is the same.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <share/share.h>

#define SIZE       (1 << 20)
#define TIMEOUT_MS 10000

static const char *role = "parent";

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "fences: %s: %s: %s (%s)\n", role, what, share_strerror(result),
		share_error_detail());
	exit(1);
}

/* ------------------------------------------------------------------------------------------- */
/* What runs on streams                                                                        */

static void fill(void *data)
{
	nanosleep(&(struct timespec){0, 200000000}, NULL); /* like a kernel that takes some time */
	memset(data, 42, SIZE);
}

struct sum {
	const unsigned char *bytes;
	unsigned long total;
};

static void add_up(void *data)
{
	struct sum *s = data;

	for (size_t i = 0; i < SIZE; i++)
		s->total += s->bytes[i];
}

/* ------------------------------------------------------------------------------------------- */

static void on_good(int status, void *data)
{
	*(int *)data = 1;
	printf("child: told that the data is %s\n", status == 0 ? "good" : "lost");
}

static void consume(void)
{
	share_buffer *buffer, *fence_buffer;
	share_host_stream *stream;
	share_client *client;
	share_fence fence;
	struct pollfd ready;
	struct sum sum;
	int told = 0;

	role = "child";
	check(share_connect(NULL, &client), "share_connect");
	check(share_host_stream_create(client, &stream), "share_host_stream_create");
	/* The look-up is ordered on the stream, so it does not wait for the data; without a stream
	 * it would. */
	check(share_lookup(client, "data", SHARE_RDONLY, TIMEOUT_MS, stream, &buffer),
	      "share_lookup");
	sum = (struct sum){share_ptr(buffer), 0};
	check(share_host_stream_launch(stream, add_up, &sum), "share_host_stream_launch");

	check(share_buffer_watch(buffer, on_good, &told, NULL), "share_buffer_watch");
	ready = (struct pollfd){.fd = share_get_fd(client), .events = POLLIN};
	while (!told) { /* stands for the loop of a program that has other things to do */
		if (poll(&ready, 1, TIMEOUT_MS) != 1) {
			fprintf(stderr, "fences: nobody was told\n");
			exit(1);
		}
		check(share_dispatch(client), "share_dispatch");
	}
	check(share_buffer_status(buffer), "share_buffer_status");

	check(share_lookup(client, "fence", SHARE_RDONLY, TIMEOUT_MS, NULL, &fence_buffer),
	      "share_lookup");
	memcpy(&fence, share_ptr(fence_buffer), sizeof(fence));
	check(share_fence_synchronize(client, &fence, TIMEOUT_MS), "share_fence_synchronize");
	check(share_release(fence_buffer, NULL), "share_release");

	/* When the fence of the child's own stream is reached, the result is there. */
	check(share_fence_record(client, -1, stream, &fence), "share_fence_record");
	check(share_fence_synchronize(client, &fence, TIMEOUT_MS), "share_fence_synchronize");
	printf("fences: ok sum=%lu\n", sum.total);
	check(share_release(buffer, stream), "share_release");
	share_host_stream_destroy(stream);
	share_disconnect(client);
}

int main(int argc, char **argv)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_buffer *buffer, *fence_buffer;
	share_host_stream *stream;
	share_client *client;
	share_fence fence;
	share_pool *pool;
	pid_t child;
	int status;

	if (argc > 1) {
		int help = strcmp(argv[1], "--help") == 0;

		fprintf(help ? stdout : stderr, "usage: fences\n");
		return !help;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(share_connect(getenv("SHARE_SOCKET") ? NULL : "embedded", &client), "share_connect");
	setenv("SHARE_SOCKET", share_address(client), 1); /* where the child looks */
	options.kind = "host";
	check(share_pool_create(client, "fences", &options, &pool), "share_pool_create");
	child = fork(); /* before this process creates a stream, which is a thread */
	if (child == 0) {
		consume();
		exit(0);
	}
	check(share_host_stream_create(client, &stream), "share_host_stream_create");

	check(share_alloc(pool, SIZE, stream, &buffer), "share_alloc");
	check(share_host_stream_launch(stream, fill, share_ptr(buffer)),
	      "share_host_stream_launch");
	check(share_publish(buffer, "data", stream), "share_publish"); /* ordered behind the fill */
	check(share_release(buffer, stream), "share_release");         /* this too */

	check(share_fence_record(client, -1, stream, &fence), "share_fence_record");
	printf("parent: published, and the work is %s\n",
	       share_fence_query(client, &fence) == SHARE_EAGAIN ? "still running" : "done");
	check(share_alloc(pool, sizeof(fence), NULL, &fence_buffer), "share_alloc");
	memcpy(share_ptr(fence_buffer), &fence, sizeof(fence));
	check(share_publish(fence_buffer, "fence", NULL), "share_publish");
	check(share_release(fence_buffer, NULL), "share_release");

	if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "fences: the child failed\n");
		return 1;
	}
	share_host_stream_destroy(stream);
	share_pool_close(pool);
	share_disconnect(client);
	return 0;
}
