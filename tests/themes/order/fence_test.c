/* SPDX-License-Identifier: MIT */

/* Fences as their functions have them, and streams, down to what is refused. */

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "pages/timeline.h"
#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "wire/wire.h"

static struct gate *gate;
static share_client *client;
static share_host_stream *stream;

static void start(void)
{
	fixture_start();
	gate = gate_new();
	client = connect_as("test");
	check_ok(share_host_stream_create(client, &stream));
}

static void stop(void)
{
	if (!check_has_failed()) {
		share_host_stream_destroy(stream);
		share_disconnect(client);
	}
	gate_open(gate);
	fixture_stop();
	gate_free(gate);
}

TestSuite(fence, .init = start, .fini = stop, .timeout = 60);

Test(fence, of_the_calling_thread_is_reached)
{
	share_fence f = {1, 1};

	check_ok(share_fence_record(client, -1, NULL, &f));
	check_eq(f.timeline, 0);
	check_ok(share_fence_query(client, &f));
	check_ok(share_fence_wait(client, &f, -1, NULL));
	check_ok(share_fence_wait(client, &f, -1, stream));
	check_ok(share_fence_synchronize(client, &f, 0));
}

Test(fence, is_reached_when_the_work_before_it_is_done)
{
	share_fence f;

	gate_hold(gate, stream);
	check_ok(share_fence_record(client, -1, stream, &f));
	check_error(share_fence_query(client, &f), SHARE_EAGAIN);
	check_error(share_fence_synchronize(client, &f, 0), SHARE_ETIMEDOUT);
	check_error(share_fence_synchronize(client, &f, 10), SHARE_ETIMEDOUT);
	gate_open(gate);
	check_ok(share_fence_synchronize(client, &f, -1));
	check_ok(share_fence_query(client, &f));
	check_ok(share_fence_synchronize(client, &f, 0));
	check_ok(share_fence_wait(client, &f, -1, NULL));
}

Test(fence, makes_another_stream_wait)
{
	share_host_stream *other;
	char memory[64] = "";
	share_fence f;

	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, stream);
	gate_fill(gate, stream, memory, 1, sizeof(memory));
	check_ok(share_fence_record(client, -1, stream, &f));
	check_ok(share_fence_wait(client, &f, -1, other));
	gate_expect(gate, other, memory, 1, sizeof(memory), 1);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(other));
	share_host_stream_destroy(other);
}

Test(fence, of_one_client_can_be_waited_for_by_another_of_the_same_process)
{
	share_client *c = connect_as("second");
	share_fence f;

	gate_hold(gate, stream);
	check_ok(share_fence_record(client, -1, stream, &f));
	check_error(share_fence_query(c, &f), SHARE_EAGAIN);
	gate_open(gate);
	check_ok(share_fence_wait(c, &f, -1, NULL));
	share_disconnect(c);
}

Test(fence, outlives_its_stream)
{
	share_host_stream *other;
	share_fence f;

	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, other);
	check_ok(share_fence_record(client, -1, other, &f));
	gate_open(gate);
	share_host_stream_destroy(other);
	check_ok(share_fence_query(client, &f));
	/* the timeline is another stream's now; it does not go back */
	gate->open = 0;
	check_ok(share_host_stream_create(client, &other));
	gate_hold(gate, other);
	check_ok(share_fence_query(client, &f));
	gate_open(gate);
	share_host_stream_destroy(other);
}

Test(fence, of_a_client_that_said_goodbye_is_reached_even_for_those_who_ask_late)
{
	share_client *c = connect_as("leaving one");
	share_host_stream *s;
	share_fence known, unknown;

	check_ok(share_host_stream_create(c, &s));
	check_ok(share_fence_record(c, -1, s, &known));
	check_ok(share_fence_synchronize(client, &known, -1));
	check_ok(share_fence_record(c, -1, s, &unknown));
	share_host_stream_destroy(s);
	share_disconnect(c);
	check_ok(share_fence_query(client, &known));
	check_ok(share_fence_query(client, &unknown));
	c = connect_as("late one");
	check_ok(share_fence_query(c, &known));
	check_ok(share_fence_wait(c, &unknown, -1, NULL));
	share_disconnect(c);
}

