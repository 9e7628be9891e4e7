/* SPDX-License-Identifier: MIT */

/*
 * Rule 5 on CUDA streams: a fence is handed out once its signal is enqueued, and is reached when
 * what was enqueued before it is done; never sooner, and always in the end.
 */

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "libshare/client/client.h"
#include "tests/harness/fixture.h"
#include "tests/support/drivers.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"
#include "wire/wire.h"

TestSuite(gpu_signal, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { FIRST, SECOND }; /* gates */

Test(gpu_signal, rule_5_a_fence_is_reached_with_what_was_enqueued_before_it_and_not_sooner)
{
	share_fence first, second;
	share_buffer *b;
	void *s;

	gpu_use();
	s = gpu_stream();
	b = gpu_allocate(gpu_client, s);
	gpu_hold(s, FIRST);
	check_ok(share_fence_record(gpu_client, 0, s, &first));
	gpu_hold(s, SECOND);
	check_ok(share_fence_record(gpu_client, 0, s, &second));
	check_eq(second.timeline, first.timeline);
	check(second.value > first.value);
	gpu_expect_others_run();
	check_error(share_fence_query(gpu_client, &first), SHARE_EAGAIN);
	gpu_open(FIRST);
	check_ok(share_fence_synchronize(gpu_client, &first, -1));
	gpu_expect_others_run();
	check_error(share_fence_query(gpu_client, &second), SHARE_EAGAIN);
	check_error(share_fence_synchronize(gpu_client, &second, 1), SHARE_ETIMEDOUT);
	gpu_open(SECOND);
	check_ok(share_fence_synchronize(gpu_client, &second, -1));
	check_ok(share_release(b, s));
	gpu_wait(s);
	gpu_stream_destroy(s);
}

/* ------------------------------------------------------------------------------------------- */

enum { SIGNALERS = 4, SIGNALS = 200, ALL = SIGNALERS * SIGNALS };

struct signaling {
	void *stream;
	share_fence fences[SIGNALERS][SIGNALS];
	atomic_uint done;
	pthread_t threads[SIGNALERS];
};

static struct signaling signaling;

static void *signal_often(void *data)
{
	share_fence *fences = data;

	for (int i = 0; i < SIGNALS; i++)
		check_ok(share_fence_record(gpu_client, 0, signaling.stream, &fences[i]));
	atomic_fetch_add(&signaling.done, 1);
	return NULL;
}

/* Each value is somebody's, and everybody's come in order. */
static void expect_each_value_once(uint64_t timeline, uint64_t first)
{
	static bool seen[ALL];

	for (int i = 0; i < SIGNALERS; i++)
		for (int k = 0; k < SIGNALS; k++) {
			share_fence f = signaling.fences[i][k];

			check_eq(f.timeline, timeline);
			check(k == 0 || f.value > signaling.fences[i][k - 1].value);
			check(f.value >= first && f.value < first + ALL && !seen[f.value - first]);
			seen[f.value - first] = true;
		}
}

Test(gpu_signal, rule_5_threads_that_signal_one_stream_make_values_that_only_grow)
{
	uint64_t last = 0, now, slot;
	share_fence before;
	share_buffer *b;

	gpu_use();
	signaling.stream = gpu_stream();
	b = gpu_allocate(gpu_client, signaling.stream);
	check_ok(share_fence_record(gpu_client, 0, signaling.stream, &before));
	slot = WIRE_TIMELINE_SLOT(before.timeline);
	for (int i = 0; i < SIGNALERS; i++)
		check(pthread_create(&signaling.threads[i], NULL, signal_often,
				     signaling.fences[i]) == 0);
	do {
		now = atomic_load(&client_of(gpu_client)->page->slots[slot].value);
		check(now >= last);
		last = now;
	} while (signaling.done < SIGNALERS);
	for (int i = 0; i < SIGNALERS; i++)
		check(pthread_join(signaling.threads[i], NULL) == 0);
	gpu_wait(signaling.stream);
	check_eq(atomic_load(&client_of(gpu_client)->page->slots[slot].value), before.value + ALL);
	expect_each_value_once(before.timeline, before.value + 1);
	check_ok(share_release(b, signaling.stream));
	gpu_wait(signaling.stream);
	gpu_stream_destroy(signaling.stream);
}

/* ------------------------------------------------------------------------------------------- */
/* A driver that does not take a signal                                                        */

/* Nobody waits for a value that was never to be written: not who gets the next fence, nor the end
 * of the client. */
Test(gpu_signal, rule_5_a_signal_that_the_driver_refuses_is_an_error_and_leaves_no_gap)
{
	share_client *c = connect_as("refused");
	share_fence fence = {17, 18}, next;
	share_buffer *b;
	void *stream;

	skip_unless_standin();
	drivers_prepare();
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	check_ok(share_fence_record(c, 0, stream, &next));
	drivers_do("cuStreamWriteValue64 fail CUDA_ERROR_OUT_OF_MEMORY\n");
	check(share_fence_record(c, 0, stream, &fence) < 0);
	check_detail("CUDA_ERROR_OUT_OF_MEMORY");
	check_eq(fence.timeline, 17);
	check(share_publish(b, "work", stream) < 0);
	drivers_do("");
	check_ok(share_fence_record(c, 0, stream, &fence));
	check_eq(fence.value, next.value + 1);
	check_ok(share_fence_synchronize(c, &fence, -1));
	drivers_do("cuStreamWriteValue64 fail CUDA_ERROR_OUT_OF_MEMORY\n");
	check(share_fence_record(c, 0, stream, &fence) < 0);
	/* what it cannot put a fence behind, a release waits for */
	gpu_fill(stream, b, 1);
	check_ok(share_release(b, stream));
	check(!gpu_is_busy(stream));
	share_disconnect(c);
	settle(gpu_client, s.clients == 1 && s.quarantined == 0);
	drivers_do("");
	drivers_done();
	gpu_stream_destroy(stream);
}

/* One client's stream is busy, another's waits for it. */
Test(gpu_signal, rule_5_a_wait_that_the_driver_refuses_is_made_when_it_is_asked_for_again)
{
	share_fence fence;
	share_buffer *b;
	void *busy, *stream;

	skip_unless_standin();
	drivers_prepare();
	gpu_use();
	busy = gpu_stream();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	gpu_hold(busy, FIRST);
	check_ok(share_fence_record(gpu_client, 0, busy, &fence));
	drivers_do("cuStreamWaitValue64 fail CUDA_ERROR_OUT_OF_MEMORY\n");
	check_error(share_fence_wait(gpu_client, &fence, 0, stream), SHARE_ENOMEM);
	drivers_do("");
	check_ok(share_fence_wait(gpu_client, &fence, 0, stream));
	check_eq(gpu_stats(gpu_client).waits, 1);
	gpu_expect_held(stream, FIRST);
	gpu_open(FIRST);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	drivers_done();
	gpu_stream_destroy(busy);
	gpu_stream_destroy(stream);
}

struct answer {
	share_buffer *buffer;
	int calls;
};

static void take(share_buffer *b, int error, void *data)
{
	struct answer *answer = data;

	check_ok(error);
	answer->buffer = b;
	answer->calls++;
}

/* That a stream would have to be waited for shows only when it is ordered. */
Test(gpu_signal, rule_8_dispatch_does_not_wait_for_what_takes_a_page_that_does_not_register)
{
	share_client *c = connect_as("dispatching");
	struct answer answer = {.calls = 0};
	void *busy, *stream;
	share_buffer *b;

	skip_unless_standin();
	drivers_prepare();
	gpu_use();
	busy = gpu_stream();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	gpu_hold(busy, FIRST);
	check_ok(share_publish(b, "work", busy));
	drivers_do("cuMemHostRegister fail CUDA_ERROR_NOT_SUPPORTED\n");
	check_ok(share_lookup_async(c, "work", SHARE_RDONLY, -1, stream, take, &answer, NULL));
	check_ok(share_ping(c));
	check_eq(share_dispatch(c), 1);
	check_eq(answer.calls, 0);
	check(!gpu_is_open(FIRST));
	gpu_open(FIRST);
	until((share_dispatch(c), answer.calls));
	check_eq(gpu_ordered(answer.buffer), SHARE_ORDERED_BY_HOST);
	check_eq(gpu_stats(c).waits, 0);
	check_ok(share_release(answer.buffer, stream));
	drivers_do("");
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, busy));
	gpu_wait(busy);
	share_disconnect(c);
	drivers_done();
	gpu_stream_destroy(busy);
	gpu_stream_destroy(stream);
}

