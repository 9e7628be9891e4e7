/* SPDX-License-Identifier: MIT */

/*
 * CUDA streams without a broker. It was to release the streams that wait for a process which dies:
 * so from then on no stream is made to wait for others, the host waits in its place.
 */

#include <pthread.h>

#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_lost_broker, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { NEVER, SOON }; /* gates */

/* Its buffer can be had at once, its fences cannot: the first is reached when SOON is open. */
static void owes(struct child *self, void *data)
{
	share_client *c = child_connect("owner");
	share_fence fences[2];
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	check_ok(share_publish(b, "work", stream));
	gpu_wait(stream);
	gpu_hold(stream, SOON);
	check_ok(share_fence_record(c, 0, stream, &fences[0]));
	gpu_hold(stream, NEVER);
	check_ok(share_fence_record(c, 0, stream, &fences[1]));
	child_point_with(self, "owing", fences, sizeof(fences));
}

struct wait {
	share_fence fence;
	void *stream;
	int result;
	pthread_t thread;
};

static void *wait_for(void *data)
{
	struct wait *w = data;

	gpu_use();
	w->result = share_fence_wait(gpu_client, &w->fence, 0, w->stream);
	return NULL;
}

static void wait_start(struct wait *w, unsigned n)
{
	check(pthread_create(&w->thread, NULL, wait_for, w) == 0);
	until(gpu_stats(gpu_client).host_waits == n);
	gpu_expect_others_run();
}

static void wait_end(struct wait *w, int result)
{
	check(pthread_join(w->thread, NULL) == 0);
	check_error(w->result, result);
	check(!gpu_is_busy(w->stream));
}

Test(gpu_lost_broker, a_death_that_no_broker_sees_leaves_no_stream_behind)
{
	struct child *owner = child_start(owes, NULL);
	struct wait first = {.result = 1}, second = {.result = 1};
	share_fence fences[2];
	share_buffer *b;
	void *stream;

	child_wait_with(owner, "owing", fences, sizeof(fences));
	gpu_use();
	stream = gpu_stream();
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	check_error(share_fence_query(gpu_client, &fences[1]), SHARE_EAGAIN);
	broker_kill();
	check_error(share_ping(gpu_client), SHARE_EDISCONNECTED);
	first.stream = second.stream = stream;
	first.fence = fences[0];
	wait_start(&first, 1);
	gpu_open(SOON);
	wait_end(&first, 0);
	second.fence = fences[1];
	wait_start(&second, 2);
	child_kill(owner);
	wait_end(&second, SHARE_EOWNERDEAD);
	check_eq(gpu_stats(gpu_client).waits, 0);
	check_eq(gpu_stats(gpu_client).parked, 0);
	check_error(share_release(b, stream), SHARE_EDISCONNECTED);
	gpu_stream_destroy(stream);
}

Test(gpu_lost_broker, streams_of_one_process_still_wait_for_each_other)
{
	void *busy, *stream;
	share_fence fence;
	share_buffer *b;

	gpu_use();
	busy = gpu_stream();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	broker_kill();
	check_error(share_ping(gpu_client), SHARE_EDISCONNECTED);
	gpu_hold(busy, SOON);
	check_ok(share_fence_record(gpu_client, 0, busy, &fence));
	check_ok(share_fence_wait(gpu_client, &fence, 0, stream));
	check_eq(gpu_stats(gpu_client).waits, 1);
	gpu_expect_held(stream, SOON);
	gpu_open(SOON);
	gpu_wait(stream);
	check_error(share_release(b, stream), SHARE_EDISCONNECTED);
	gpu_stream_destroy(busy);
	gpu_stream_destroy(stream);
}
