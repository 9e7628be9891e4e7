/* SPDX-License-Identifier: MIT */

/*
 * Rule 6 of docs/architecture.md: a dead process never finishes its work, so every process that
 * waits for this work goes on, and is told of the death. The pidfd proves the death, with a broker
 * or without one.
 */

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/harness/raw.h"

static struct gate *gate;
static share_client *client;

static void start(void)
{
	fixture_start();
	gate = gate_new();
	client = connect_as("survivor");
}

static void stop(void)
{
	gate_open(gate);
	fixture_stop();
	gate_free(gate);
}

TestSuite(poison, .init = start, .fini = stop, .timeout = 60);

struct given {
	share_fence fence;
	share_token token;
};

/* Its stream never finishes: the gate does not open. */
static void gives_and_never_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	struct given given;
	share_host_stream *s;
	share_buffer *b;

	(void)data;
	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_host_stream_create(c, &s));
	b = allocate(open_pool(c), 4096, s);
	gate_hold(gate, s);
	check_ok(share_fence_record(c, -1, s, &given.fence));
	check_ok(share_publish_with(b, "work", &options, s, NULL));
	check_ok(share_export(b, s, &given.token));
	child_point_with(self, "given", &given, sizeof(given));
}

static void end(void)
{
	share_unpublish(client, "work");
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */

enum way { LOOKUP, IMPORT, SYNCHRONIZE, WAIT };
struct order {
	enum way way;
	struct given given;
};

static void waits_by_hand(struct child *self, void *data)
{
	share_client *c = child_connect("waiter");
	const struct order *order = data;
	share_buffer *b = NULL;
	int r = 0;

	child_point(self, "asking");
	switch (order->way) {
	case LOOKUP:
		r = share_lookup(c, "work", SHARE_RDONLY, -1, NULL, &b);
		break;
	case IMPORT:
		r = share_import(c, &order->given.token, 0, NULL, &b);
		break;
	case SYNCHRONIZE:
		r = share_fence_synchronize(c, &order->given.fence, -1);
		break;
	case WAIT:
		r = share_fence_wait(c, &order->given.fence, -1, NULL);
		break;
	}
	check_error(r, SHARE_EOWNERDEAD);
	check(b == NULL);
	share_disconnect(c);
}

static void expect_a_thread_released(enum way way)
{
	struct child *victim = child_start(gives_and_never_finishes, NULL), *waiter;
	struct order order = {.way = way};

	child_wait_with(victim, "given", &order.given, sizeof(order.given));
	waiter = child_start(waits_by_hand, &order);
	child_wait(waiter, "asking");
	child_go(waiter);
	/* a look-up and an import hold their lease while they wait */
	if (way == LOOKUP || way == IMPORT)
		settle(client, s.leases == 2);
	child_kill(victim);
	child_finish(waiter);
	end();
}

Test(poison, a_thread_that_looks_up_is_released_when_the_publisher_dies)
{
	expect_a_thread_released(LOOKUP);
}

Test(poison, a_thread_that_imports_is_released_when_the_exporter_dies)
{
	expect_a_thread_released(IMPORT);
}

Test(poison, a_thread_that_synchronizes_is_released_when_the_owner_dies)
{
	expect_a_thread_released(SYNCHRONIZE);
}

Test(poison, a_thread_that_waits_is_released_when_the_owner_dies)
{
	expect_a_thread_released(WAIT);
}

Test(poison, a_stream_that_waits_goes_on_and_the_data_is_known_to_be_bad)
{
	struct child *victim = child_start(gives_and_never_finishes, NULL);
	share_host_stream *stream;
	struct given given;
	share_buffer *b;

	check_ok(share_host_stream_create(client, &stream));
	child_wait_with(victim, "given", &given, sizeof(given));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, stream, &b));
	check_ok(share_fence_wait(client, &given.fence, -1, stream));
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	child_kill(victim);
	check_ok(share_host_stream_synchronize(stream));
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_error(share_fence_query(client, &given.fence), SHARE_EOWNERDEAD);
	check_error(share_fence_wait(client, &given.fence, -1, stream), SHARE_EOWNERDEAD);
	check_error(share_fence_synchronize(client, &given.fence, 0), SHARE_EOWNERDEAD);
	check_ok(share_release(b, stream));
	share_host_stream_destroy(stream);
	end();
}