Test(gpu_signal, rule_8_the_host_does_what_takes_a_page_that_the_driver_does_not_register)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_buffer *b, *others;
	share_fence fence, done;
	void *busy, *stream;
	share_client *c;

	skip_unless_standin();
	drivers_prepare();
	options.flags = SHARE_CONNECT_NEVER_BLOCK;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	gpu_use();
	busy = gpu_stream();
	stream = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	check_ok(share_publish(b, "work", busy));
	gpu_wait(busy); /* what the look-up comes after is reached */
	gpu_hold(busy, FIRST);
	check_ok(share_fence_record(gpu_client, 0, busy, &fence));
	gpu_wait(stream);
	drivers_do("cuMemHostRegister fail CUDA_ERROR_NOT_SUPPORTED\n");
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, NULL, &others));
	check_ok(share_fence_record(c, 0, stream, &done));
	check_eq(done.timeline, 0);
	check_eq(gpu_stats(c).host_signals, 1);
	/* which is not to block */
	check_error(share_fence_wait(c, &fence, 0, stream), SHARE_EAGAIN);
	drivers_do("");
	check_ok(share_fence_wait(c, &fence, 0, stream));
	gpu_expect_held(stream, FIRST);
	gpu_open(FIRST);
	gpu_wait(stream);
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(others, stream));
	check_ok(share_release(b, busy));
	gpu_wait(busy);
	gpu_wait(stream);
	share_disconnect(c);
	drivers_done();
	gpu_stream_destroy(busy);
	gpu_stream_destroy(stream);
}
