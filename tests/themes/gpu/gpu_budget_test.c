/* SPDX-License-Identifier: MIT */

/*
 * Rule 7: streams that stand still take the hardware's connections from all others of the process,
 * so libshare parks half as many at most, whatever it is that they wait for and through whichever
 * client; where that is not enough the calling thread waits, or is told to come back.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/cuda/driver.h"
#include "tests/harness/fixture.h"
#include "tests/harness/status.h"
#include "tests/support/gpu_work.h"

TestSuite(gpu_budget, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { STALLED }; /* gate */

#define HALF    4 /* of CUDA's usual connections */
#define STREAMS 32

static void gives_and_stalls(struct child *self, void *data)
{
	share_client *c = child_connect("producer");
	share_fence fence;
	share_buffer *b;
	void *stream;

	(void)data;
	gpu_use();
	stream = gpu_stream();
	b = gpu_allocate(c, stream);
	gpu_hold(stream, STALLED);
	gpu_fill(stream, b, 1);
	check_ok(share_publish(b, "work", stream));
	check_ok(share_fence_record(c, 0, stream, &fence));
	child_point_with(self, "given", &fence, sizeof(fence));
	gpu_wait(stream);
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
	share_disconnect(c);
}

static struct child *producer_start(share_fence *out)
{
	struct child *producer = child_start(gives_and_stalls, NULL);

	/* no test leans on what the machine's environment says */
	unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
	child_wait_with(producer, "given", out, sizeof(*out));
	return producer;
}

static void producer_finish(struct child *producer)
{
	child_go(producer);
	child_finish(producer);
}

static share_buffer *look_up(share_client *c, void *stream)
{
	share_buffer *b;

	check_ok(share_lookup(c, "work", SHARE_RDONLY, -1, stream, &b));
	return b;
}

static void release(share_buffer *b, void *stream)
{
	check_ok(share_release(b, stream));
	gpu_wait(stream);
	gpu_stream_destroy(stream);
}

/* ------------------------------------------------------------------------------------------- */

struct consumer {
	pthread_t thread;
	void *stream;
	share_buffer *buffer;
	struct gpu_reading *reading;
};

/* Its look-up does not return while the producer stalls. */
static void *consume(void *data)
{
	struct consumer *consumer = data;

	gpu_use();
	consumer->buffer = look_up(gpu_client, consumer->stream);
	check(gpu_is_open(STALLED));
	return NULL;
}

Test(gpu_budget, rule_7_streams_of_a_consumer_run_though_32_of_them_want_what_a_producer_owes)
{
	static struct consumer consumers[STREAMS];
	void *others[GPU_OTHERS];
	share_fence fence;
	struct child *producer = producer_start(&fence);

	gpu_use();
	gpu_others_create(others);
	for (int i = 0; i < STREAMS; i++)
		consumers[i].stream = gpu_stream();
	for (int i = 0; i < HALF; i++) {
		consumers[i].buffer = look_up(gpu_client, consumers[i].stream);
		check_eq(gpu_ordered(consumers[i].buffer), SHARE_ORDERED_ON_STREAM);
		check_eq(gpu_stats(gpu_client).parked, i + 1);
	}
	for (int i = HALF; i < STREAMS; i++)
		check(pthread_create(&consumers[i].thread, NULL, consume, &consumers[i]) == 0);
	until(gpu_stats(gpu_client).host_waits == STREAMS - HALF);
	check_eq(gpu_stats(gpu_client).parked, HALF);
	gpu_expect_most_others_run(others);
	for (int i = 0; i < HALF; i++)
		check(gpu_is_busy(consumers[i].stream));
	gpu_open(STALLED);
	for (int i = HALF; i < STREAMS; i++) {
		check(pthread_join(consumers[i].thread, NULL) == 0);
		check_eq(gpu_ordered(consumers[i].buffer), SHARE_ORDERED_BY_HOST);
	}
	for (int i = 0; i < STREAMS; i++) {
		consumers[i].reading = gpu_read(consumers[i].stream, consumers[i].buffer);
		gpu_wait(consumers[i].stream);
		gpu_expect(consumers[i].reading, 1);
	}
	check_eq(gpu_stats(gpu_client).parked, 0);
	check_eq(gpu_stats(gpu_client).waits, HALF);
	for (int i = 0; i < STREAMS; i++)
		release(consumers[i].buffer, consumers[i].stream);
	producer_finish(producer);
}