Test(poison, what_a_dead_process_did_not_finish_is_not_handed_over)
{
	struct child *victim = child_start(gives_and_never_finishes, NULL);
	share_host_stream *stream;
	share_buffer *b = NULL;
	struct given given;

	check_ok(share_host_stream_create(client, &stream));
	child_wait_with(victim, "given", &given, sizeof(given));
	child_kill(victim);
	settle(client, s.clients == 1);
	check_error(share_lookup(client, "work", SHARE_RDONLY, 0, NULL, &b), SHARE_EOWNERDEAD);
	check_error(share_lookup(client, "work", SHARE_RDONLY, -1, stream, &b), SHARE_EOWNERDEAD);
	check(b == NULL);
	settle(client, s.leases == 0 && s.buffers == 1);
	share_host_stream_destroy(stream);
	end();
}

static void gives_and_finishes(struct child *self, void *data)
{
	gate_open(gate);
	gives_and_never_finishes(self, data);
}

Test(poison, what_a_process_finished_before_it_died_is_good)
{
	struct child *victim = child_start(gives_and_finishes, NULL);
	struct given given;
	share_buffer *b;

	child_wait_with(victim, "given", &given, sizeof(given));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, -1, NULL, &b));
	check_ok(share_fence_synchronize(client, &given.fence, -1));
	child_kill(victim);
	settle(client, s.clients == 1);
	check_ok(share_buffer_status(b));
	check_ok(share_fence_query(client, &given.fence));
	check_ok(share_release(b, NULL));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_release(b, NULL));
	end();
}

#define STALLED 70 /* more than libshare remembers of the dead */

static void stall(struct child *self, void *data)
{
	static share_fence fences[STALLED];

	(void)data;
	for (int i = 0; i < STALLED; i++) {
		share_client *c = child_connect("stalled");
		share_host_stream *s;

		check_ok(share_host_stream_create(c, &s));
		gate_hold(gate, s);
		check_ok(share_fence_record(c, -1, s, &fences[i]));
	}
	child_point_with(self, "stalled", fences, sizeof(fences));
}

static void gives_and_then_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_host_stream *s;

	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_host_stream_create(c, &s));
	gate_hold(data, s);
	check_ok(share_publish_with(allocate(open_pool(c), 4096, s), "work", &options, s, NULL));
	child_point(self, "given");
	check_ok(share_host_stream_synchronize(s));
	child_point(self, "finished");
}

struct answer {
	share_buffer *buffer;
	int error, calls;
};

static void take(share_buffer *b, int error, void *data)
{
	*(struct answer *)data = (struct answer){b, error, 1};
}

/* Its page comes with the answer, which is read when it is dead already. */
Test(poison, what_a_process_finished_before_it_died_is_good_though_many_others_are_known)
{
	struct gate *soon = gate_new();
	struct child *many = child_start(stall, NULL);
	struct child *victim = child_start(gives_and_then_finishes, soon);
	struct answer answer = {.calls = 0};
	share_client *other = connect_as("other");
	share_fence fences[STALLED];

	child_wait_with(many, "stalled", fences, sizeof(fences));
	for (int i = 0; i < STALLED; i++)
		check_error(share_fence_query(client, &fences[i]), SHARE_EAGAIN);
	child_wait(victim, "given");
	check_ok(share_lookup_async(client, "work", SHARE_RDONLY, -1, NULL, take, &answer, NULL));
	settle(other, s.leases == 2);
	gate_open(soon);
	child_go(victim);
	child_wait(victim, "finished");
	child_kill(victim);
	settle(other, s.clients == STALLED + 2);
	until((share_dispatch(client), answer.calls));
	check_ok(answer.error);
	check_ok(share_buffer_status(answer.buffer));
	check_ok(share_release(answer.buffer, NULL));
	child_kill(many);
	share_disconnect(other);
	gate_free(soon);
	end();
}

static void releases_and_never_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_host_stream *s;
	share_pool *p;

	(void)data;
	check_ok(share_pool_open(c, "small", &p));
	check_ok(share_host_stream_create(c, &s));
	gate_hold(gate, s);
	check_ok(share_release(allocate(p, 65536, s), s));
	check_ok(share_ping(c));
	child_point(self, "released");
}

