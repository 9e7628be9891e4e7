/* SPDX-License-Identifier: MIT */

/*
 * CUDA streams of every sort: each has a timeline of its own, whatever becomes of the stream and
 * however many there are; streams that are captured are left alone; a client that ends waits for
 * its streams, and for nobody else's.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <share/share.h>

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"
#include "wire/wire.h"

TestSuite(gpu_streams, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { GATE };

static share_fence record(void *stream)
{
	share_fence fence;

	check_ok(share_fence_record(gpu_client, 0, stream, &fence));
	return fence;
}

static void release(share_buffer *b, void *stream)
{
	check_ok(share_release(b, stream));
	gpu_wait(stream);
}

/* ------------------------------------------------------------------------------------------- */
/* Many streams                                                                                */

#define TIMELINES 191 /* that a client has for CUDA streams */

Test(gpu_streams, timelines_of_destroyed_streams_are_used_again_when_all_on_them_is_reached)
{
	static uint64_t values[TIMELINES + 1]; /* the last on each */
	share_buffer *b;
	share_host_stream *host;
	share_fence late;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	gpu_hold(stream, GATE);
	late = record(stream);
	gpu_stream_destroy(stream); /* which will still write its value */
	for (int i = 0; i < 3 * TIMELINES; i++) {
		share_fence fence;

		stream = gpu_stream();
		fence = record(stream);
		check(fence.timeline != late.timeline);
		check(fence.value > values[WIRE_TIMELINE_SLOT(fence.timeline)]);
		values[WIRE_TIMELINE_SLOT(fence.timeline)] = fence.value;
		gpu_wait(stream);
		check_ok(share_fence_query(gpu_client, &fence));
		gpu_stream_destroy(stream);
	}
	check_eq(gpu_stats(gpu_client).signals, 3 * TIMELINES + 1);
	check_eq(gpu_stats(gpu_client).host_signals, 0);
	check_error(share_fence_query(gpu_client, &late), SHARE_EAGAIN);
	/* and they are not all of the client's */
	check_ok(share_host_stream_create(gpu_client, &host));
	share_host_stream_destroy(host);
	gpu_open(GATE);
	check_ok(share_fence_synchronize(gpu_client, &late, -1));
	stream = gpu_stream();
	release(b, stream);
	gpu_stream_destroy(stream);
}

/* Over a real driver, a stream that was destroyed may be anything. */
Test(gpu_streams, a_release_on_what_is_no_stream_keeps_the_handle)
{
	share_buffer *b, *next;
	void *stream, *gone;

	skip_unless_standin();
	gpu_use();
	stream = gpu_stream();
	gone = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	gpu_hold(stream, GATE);
	gpu_fill(stream, b, 1);
	gpu_stream_destroy(gone);
	check_error(share_release(b, gone), SHARE_EINVAL);
	check_detail("CUDA_ERROR_INVALID_HANDLE");
	check_error(share_publish(b, "work", gone), SHARE_EINVAL);
	check_eq(share_size(b), GPU_BLOCK);
	check_ok(share_release(b, stream));
	/* so whoever gets it next comes after the work */
	gone = gpu_stream();
	next = gpu_allocate(gpu_client, gone);
	check_eq(gpu_ordered(next), SHARE_ORDERED_ON_STREAM);
	gpu_expect_held(gone, GATE);
	gpu_open(GATE);
	release(next, gone);
	gpu_stream_destroy(gone);
	gpu_stream_destroy(stream);
}

/* Over a real driver, so many streams behind one event stop others, too. */
Test(gpu_streams, a_stream_that_gets_no_timeline_is_signaled_for_by_the_host)
{
	static void *streams[TIMELINES];
	static share_fence fences[TIMELINES];
	struct failure failure;
	const struct cuda *cu;
	share_fence fence;
	share_buffer *b;
	void *stream, *idle;
	CUevent event;

	skip_unless_standin();
	gpu_use();
	check_ok(cuda_get(&cu, &failure));
	gpu_check("cuEventCreate", cu->EventCreate(&event, CU_EVENT_DISABLE_TIMING));
	stream = gpu_stream();
	idle = gpu_stream();
	b = gpu_allocate(gpu_client, stream);
	gpu_hold(stream, GATE);
	gpu_check("cuEventRecord", cu->EventRecord(event, stream));
	for (int i = 0; i < TIMELINES; i++) {
		streams[i] = gpu_stream();
		gpu_check("cuStreamWaitEvent", cu->StreamWaitEvent(streams[i], event, 0));
		fences[i] = record(streams[i]);
		check(fences[i].timeline != 0);
	}
	check_eq(gpu_stats(gpu_client).host_signals, 0);
	fence = record(idle);
	check_eq(fence.timeline, 0);
	check_eq(gpu_stats(gpu_client).host_signals, 1);
	fence = record(streams[0]); /* which has one */
	check_eq(fence.timeline, fences[0].timeline);
	gpu_open(GATE);
	check_ok(share_fence_synchronize(gpu_client, &fence, -1));
	fence = record(idle); /* others are done with theirs */
	check(fence.timeline != 0);
	for (int i = 0; i < TIMELINES; i++) {
		gpu_wait(streams[i]);
		check_ok(share_fence_query(gpu_client, &fences[i]));
		gpu_stream_destroy(streams[i]);
	}
	check_eq(gpu_stats(gpu_client).host_signals, 1);
	release(b, stream);
	gpu_check("cuEventDestroy", cu->EventDestroy(event));
	gpu_stream_destroy(stream);
	gpu_stream_destroy(idle);
}