Test(fence, that_makes_no_sense_is_refused)
{
	share_fence own, f;

	check_ok(share_fence_record(client, -1, stream, &own));
	f = (share_fence){WIRE_TIMELINE(WIRE_TIMELINE_PAGE(own.timeline), 0), 1};
	check_error(share_fence_query(client, &f), SHARE_EINVAL);
	f.timeline = WIRE_TIMELINE(WIRE_TIMELINE_PAGE(own.timeline), TIMELINE_SLOTS);
	check_error(share_fence_wait(client, &f, -1, stream), SHARE_EINVAL);
	f = (share_fence){own.timeline, TIMELINE_POISON};
	check_error(share_fence_wait(client, &f, -1, stream), SHARE_EINVAL);
	f = (share_fence){WIRE_TIMELINE(12345678, 5), 1};
	check_error(share_fence_query(client, &f), SHARE_ESTALE);
	check_error(share_fence_synchronize(client, &f, 0), SHARE_ESTALE);
	f.timeline = UINT64_MAX;
	check_error(share_fence_query(client, &f), SHARE_EINVAL);
	check_error(share_fence_synchronize(client, &own, -2), SHARE_EINVAL);
	check_error(share_fence_query(client, NULL), SHARE_EINVAL);
	check_error(share_fence_query(NULL, &own), SHARE_EINVAL);
	check_error(share_fence_record(client, -1, stream, NULL), SHARE_EINVAL);
}