static void allocates_by_hand(struct child *self, void *data)
{
	share_client *c = child_connect("next one");
	share_pool *p;

	(void)data;
	check_ok(share_pool_open(c, "small", &p));
	child_point(self, "asking");
	check_ok(share_release(allocate(p, 65536, NULL), NULL));
	share_pool_close(p);
	share_disconnect(c);
}

Test(poison, memory_that_a_dead_process_was_working_on_can_be_used_again)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	struct child *victim, *next;
	share_pool *p;

	options.kind = "host";
	options.limit = options.segment_size = 65536;
	check_ok(share_pool_create(client, "small", &options, &p));
	victim = child_start(releases_and_never_finishes, NULL);
	child_wait(victim, "released");
	next = child_start(allocates_by_hand, NULL);
	child_wait(next, "asking");
	child_go(next);
	settle(client, s.leases == 1);
	child_kill(victim);
	child_finish(next);
	check_ok(share_release(allocate(p, 65536, NULL), NULL));
	share_pool_close(p);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* Without a broker                                                                            */

static void waits_without_a_broker(struct child *self, void *data)
{
	const struct given *given = data;
	share_client *c = child_connect("waiter");
	share_host_stream *s;
	share_buffer *b;

	check_ok(share_host_stream_create(c, &s));
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, s, &b));
	child_point(self, "waiting");
	check_error(share_fence_synchronize(c, &given->fence, -1), SHARE_EOWNERDEAD);
	check_ok(share_host_stream_synchronize(s));
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_error(share_fence_query(c, &given->fence), SHARE_EOWNERDEAD);
	check_error(share_fence_wait(c, &given->fence, -1, NULL), SHARE_EOWNERDEAD);
}

Test(poison, a_waiter_is_released_by_a_death_that_no_broker_sees)
{
	struct child *victim = child_start(gives_and_never_finishes, NULL), *waiter;
	struct given given;

	child_wait_with(victim, "given", &given, sizeof(given));
	waiter = child_start(waits_without_a_broker, &given);
	child_wait(waiter, "waiting");
	broker_kill();
	child_go(waiter);
	child_kill(victim);
	child_finish(waiter);
	share_disconnect(client);
}

/* ------------------------------------------------------------------------------------------- */
/* An owner with an accomplice, who keeps the page mapped and takes the poison back             */

static void dies_with_an_accomplice(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_PUBLISH};
	struct given given = {0};
	pid_t test = getppid();
	struct raw r;

	raw_open(&r, "victim");
	given.fence = (share_fence){WIRE_TIMELINE(r.page_id, 5), 1};
	m.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	m.publish.timeline = given.fence.timeline;
	m.publish.value = given.fence.value;
	m.publish.flags = SHARE_PUBLISH_PERSISTENT;
	m.publish.name = raw_text("work");
	raw_ask(&r, &m, WIRE_PUBLISHED);
	/* MADV_DONTFORK is libshare's manners; a page can be inherited */
	madvise(r.page, TIMELINE_PAGE_SIZE, MADV_DOFORK);
	if (fork() == 0) {
		struct gate *until_open = data;

		raw_hang_up(&r);
		close(self->channel);
		until_open->started++;
		/* a test that fails opens nothing */
		while (!until_open->open && kill(test, 0) == 0)
			for (int i = 0; i < 1000; i++)
				atomic_store(&r.page->slots[5].value, 0);
		until_open->done++;
		_exit(0);
	}
	child_point_with(self, "given", &given, sizeof(given));
}

Test(poison, nobody_can_take_the_poison_back)
{
	struct child *victim = child_start(dies_with_an_accomplice, gate);
	share_host_stream *stream;
	struct given given;
	share_buffer *b = NULL;

	child_wait_with(victim, "given", &given, sizeof(given));
	check_ok(share_host_stream_create(client, &stream));
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, stream, &b));
	until(gate->started);
	child_kill(victim);
	check_ok(share_host_stream_synchronize(stream));
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	check_ok(share_release(b, NULL));
	check_error(share_lookup(client, "work", SHARE_RDONLY, 0, NULL, &b), SHARE_EOWNERDEAD);
	gate_open(gate);
	until(gate->done);
	share_host_stream_destroy(stream);
	end();
}
