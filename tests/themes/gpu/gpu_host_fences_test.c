/* SPDX-License-Identifier: MIT */

/*
 * Rule 8: where a device lacks stream memory operations, or a program does not want them, fences
 * are the host's business: the same order and the same results, slower, and counted.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/harness/fixture.h"
#include "tests/harness/status.h"
#include "tests/support/gpu_work.h"

enum { GATE };

static void start_without_operations(void)
{
	gpu_work_start_on("memops=0");
}

/* A suite's own .init would run as well as the test's. */
TestSuite(gpu_host_fences, .timeout = 60);

static share_client *connect_by_host(void)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c;

	options.flags = SHARE_CONNECT_HOST_FENCES;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	return c;
}

/* ------------------------------------------------------------------------------------------- */
/* Signals: a call that puts a fence behind work returns when that is done                      */

struct call {
	share_client *client;
	share_buffer *buffer;
	void *stream;
	share_fence fence;
	atomic_bool returned;
	pthread_t thread;
};

static void *publish_record_release(void *data)
{
	struct call *call = data;

	gpu_use();
	check_ok(share_publish(call->buffer, "work", call->stream));
	call->returned = true;
	check(gpu_is_open(GATE));
	check_ok(share_fence_record(call->client, 0, call->stream, &call->fence));
	check_ok(share_release(call->buffer, call->stream));
	return NULL;
}

static void expect_signals_by_host(share_client *c)
{
	struct call call = {.client = c, .stream = gpu_stream()};
	struct gpu_reading *reading;
	share_buffer *b;
	void *stream = gpu_stream();

	call.buffer = gpu_allocate(c, call.stream);
	gpu_hold_by_host(call.stream, GATE);
	gpu_fill(call.stream, call.buffer, 9);
	check(pthread_create(&call.thread, NULL, publish_record_release, &call) == 0);
	gpu_expect_others_run();
	check(!call.returned);
	gpu_open(GATE);
	check(pthread_join(call.thread, NULL) == 0);
	check_eq(gpu_stats(c).host_signals, 3);
	check_eq(gpu_stats(c).signals, 0);
	/* so whoever gets it has nothing to wait for */
	check_eq(call.fence.timeline, 0);
	check_ok(share_fence_query(gpu_client, &call.fence));
	check_ok(share_lookup(gpu_client, "work", SHARE_RDONLY, 0, stream, &b));
	check_eq(gpu_ordered(b), SHARE_ORDERED_NOTHING);
	check_ok(share_buffer_status(b));
	reading = gpu_read(stream, b);
	gpu_wait(stream);
	gpu_expect(reading, 9);
	check_ok(share_release(b, stream));
	check_ok(share_unpublish(c, "work"));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	gpu_stream_destroy(call.stream);
}

Test(gpu_host_fences, rule_8_a_device_without_stream_memory_operations_is_signaled_for_by_the_host,
     .init = start_without_operations, .fini = gpu_work_stop)
{
	gpu_use();
	expect_signals_by_host(gpu_client);
}

Test(gpu_host_fences, rule_8_a_client_that_asks_for_it_signals_by_the_host, .init = gpu_work_start,
     .fini = gpu_work_stop)
{
	share_client *c = connect_by_host();

	gpu_use();
	expect_signals_by_host(c);
	share_disconnect(c);
}

Test(gpu_host_fences, rule_8_the_environment_can_ask_for_it, .init = gpu_work_start,
     .fini = gpu_work_stop)
{
	share_client *c;

	setenv("SHARE_HOST_FENCES", "1", 1);
	c = connect_as("switched");
	gpu_use();
	expect_signals_by_host(c);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Waits: a call that orders a stream after others returns when those are done                  */

static void gives_while_busy(struct child *self, void *data)
{
	share_client *c = child_connect("giver");
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, GATE);
	gpu_fill(stream, b, 9);
	check_ok(share_publish(b, "work", stream));
	check_ok(share_release(b, stream));
	child_point(self, "given");
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	share_disconnect(c);
}

static void *acquire(void *data)
{
	struct call *call = data;

	gpu_use();
	check_ok(share_lookup(call->client, "work", SHARE_RDONLY, -1, call->stream, &call->buffer));
	call->returned = true;
	check(gpu_is_open(GATE));
	return NULL;
}

Test(gpu_host_fences, rule_8_a_client_that_asks_for_it_waits_by_the_host, .init = gpu_work_start,
     .fini = gpu_work_stop)
{
	struct child *giver = child_start(gives_while_busy, NULL);
	struct call call = {.client = connect_by_host()};
	struct gpu_reading *reading;
	share_buffer *none = NULL;

	child_wait(giver, "given");
	gpu_use();
	call.stream = gpu_stream();
	check_error(share_lookup(call.client, "work", SHARE_RDONLY, 1, call.stream, &none),
		    SHARE_ETIMEDOUT);
	check(none == NULL);
	check(pthread_create(&call.thread, NULL, acquire, &call) == 0);
	until(gpu_stats(call.client).host_waits == 2);
	gpu_expect_others_run();
	check(!call.returned);
	gpu_open(GATE);
	check(pthread_join(call.thread, NULL) == 0);
	check_eq(gpu_ordered(call.buffer), SHARE_ORDERED_BY_HOST);
	check_eq(gpu_stats(call.client).waits, 0);
	check_ok(share_buffer_status(call.buffer));
	reading = gpu_read(call.stream, call.buffer);
	gpu_wait(call.stream);
	gpu_expect(reading, 9);
	check_ok(share_release(call.buffer, call.stream));
	gpu_stream_destroy(call.stream);
	share_disconnect(call.client);
	child_go(giver);
	child_finish(giver);
}

/* ------------------------------------------------------------------------------------------- */

static void *wait_for_fence(void *data)
{
	struct call *call = data;

	gpu_use();
	check_ok(share_fence_wait(call->client, &call->fence, 0, call->stream));
	return NULL;
}

/* A wait for a fence needs the device, and none of its memory. */
Test(gpu_host_fences, memory_that_is_asked_back_during_a_wait_goes_at_once, .init = gpu_work_start,
     .fini = gpu_work_stop)
{
	struct call call = {.client = connect_by_host()};
	share_buffer *b;
	void *busy;

	gpu_use();
	call.stream = gpu_stream();
	busy = gpu_stream();
	b = gpu_allocate(gpu_client, busy);
	check_ok(share_publish(b, "work", busy));
	gpu_wait(busy);
	check_ok(share_lookup(call.client, "work", SHARE_RDONLY, 0, call.stream, &call.buffer));
	gpu_hold(busy, GATE);
	check_ok(share_fence_record(gpu_client, 0, busy, &call.fence));
	check(pthread_create(&call.thread, NULL, wait_for_fence, &call) == 0);
	until(gpu_stats(call.client).host_waits == 1);
	check_ok(share_release(call.buffer, call.stream));
	check_ok(share_unpublish(gpu_client, "work"));
	check_ok(share_release(b, call.stream));
	/* who has mapped it is asked, and hears it with its next answer */
	settle(gpu_client, share_ping(call.client) == 0 && s.segments == 0);
	gpu_open(GATE);
	check(pthread_join(call.thread, NULL) == 0);
	gpu_wait(busy);
	gpu_stream_destroy(busy);
	gpu_stream_destroy(call.stream);
	share_disconnect(call.client);
}