Test(fence, functions_take_streams_of_their_client_only)
{
	share_client *c = connect_as("second");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1, NULL), *none = NULL;
	share_token token;
	share_fence f;

	check_error(share_fence_record(c, -1, stream, &f), SHARE_EINVAL);
	check_error(share_fence_wait(c, &(share_fence){0, 0}, -1, stream), SHARE_EINVAL);
	check_error(share_alloc(p, 1, stream, &none), SHARE_EINVAL);
	check_error(share_publish(b, "name", stream), SHARE_EINVAL);
	check_error(share_lookup(c, "name", SHARE_RDONLY, 0, stream, &none), SHARE_EINVAL);
	check_error(share_export(b, stream, &token), SHARE_EINVAL);
	check_error(share_import(c, &token, 0, stream, &none), SHARE_EINVAL);
	/* the one error of a release that leaves the handle */
	check_error(share_release(b, stream), SHARE_EINVAL);
	check_error(share_release(b, &token), SHARE_EINVAL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* Streams                                                                                     */

#define STREAMS 255

Test(fence, a_client_can_have_255_streams)
{
	share_host_stream *streams[STREAMS], *none = NULL;

	streams[0] = stream;
	for (int i = 1; i < STREAMS; i++)
		check_ok(share_host_stream_create(client, &streams[i]));
	check_error(share_host_stream_create(client, &none), SHARE_EQUOTA);
	check(none == NULL);
	share_host_stream_destroy(streams[STREAMS - 1]);
	check_ok(share_host_stream_create(client, &streams[STREAMS - 1]));
	for (int i = 1; i < STREAMS; i++)
		share_host_stream_destroy(streams[i]);
}

struct sequence {
	int next;
	bool wrong;
};

struct step {
	struct sequence *sequence;
	int number;
};

static void take_step(void *data)
{
	struct step *step = data;

	if (step->sequence->next != step->number)
		step->sequence->wrong = true;
	step->sequence->next = step->number + 1;
}

Test(fence, functions_of_a_stream_run_in_the_order_of_their_launch)
{
	static struct step steps[1000];
	struct sequence sequence = {0};

	for (int i = 0; i < 1000; i++) {
		steps[i] = (struct step){&sequence, i};
		check_ok(share_host_stream_launch(stream, take_step, &steps[i]));
	}
	check_ok(share_host_stream_synchronize(stream));
	check_eq(sequence.next, 1000);
	check(!sequence.wrong);
}

static void waits_for_what_is_behind_it(void *data)
{
	share_buffer *b = data, *found = NULL;
	share_fence f;

	check_ok(share_fence_record(client, -1, stream, &f));
	check_error(share_fence_wait(client, &f, -1, NULL), SHARE_EINVAL);
	check_detail("a function on a host stream cannot wait for what is enqueued behind it");
	check_error(share_fence_synchronize(client, &f, -1), SHARE_EINVAL);
	check_error(share_fence_synchronize(client, &f, 0), SHARE_ETIMEDOUT);
	check_error(share_fence_query(client, &f), SHARE_EAGAIN);
	check_ok(share_fence_wait(client, &f, -1, stream));
	check_ok(share_publish(b, "thing", stream));
	check_error(share_lookup(client, "thing", SHARE_RDONLY, -1, NULL, &found), SHARE_EINVAL);
	check_ok(share_lookup(client, "thing", SHARE_RDONLY, -1, stream, &found));
	check_ok(share_release(found, NULL));
}

static void waits_for_what_was_before_it(void *data)
{
	check_ok(share_fence_synchronize(client, data, -1));
	check_ok(share_fence_wait(client, data, -1, NULL));
}

Test(fence, a_function_on_a_stream_is_refused_to_wait_for_what_is_behind_it_there)
{
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL), *found;
	share_fence before;

	check_ok(share_host_stream_launch(stream, waits_for_what_is_behind_it, b));
	check_ok(share_fence_record(client, -1, stream, &before));
	check_ok(share_host_stream_launch(stream, waits_for_what_was_before_it, &before));
	check_ok(share_host_stream_synchronize(stream));
	check_ok(share_lookup(client, "thing", SHARE_RDONLY, -1, NULL, &found));
	check_ok(share_release(found, NULL));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

static void waits_by_another_connection(void *data)
{
	share_client *other = data;
	share_buffer *found = NULL;
	share_fence f;

	check_ok(share_fence_record(client, -1, stream, &f));
	check_error(share_fence_wait(other, &f, -1, NULL), SHARE_EINVAL);
	check_detail("a function on a host stream cannot wait for what is enqueued behind it");
	check_error(share_fence_synchronize(other, &f, -1), SHARE_EINVAL);
	check_error(share_lookup(other, "thing", SHARE_RDONLY, -1, NULL, &found), SHARE_EINVAL);
}

Test(fence, nor_does_it_wait_by_another_connection_of_the_process)
{
	share_client *other = connect_as("other");
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL);

	gate_hold(gate, stream);
	check_ok(share_host_stream_launch(stream, waits_by_another_connection, other));
	check_ok(share_publish(b, "thing", stream));
	gate_open(gate);
	check_ok(share_host_stream_synchronize(stream));
	check_ok(share_unpublish(client, "thing"));
	check_ok(share_release(b, NULL));
	share_pool_close(p);
	share_disconnect(other);
}

/* A fence of another broker may be called as one of the function's own stream. */
struct of_another_broker {
	share_client *reader;
	share_fence fence;
};

static void waits_for_another_broker(void *data)
{
	const struct of_another_broker *far = data;
	share_fence f;

	check_ok(share_fence_record(client, -1, stream, &f));
	check_eq(f.timeline, far->fence.timeline);
	check_error(share_fence_synchronize(far->reader, &far->fence, 10), SHARE_ETIMEDOUT);
}

Test(fence, it_waits_for_what_another_broker_calls_the_same)
{
	struct of_another_broker far;
	share_host_stream *busy;
	share_client *c;
	share_fence f;
	char path[4096];

	snprintf(path, sizeof(path), "%s/share-broker", getenv("SHARE_TEST_BIN"));
	setenv("SHARE_BROKER", path, 1);
	check_ok(share_connect("embedded", &far.reader));
	check_ok(share_connect(share_address(far.reader), &c));
	check_ok(share_host_stream_create(c, &busy));
	gate_hold(gate, busy);
	check_ok(share_fence_record(client, -1, stream, &f));
	check_ok(share_fence_record(c, -1, busy, &far.fence));
	check_eq(far.fence.timeline, f.timeline);
	check_ok(share_host_stream_launch(stream, waits_for_another_broker, &far));
	check_ok(share_host_stream_synchronize(stream));
	gate_open(gate);
	share_host_stream_destroy(busy);
	share_disconnect(c);
	share_disconnect(far.reader);
}