/* What people see of it. */
static int64_t reported_as_parked(void)
{
	json_t *rows = report(gpu_client, "clients");
	int64_t n = number_of(row_named(rows, "label", "test"), "parked");

	json_decref(rows);
	return n;
}

Test(gpu_budget, rule_7_a_stream_that_is_parked_already_may_wait_for_more)
{
	share_fence fence;
	struct child *producer = producer_start(&fence);
	share_buffer *buffers[HALF], *more;
	void *streams[HALF];

	gpu_use();
	for (int i = 0; i < HALF; i++) {
		streams[i] = gpu_stream();
		buffers[i] = look_up(gpu_client, streams[i]);
	}
	more = look_up(gpu_client, streams[0]);
	check_ok(share_fence_wait(gpu_client, &fence, 0, streams[1]));
	check_eq(gpu_ordered(more), SHARE_ORDERED_ON_STREAM);
	check_eq(gpu_stats(gpu_client).parked, HALF);
	check_eq(gpu_stats(gpu_client).host_waits, 0);
	check_eq(reported_as_parked(), HALF);
	gpu_expect_held(streams[0], STALLED);
	gpu_open(STALLED);
	check_ok(share_release(more, streams[0]));
	for (int i = 0; i < HALF; i++)
		release(buffers[i], streams[i]);
	check_eq(reported_as_parked(), 0);
	producer_finish(producer);
}

Test(gpu_budget, rule_7_what_a_stream_waits_for_already_is_not_enqueued_again)
{
	share_fence fence;
	struct child *producer = producer_start(&fence);
	share_buffer *b, *again;
	void *stream;

	gpu_use();
	stream = gpu_stream();
	b = look_up(gpu_client, stream);
	check_ok(share_fence_wait(gpu_client, &fence, 0, stream));
	for (int i = 0; i < 100; i++)
		check_ok(share_fence_wait(gpu_client, &fence, 0, stream));
	again = look_up(gpu_client, stream);
	check_eq(gpu_ordered(again), SHARE_ORDERED_ON_STREAM);
	check(gpu_stats(gpu_client).waits <= 2); /* the publication's fence may be another */
	check_eq(gpu_stats(gpu_client).parked, 1);
	gpu_expect_held(stream, STALLED);
	gpu_open(STALLED);
	check_ok(share_release(again, stream));
	release(b, stream);
	check_eq(gpu_stats(gpu_client).parked, 0);
	producer_finish(producer);
}

Test(gpu_budget, rule_7_a_forked_child_has_none_of_its_parents_parked_streams)
{
	share_fence fence;
	struct child *producer = producer_start(&fence);
	share_client *none;
	share_buffer *b;
	void *stream;
	int status;
	pid_t pid;

	gpu_use();
	stream = gpu_stream();
	b = look_up(gpu_client, stream);
	check_eq(gpu_stats(gpu_client).parked, 1);
	pid = fork();
	check(pid >= 0);
	if (pid == 0)
		_exit(share_connect("/nonexistent", &none) == SHARE_ENOBROKER ? 0 : 1);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	check_eq(gpu_stats(gpu_client).parked, 1);
	gpu_open(STALLED);
	release(b, stream);
	producer_finish(producer);
}

/* ------------------------------------------------------------------------------------------- */

static void start_on_two_devices(void)
{
	gpu_work_start_on("devices=2");
}

TestSuite(gpu_budget_of_two, .init = start_on_two_devices, .fini = gpu_work_stop, .timeout = 60);

