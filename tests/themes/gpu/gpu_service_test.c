/* SPDX-License-Identifier: MIT */

/*
 * Services on CUDA streams: a request and its answer cost three signals, the caller's, one of the
 * worker's for the answer and its acknowledgement together, and the caller's acknowledgement. What
 * was asked with is not used again before the worker's stream has got there.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <share/service.h>

#include "tests/harness/fixture.h"
#include "tests/standin/calls.h"
#include "tests/support/gpu_work.h"
#include "tests/support/kinds.h"

TestSuite(gpu_service, .init = gpu_work_start, .fini = gpu_work_stop, .timeout = 60);

enum { WORKER }; /* gates */
#define CALLS   10
#define BLOCK   (GPU_BLOCK / 8) /* the pool has no more than GPU_BLOCK */
#define FOREVER 10000           /* only so that a test which hangs ends */

static share_service *open_service(share_client *c, int as)
{
	share_service *s;

	check_ok(share_service_open(c, "service", as, NULL, &s));
	return s;
}

/* ------------------------------------------------------------------------------------------- */

static void answers_in_turn(struct child *self, void *data)
{
	share_client *c = child_connect("worker");
	share_service *service = open_service(c, SHARE_WORKER);
	share_message request = SHARE_MESSAGE_INIT;
	share_buffer *answer;
	share_pool *pool;
	uint64_t signals;
	void *s;
	int r;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_pool_open(c, "default", &pool));
	check_ok(share_alloc(pool, BLOCK, s, &answer)); /* released once, which is counted, too */
	child_point(self, "ready");
	while ((r = share_next_request(service, FOREVER, s, &request)) == 0) {
		signals = gpu_stats(c).signals;
		check_ok(share_reply(&request, answer, NULL, 0, s));
		check_eq(gpu_stats(c).signals - signals, 1);
		check(!request.channel);
	}
	check_eq(r, SHARE_EPIPE);
	gpu_wait(s);
	check_ok(share_release(answer, s));
	gpu_stream_destroy(s);
	share_service_close(service);
	share_pool_close(pool);
	share_disconnect(c);
}

static void ask(share_service *service, share_buffer *b, void *s)
{
	share_message answer = SHARE_MESSAGE_INIT;

	check_ok(share_call(service, b, NULL, 0, FOREVER, s, &answer));
	check_ok(share_ack(&answer, s));
}

Test(gpu_service, an_answer_and_the_acknowledgement_of_what_was_asked_are_one_signal)
{
	static char file[] = "/tmp/share-calls-XXXXXX";
	struct standin_calls *calls;
	share_service *service;
	struct child *worker;
	share_buffer *b;
	uint64_t before;
	void *s;
	int fd = mkostemp(file, O_CLOEXEC);

	skip_unless_standin();
	check(fd >= 0);
	close(fd);
	setenv("SHARE_STANDIN_CALLS", file, 1);
	calls = standin_calls_open(file);
	check(calls);
	worker = child_start(answers_in_turn, NULL);
	child_wait(worker, "ready");
	gpu_use();
	s = gpu_stream();
	service = open_service(gpu_client, SHARE_CALLER);
	check_ok(share_alloc(gpu_pool, BLOCK, s, &b));
	child_go(worker);
	ask(service, b, s);
	before = calls->count[STANDIN_cuStreamWriteValue64_v2];
	for (int i = 0; i < CALLS; i++)
		ask(service, b, s);
	gpu_wait(s);
	check_eq(calls->count[STANDIN_cuStreamWriteValue64_v2] - before, 3 * CALLS);
	check_ok(share_release(b, s));
	gpu_stream_destroy(s);
	share_service_close(service);
	child_finish(worker);
	unlink(file);
}

/* ------------------------------------------------------------------------------------------- */

static void answers_behind_a_gate(struct child *self, void *data)
{
	share_client *c = child_connect("worker");
	share_service *service = open_service(c, SHARE_WORKER);
	struct gpu_reading *reading;
	share_message request = SHARE_MESSAGE_INIT;
	share_buffer *answer;
	share_pool *pool;
	void *s;

	(void)data;
	gpu_use();
	s = gpu_stream();
	check_ok(share_pool_open(c, "default", &pool));
	child_point(self, "ready");
	check_ok(share_next_request(service, FOREVER, s, &request));
	check_ok(share_alloc(pool, BLOCK, s, &answer));
	gpu_hold(s, WORKER);
	reading = gpu_read(s, request.buffer);
	check_ok(share_reply(&request, answer, NULL, 0, s));
	check(gpu_is_busy(s));
	check_ok(share_release(answer, s));
	child_point(self, "answered");
	gpu_wait(s);
	gpu_expect(reading, 1);
	gpu_stream_destroy(s);
	share_service_close(service);
	share_pool_close(pool);
	share_disconnect(c);
}

Test(gpu_service, what_was_asked_with_is_used_again_after_the_stream_that_answered)
{
	struct child *worker = child_start(answers_behind_a_gate, NULL);
	share_service *service;
	share_message answer = SHARE_MESSAGE_INIT;
	share_pending *call;
	share_buffer *b;
	void *s, *t;

	child_wait(worker, "ready");
	gpu_use();
	s = gpu_stream();
	t = gpu_stream();
	service = open_service(gpu_client, SHARE_CALLER);
	check_ok(share_alloc(gpu_pool, BLOCK, s, &b));
	gpu_fill(s, b, 1);
	check_ok(share_call_start(service, b, NULL, 0, FOREVER, s, &call));
	check_ok(share_release(b, s));
	child_go(worker);
	child_wait(worker, "answered");
	check_ok(share_call_finish(call, FOREVER, t, &answer));
	/* the block of the request, or another one if that is not back yet: whatever is written
	 * here, the worker reads what it was asked with */
	for (int i = 0; i < 4; i++) {
		check_ok(share_alloc(gpu_pool, BLOCK, s, &b));
		gpu_fill(s, b, 9);
		check_ok(share_release(b, s));
	}
	check_ok(share_ack(&answer, t));
	gpu_open(WORKER);
	gpu_wait(s);
	gpu_wait(t);
	gpu_stream_destroy(s);
	gpu_stream_destroy(t);
	share_service_close(service);
	child_go(worker);
	child_finish(worker);
}