Test(fence, destroying_a_stream_runs_what_is_enqueued)
{
	share_host_stream *other;
	char memory[64] = "";

	check_ok(share_host_stream_create(client, &other));
	for (int i = 0; i < 100; i++)
		gate_fill(gate, other, memory, i, sizeof(memory));
	share_host_stream_destroy(other);
	check_eq(gate->done, 100);
	expect_filled(memory, 99, sizeof(memory));
	share_host_stream_destroy(NULL);
}

/* ------------------------------------------------------------------------------------------- */
/* Many pages at once                                                                          */

static void holds_until_told(struct child *self, void *data)
{
	share_client *c = child_connect("holder");
	share_host_stream *s;
	share_buffer *b;

	(void)data;
	/* to write, it would have to wait for those before */
	check_ok(share_lookup(c, "shared", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_host_stream_create(c, &s));
	gate_hold(gate, s);
	check_ok(share_release(b, s));
	check_ok(share_ping(c));
	child_point(self, "released");
	share_host_stream_destroy(s);
	share_disconnect(c);
}

struct giving_up {
	share_buffer *buffer;
	void *stream;
	atomic_int *ready;
};

static void *give_up(void *data)
{
	struct giving_up *g = data;

	++*g->ready;
	while (*g->ready < 2)
		sched_yield(); /* where the other thread has no processor of its own */
	check_ok(share_release(g->buffer, g->stream));
	return NULL;
}

/* One behind a stream's work, the other at once: whoever comes last, the work gates the block. */
Test(fence, references_given_up_by_two_threads_at_once_are_two)
{
	share_pool *p = open_pool(client);

	for (int i = 0; i < 500; i++) {
		share_buffer *b = allocate(p, 4096, NULL);
		atomic_int ready = 0;
		struct giving_up first = {b, stream, &ready}, second = {b, NULL, &ready};
		pthread_t thread;

		gate_fill(gate, stream, share_ptr(b), i, 4096);
		check(share_retain(b) == b);
		check(pthread_create(&thread, NULL, give_up, &first) == 0);
		give_up(&second);
		check(pthread_join(thread, NULL) == 0);
	}
	settle(client, s.buffers == 0 && s.leases == 0 && s.clients == 1);
	share_pool_close(p);
}

#define MANY 40

static void expect_that_a_block_can_wait_for(int n)
{
	share_client *c = connect_as("next one");
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_host_stream *s;
	struct child *children[MANY];
	share_pool *p, *own;
	share_buffer *b;

	options.kind = "host";
	options.limit = options.segment_size = 65536;
	check_ok(share_pool_create(client, "small", &options, &p));
	b = allocate(p, 65536, NULL);
	check_ok(share_publish(b, "shared", NULL));
	for (int i = 0; i < n; i++) {
		children[i] = child_start(holds_until_told, NULL);
		child_wait(children[i], "released");
	}
	check_ok(share_unpublish(client, "shared"));
	check_ok(share_release(b, NULL));
	check_ok(share_host_stream_create(c, &s));
	check_ok(share_pool_open(c, "small", &own));
	check_ok(share_alloc(own, 65536, s, &b));
	gate_open(gate);
	check_ok(share_host_stream_synchronize(s));
	check_ok(share_release(b, NULL));
	for (int i = 0; i < n; i++) {
		child_go(children[i]);
		child_finish(children[i]);
	}
	share_host_stream_destroy(s);
	share_pool_close(own);
	share_pool_close(p);
	share_disconnect(c);
}

Test(fence, a_block_can_wait_for_sixteen_processes)
{
	expect_that_a_block_can_wait_for(16);
}

Test(fence, a_block_can_wait_for_seventeen_processes)
{
	expect_that_a_block_can_wait_for(17);
}

/* More than one message carries pages of. */
Test(fence, a_block_can_wait_for_forty_processes)
{
	expect_that_a_block_can_wait_for(40);
}
