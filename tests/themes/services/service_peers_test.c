/* SPDX-License-Identifier: MIT */

/*
 * Services, between those who do not wait for each other: streams, threads, event loops; and when
 * callers, workers or the broker die.
 */

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/harness/gate.h"
#include "tests/support/service_work.h"

TestSuite(service_peers, .init = service_start, .fini = service_stop, .timeout = 120);

/* ------------------------------------------------------------------------------------------- */
/* Order, threads, event loops                                                                 */

Test(service_peers, orders_streams_both_ways)
{
	share_host_stream *a, *b;
	struct gate *g = gate_new();
	share_buffer *question, *reply;
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_pending *p;

	check_ok(share_host_stream_create(asking, &a));
	check_ok(share_host_stream_create(working, &b));
	question = allocate(pool, 4096, a);
	reply = allocate(worker_pool, 4096, b);
	gate_hold(g, a);
	gate_fill(g, a, share_ptr(question), 3, 4096);
	check_ok(share_call_start(caller, question, NULL, 0, FOREVER, a, &p));

	/* all of it is enqueued before any of it can run */
	check_ok(share_next_request(worker, FOREVER, b, &request));
	gate_expect(g, b, share_ptr(request.buffer), 3, 4096, 1);
	gate_fill(g, b, share_ptr(reply), 4, 4096);
	check_ok(share_reply(&request, reply, NULL, 0, b));
	check_ok(share_call_finish(p, FOREVER, a, &got));
	gate_expect(g, a, share_ptr(got.buffer), 4, 4096, 2);
	check_ok(share_ack(&got, a));
	gate_open(g);
	check_ok(share_host_stream_synchronize(a));
	check_ok(share_host_stream_synchronize(b));
	check_ok(share_release(question, a));
	check_ok(share_release(reply, b));
	share_host_stream_destroy(a);
	share_host_stream_destroy(b);
	gate_free(g);
}

Test(service_peers, waits_with_the_calling_thread_for_work_that_is_not_done)
{
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_host_stream *a;
	struct gate *g = gate_new();
	share_buffer *question;
	share_pending *p;

	check_ok(share_host_stream_create(asking, &a));
	question = allocate(pool, 4096, a);
	gate_hold(g, a);
	gate_fill(g, a, share_ptr(question), 3, 4096);
	check_ok(share_call_start(caller, question, NULL, 0, FOREVER, a, &p));
	/* the request is there, but not its content: it stays for another time */
	check_error(share_next_request(worker, 10, NULL, &request), SHARE_ETIMEDOUT);
	check_error(share_next_request(worker, 0, NULL, &request), SHARE_EAGAIN);
	check(request.channel == NULL);
	gate_open(g);
	check_ok(share_next_request(worker, FOREVER, NULL, &request));
	expect_filled(share_ptr(request.buffer), 3, 4096);
	check_ok(share_reply(&request, NULL, NULL, 0, NULL));
	check_ok(share_call_finish(p, FOREVER, NULL, &got));
	check_ok(share_ack(&got, NULL));
	check_ok(share_release(question, a));
	share_host_stream_destroy(a);
	gate_free(g);
}

static void expect_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	check(fd >= 0);
	check_eq(poll(&p, 1, FOREVER), 1);
}

Test(service_peers, tells_event_loops)
{
	int requests = share_service_get_fd(worker), answers = share_service_get_fd(caller);
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, none = SHARE_MESSAGE_INIT;

	expect_no_request(); /* armed */
	p = ask_for(caller, 1);
	expect_readable(requests);
	m = next_of(worker, 1);
	check_error(share_call_finish(p, 0, NULL, &none), SHARE_EAGAIN);
	check_ok(answer(&m));
	expect_readable(answers);
	check_ok(share_call_finish(p, 0, NULL, &m));
	check_ok(share_ack(&m, NULL));
}

#define THREADS 4
#define CALLS   200

static void *call_often(void *first)
{
	for (int i = 0; i < CALLS; i++) {
		int number = *(int *)first + i;
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_call(caller, NULL, &number, sizeof(number), FOREVER, NULL, &m));
		check_eq(number_in(&m), 2 * number);
		check_ok(share_ack(&m, NULL));
	}
	return NULL;
}

static void *answer_often(void *left)
{
	while (atomic_fetch_sub((atomic_int *)left, 1) > 0) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_next_request(worker, FOREVER, NULL, &m));
		check_ok(answer(&m));
	}
	return NULL;
}