/* ------------------------------------------------------------------------------------------- */
/* Default streams                                                                             */

Test(gpu_streams, the_legacy_stream_has_two_names_and_is_one_stream)
{
	share_buffer *b;

	gpu_use();
	b = gpu_allocate(gpu_client, NULL);
	gpu_hold(NULL, GATE);
	gpu_fill(NULL, b, 1);
	check_ok(share_release(b, NULL));
	b = gpu_allocate(gpu_client, CU_STREAM_LEGACY);
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	check_eq(gpu_stats(gpu_client).waits_saved, 1);
	check(gpu_is_busy(NULL));
	gpu_open(GATE);
	release(b, CU_STREAM_LEGACY);
}

static void *record_on_own(void *data)
{
	share_fence *fences = data;

	gpu_use();
	fences[0] = record(CU_STREAM_PER_THREAD);
	fences[1] = record(CU_STREAM_PER_THREAD);
	gpu_wait(CU_STREAM_PER_THREAD);
	return NULL;
}

Test(gpu_streams, the_per_thread_stream_is_another_one_in_each_thread)
{
	share_fence own[2], others[2];
	pthread_t thread;
	share_buffer *b;

	gpu_use();
	b = gpu_allocate(gpu_client, CU_STREAM_PER_THREAD);
	record_on_own(own);
	gpu_hold(CU_STREAM_PER_THREAD, GATE);
	gpu_fill(CU_STREAM_PER_THREAD, b, 1);
	own[1] = record(CU_STREAM_PER_THREAD);
	check(pthread_create(&thread, NULL, record_on_own, others) == 0);
	check(pthread_join(thread, NULL) == 0);
	check_eq(own[0].timeline, own[1].timeline);
	check_eq(others[0].timeline, others[1].timeline);
	check(own[0].timeline != others[0].timeline);
	check_ok(share_fence_query(gpu_client, &others[1]));
	check_error(share_fence_query(gpu_client, &own[1]), SHARE_EAGAIN);
	gpu_open(GATE);
	release(b, CU_STREAM_PER_THREAD);
}

/* ------------------------------------------------------------------------------------------- */
/* The end of a client                                                                         */

struct ending {
	share_client *client;
	atomic_bool over;
};

static void *disconnect(void *data)
{
	struct ending *e = data;

	share_disconnect(e->client);
	e->over = true;
	return NULL;
}

Test(gpu_streams, a_client_that_ends_waits_until_its_streams_have_done_what_it_was_told_of)
{
	struct ending ending = {.client = connect_as("ending")};
	pthread_t thread;
	share_buffer *b;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(ending.client, stream);
	gpu_hold(stream, GATE);
	gpu_fill(stream, b, 1);
	check_ok(share_release(b, stream));
	check(pthread_create(&thread, NULL, disconnect, &ending) == 0);
	gpu_expect_held(stream, GATE);
	check(!ending.over);
	settle(gpu_client, s.clients == 2 && s.quarantined == 0);
	gpu_open(GATE);
	check(pthread_join(thread, NULL) == 0);
	settle(gpu_client, s.clients == 1 && s.quarantined == 0 && s.segments == 0);
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

static void gives_and_stalls(struct child *self, void *data)
{
	share_client *c = child_connect("staller");
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, GATE);
	check_ok(share_publish(b, "work", stream));
	check_ok(share_release(b, stream));
	child_point(self, "given");
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	share_disconnect(c);
}

/* A stream of the program still waits then, and is not the client's to wait for. */
Test(gpu_streams, a_client_that_ends_does_not_wait_for_what_others_owe)
{
	struct child *staller = child_start(gives_and_stalls, NULL);
	share_client *c = connect_as("ending");
	void *stream, *idle;
	share_buffer *b;

	child_wait(staller, "given");
	gpu_use();
	stream = gpu_stream();
	idle = gpu_stream();
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, stream, &b));
	check_eq(gpu_ordered(b), SHARE_ORDERED_ON_STREAM);
	check_ok(share_release(b, idle));
	share_disconnect(c);
	check(!gpu_is_open(GATE));
	check(gpu_is_busy(stream));
	check_eq(gpu_stats(gpu_client).parked, 1);
	settle(gpu_client, s.clients == 2 && s.quarantined == 0);
	gpu_open(GATE);
	gpu_wait(stream);
	check_eq(gpu_stats(gpu_client).parked, 0);
	child_go(staller);
	child_finish(staller);
	gpu_stream_destroy(stream);
	gpu_stream_destroy(idle);
}

/* ------------------------------------------------------------------------------------------- */

/* The driver takes anything for a stream, and crashes. */
Test(gpu_streams, a_host_stream_that_was_given_up_is_not_taken_for_one_of_cuda)
{
	share_client *other = connect_as("other");
	share_host_stream *old, *others;
	share_buffer *b, *none;
	share_fence fence;

	gpu_use();
	b = gpu_allocate(gpu_client, NULL);
	check_ok(share_host_stream_create(gpu_client, &old));
	share_host_stream_destroy(old);
	check_given_up(share_release(b, old));
	check_given_up(share_fence_record(gpu_client, 0, old, &fence));
	check_given_up(share_lookup(gpu_client, "name", SHARE_RDONLY, 0, old, &none));
	check_ok(share_host_stream_create(other, &others));
	check_error(share_release(b, others), SHARE_EINVAL);
	check_detail("another client");
	share_host_stream_destroy(others);
	check_ok(share_release(b, NULL));
	share_disconnect(other);
}