/* A context of the second device is current from now on. */
static share_buffer *allocate_on_second(share_client *c)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct failure failure;
	char text[MEMORY_UUID_TEXT];
	const struct cuda *cu;
	CUcontext context;
	CUdevice device;
	share_buffer *b;
	share_pool *p;
	CUuuid uuid;

	check_ok(cuda_get(&cu, &failure));
	gpu_check("cuDeviceGet", cu->DeviceGet(&device, 1));
	gpu_check("cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, device));
	gpu_check("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&context, device));
	gpu_check("cuCtxPushCurrent", cu->CtxPushCurrent(context));
	memory_uuid_text((const unsigned char *)uuid.bytes, text);
	options.kind = "vmm";
	options.device = text;
	check_ok(share_pool_create(c, "second", &options, &p));
	check_ok(share_alloc(p, 1, NULL, &b));
	share_pool_close(p);
	return b;
}

Test(gpu_budget_of_two, rule_7_a_stream_counts_for_its_own_device_wherever_the_memory_is)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *clients[2]; /* one uses memory of the first device, one of the second */
	share_buffer *first, *second, *own;
	void *busy, *streams[2 * HALF];
	share_fence fence;

	unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
	options.flags = SHARE_CONNECT_NEVER_BLOCK;
	for (int i = 0; i < 2; i++)
		check_ok(share_connect_with(broker_socket(), &options, &clients[i]));
	gpu_use();
	busy = gpu_stream();
	own = gpu_allocate(gpu_client, busy);
	gpu_hold(busy, STALLED);
	check_ok(share_fence_record(gpu_client, 0, busy, &fence));
	check_ok(share_publish(own, "own", NULL));
	check_ok(share_lookup(clients[0], "own", SHARE_RDONLY, 0, NULL, &first));
	second = allocate_on_second(clients[1]);
	for (int i = 0; i < 2 * HALF; i++) {
		int r;

		streams[i] = gpu_stream();
		r = share_fence_wait(clients[i % 2], &fence, 0, streams[i]);
		check(i < HALF ? r == 0 : r == SHARE_EAGAIN);
	}
	gpu_open(STALLED);
	for (int i = 0; i < 2 * HALF; i++) {
		gpu_wait(streams[i]);
		gpu_stream_destroy(streams[i]);
	}
	gpu_wait(busy);
	check_ok(share_unpublish(gpu_client, "own"));
	check_ok(share_release(first, NULL));
	check_ok(share_release(second, NULL));
	check_ok(share_release(own, busy));
	gpu_wait(busy);
	gpu_stream_destroy(busy);
	for (int i = 0; i < 2; i++)
		share_disconnect(clients[i]);
}

/* ------------------------------------------------------------------------------------------- */

/* What one of two clients parks, the other cannot; and a room that is free is free for both. */
Test(gpu_budget, rule_7_all_clients_of_a_process_share_the_budget_and_may_ask_not_to_be_blocked)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_fence fence;
	struct child *producer = producer_start(&fence);
	share_buffer *buffers[HALF], *late = NULL;
	void *streams[HALF], *stream;
	share_client *other;

	options.flags = SHARE_CONNECT_NEVER_BLOCK;
	check_ok(share_connect_with(broker_socket(), &options, &other));
	gpu_use();
	for (int i = 0; i < HALF; i++) {
		streams[i] = gpu_stream();
		buffers[i] = look_up(i % 2 ? gpu_client : other, streams[i]);
		check_eq(gpu_ordered(buffers[i]), SHARE_ORDERED_ON_STREAM);
	}
	check_eq(gpu_stats(gpu_client).parked, HALF);
	check_eq(gpu_stats(other).parked, HALF);
	stream = gpu_stream();
	check_error(share_lookup(other, "work", SHARE_RDONLY, -1, stream, &late), SHARE_EAGAIN);
	check_detail("CUDA_DEVICE_MAX_CONNECTIONS");
	check(late == NULL);
	check_error(share_fence_wait(other, &fence, 0, stream), SHARE_EAGAIN);
	check_eq(gpu_stats(other).host_waits, 0);
	settle(gpu_client,
	       s.leases == 3); /* the producer's and a client's: the refused one's is not */
	gpu_wait(stream);
	gpu_open(STALLED);
	check_ok(share_fence_synchronize(other, &fence, -1));
	late = look_up(other, stream);
	check_eq(gpu_ordered(late), SHARE_ORDERED_NOTHING);
	release(late, stream);
	for (int i = 0; i < HALF; i++)
		release(buffers[i], streams[i]);
	producer_finish(producer);
	share_disconnect(other);
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