Test(service_peers, serves_many_threads_on_one_handle)
{
	pthread_t callers[THREADS], workers[2];
	int first[THREADS];
	atomic_int left = THREADS * CALLS;

	for (int i = 0; i < THREADS; i++) {
		first[i] = i * 10000;
		check_eq(pthread_create(&callers[i], NULL, call_often, &first[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		check_eq(pthread_create(&workers[i], NULL, answer_often, &left), 0);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_join(callers[i], NULL), 0);
	for (int i = 0; i < 2; i++)
		check_eq(pthread_join(workers[i], NULL), 0);
}

/* ------------------------------------------------------------------------------------------- */
/* Death                                                                                       */

static void take_one(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_service *s = open_service(c, SHARE_WORKER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_next_request(s, FOREVER, NULL, &m));
	child_point_with(self, "has it", &m.deliveries, sizeof(m.deliveries));
}

static void die_with_it(uint32_t deliveries)
{
	struct child *victim = child_start(take_one, NULL);
	uint32_t got;

	child_wait_with(victim, "has it", &got, sizeof(got));
	check_eq(got, deliveries);
	child_kill(victim);
}

Test(service_peers, has_a_request_answered_by_another_worker_when_the_first_dies)
{
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	share_service_close(worker);
	p = ask_for(caller, 1);
	die_with_it(1);
	worker = open_service(working, SHARE_WORKER);
	m = next_of(worker, 1);
	check_eq(m.deliveries, 2);
	check_ok(answer(&m));
	expect_answer(p, 1);
}

Test(service_peers, fails_a_request_that_as_many_workers_died_with_as_may)
{
	share_pending *p;

	share_service_close(worker);
	p = ask_for(caller, 1);
	for (uint32_t i = 1; i <= 3; i++)
		die_with_it(i);
	expect_failure(p, SHARE_EOWNERDEAD);
	check_detail("have died with it");
	worker = open_service(working, SHARE_WORKER);
	expect_no_request();
}

static void ask_twice(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_service *s = open_service(c, SHARE_CALLER);

	(void)data;
	ask_for(s, 1);
	ask_for(s, 2);
	child_point(self, "asked");
}

Test(service_peers, drops_requests_of_the_dead_and_tells_who_works_for_them)
{
	struct child *victim = child_start(ask_twice, NULL);
	share_message m = SHARE_MESSAGE_INIT, unseen = SHARE_MESSAGE_INIT;
	share_pending *p;

	child_wait(victim, "asked");
	m = next_of(worker, 1);
	check_ok(share_request_status(&m));
	child_kill(victim);
	until(share_request_status(&m) == SHARE_EOWNERDEAD);
	check_error(answer(&m), SHARE_EOWNERDEAD);
	check(m.channel == NULL);
	/* the second is not seen; there is still a caller */
	check_error(share_next_request(worker, 0, NULL, &unseen), SHARE_EAGAIN);
	p = ask_for(caller, 3);
	m = next_of(worker, 3);
	check_ok(answer(&m));
	expect_answer(p, 3);
}

Test(service_peers, says_once_when_all_callers_have_gone)
{
	share_pending *p = ask_for(caller, 1);
	share_message m = next_of(worker, 1);

	check_ok(answer(&m));
	expect_answer(p, 1);
	share_service_close(caller);
	check_error(share_next_request(worker, FOREVER, NULL, &m), SHARE_EPIPE);
	expect_no_request();
	caller = open_service(asking, SHARE_CALLER);
	p = ask_for(caller, 2);
	m = next_of(worker, 2);
	check_ok(answer(&m));
	expect_answer(p, 2);
}

Test(service_peers, goes_on_without_the_broker)
{
	share_pending *p = ask_for(caller, 1);
	share_message m = next_of(worker, 1);

	broker_kill();
	check_ok(answer(&m));
	expect_answer(p, 1);
	p = ask_for(caller, 2);
	m = next_of(worker, 2);
	check_ok(share_request_status(&m));
	check_ok(answer(&m));
	expect_answer(p, 2);
}

/* ------------------------------------------------------------------------------------------- */
/* A call that fails while others go on                                                        */

static share_service *open_frail(share_client *c, int role)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	o.deliveries = 1;
	check_ok(share_service_open(c, "frail", role, &o, &s));
	return s;
}

static void take_and_wait(struct child *self, void *data)
{
	share_service *s = open_frail(child_connect("frail"), SHARE_WORKER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "open");
	check_ok(share_next_request(s, FOREVER, NULL, &m));
	child_point(self, "took one");
}

/*
 * Each thread is told to stop by a flag of its own: a thread that asks may have seen that it is to
 * go on and send one request more, so those who answer stop only after it has ended.
 */
struct traffic {
	share_service *caller, *worker;
	atomic_bool asked_enough, answered_enough;
};

static void *go_on_asking(void *data)
{
	struct traffic *t = data;
	share_message m = SHARE_MESSAGE_INIT;

	while (!atomic_load(&t->asked_enough)) {
		check_ok(share_call(t->caller, NULL, NULL, 0, FOREVER, NULL, &m));
		check_ok(share_ack(&m, NULL));
	}
	return NULL;
}

static void *go_on_answering(void *data)
{
	struct traffic *t = data;
	share_message m = SHARE_MESSAGE_INIT;

	while (!atomic_load(&t->answered_enough))
		if (share_next_request(t->worker, 20, NULL, &m) == 0)
			check_ok(share_reply(&m, NULL, NULL, 0, NULL));
	return NULL;
}

Test(service_peers, tells_of_a_worker_that_died_with_a_request_while_others_answer)
{
	struct traffic t = {.caller = open_frail(asking, SHARE_CALLER)};
	struct child *child = child_start(take_and_wait, NULL);
	pthread_t asks, answers;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	child_wait(child, "open");
	child_go(child);
	/* without a limit: at the end of one it would be told in any case */
	check_ok(share_call_start(t.caller, NULL, NULL, 0, -1, NULL, &p));
	child_wait(child, "took one");
	child_kill(child);
	t.worker = open_frail(working, SHARE_WORKER);
	check_eq(pthread_create(&answers, NULL, go_on_answering, &t), 0);
	check_eq(pthread_create(&asks, NULL, go_on_asking, &t), 0);
	check_error(share_call_finish(p, -1, NULL, &m), SHARE_EOWNERDEAD);
	atomic_store(&t.asked_enough, true);
	pthread_join(asks, NULL);
	atomic_store(&t.answered_enough, true);
	pthread_join(answers, NULL);
	share_service_close(t.worker);
	share_service_close(t.caller);
}