Test(gpu_budget, rule_7_dispatch_does_not_block_where_no_more_streams_may_be_parked)
{
	struct answer answer = {.buffer = NULL};
	share_fence fence;
	struct child *producer = producer_start(&fence);
	share_buffer *buffers[HALF];
	void *streams[HALF], *stream;
	share_operation *o;

	gpu_use();
	for (int i = 0; i < HALF; i++) {
		streams[i] = gpu_stream();
		buffers[i] = look_up(gpu_client, streams[i]);
	}
	stream = gpu_stream();
	check_ok(share_lookup_async(gpu_client, "work", SHARE_RDWR, -1, stream, take, &answer, &o));
	/* it has been given the buffer, and is waited for in a thread */
	check_ok(share_ping(gpu_client));
	check_eq(share_dispatch(gpu_client), 1);
	check_eq(answer.calls, 0);
	check_eq(gpu_stats(gpu_client).parked, HALF);
	gpu_open(STALLED);
	until((share_dispatch(gpu_client), answer.calls));
	check_eq(gpu_ordered(answer.buffer), SHARE_ORDERED_BY_HOST);
	share_cancel(o);
	release(answer.buffer, stream);
	for (int i = 0; i < HALF; i++)
		release(buffers[i], streams[i]);
	producer_finish(producer);
}

/* ------------------------------------------------------------------------------------------- */
/* As many connections as the environment says                                                 */

struct budget {
	const char *connections;
	int streams;
};

static void fills_the_budget(struct child *self, void *data)
{
	const struct budget *budget = data;
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_buffer *buffers[STREAMS + 1], *none = NULL;
	void *streams[STREAMS + 1];
	share_client *c;
	int n = 0, r;

	if (budget->connections)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", budget->connections, 1);
	else
		unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
	child_point(self, "ready");
	options.flags = SHARE_CONNECT_NEVER_BLOCK;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	gpu_use();
	do {
		streams[n] = gpu_stream();
		r = share_lookup(c, "work", SHARE_RDONLY, -1, streams[n], &none);
		if (r == 0)
			buffers[n++] = none;
	} while (r == 0 && n < STREAMS);
	check_error(r, SHARE_EAGAIN);
	check_eq(n, budget->streams);
	check_eq(gpu_stats(c).parked, n);
	gpu_expect_others_run();
	gpu_stream_destroy(streams[n]);
	child_point(self, "full");
	for (int i = 0; i < n; i++)
		release(buffers[i], streams[i]);
	share_disconnect(c);
}

Test(gpu_budget, rule_7_the_budget_is_half_of_the_connections_that_the_environment_asks_for)
{
	static const struct budget budgets[] = {
	    {NULL, 4}, {"1", 0},   {"2", 1},    {"7", 3},
	    {"16", 8}, {"32", 16}, {"1000", 4}, {"nonsense", 4},
	};
	enum { N = sizeof(budgets) / sizeof(budgets[0]) };
	struct child *producer, *children[N];
	share_fence fence;

	for (int i = 0; i < N; i++) {
		children[i] = child_start(fills_the_budget, (void *)(uintptr_t)&budgets[i]);
		child_wait(children[i], "ready");
	}
	producer = producer_start(&fence);
	for (int i = 0; i < N; i++) {
		child_go(children[i]);
		child_wait(children[i], "full");
	}
	gpu_open(STALLED);
	for (int i = 0; i < N; i++) {
		child_go(children[i]);
		child_finish(children[i]);
	}
	producer_finish(producer);
}
