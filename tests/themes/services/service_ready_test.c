/* SPDX-License-Identifier: MIT */

/* What the descriptor of a caller tells besides answers: that a call has failed, that there is room
 * for another one, and what has ended while another call was asked for; and that neither a caller
 * nor a worker is told of anything that is not to be done. */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/private/core.h>

#include "tests/harness/child.h"
#include "tests/harness/gate.h"
#include "tests/support/service_work.h"

TestSuite(service_ready, .init = service_start, .fini = service_stop, .timeout = 60);

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

Test(service_ready, tells_a_worker_of_requests_until_there_is_none)
{
	int fd = share_service_get_fd(worker);
	share_message m = SHARE_MESSAGE_INIT, none = SHARE_MESSAGE_INIT;
	share_pending *p;

	for (int i = 0; i < 3; i++) {
		until(share_next_request(worker, 0, NULL, &none) == SHARE_EAGAIN &&
		      !is_readable(fd, 0));
		p = ask_for(caller, i);
		check(is_readable(fd, FOREVER));
		m = next_of(worker, i);
		check_ok(answer(&m));
		expect_answer(p, i);
	}
}

/* Looks after the call until nothing more is told; SHARE_EAGAIN then. */
static int ask(share_pending *p, int fd)
{
	share_message none = SHARE_MESSAGE_INIT;
	int r;

	until((r = share_call_finish(p, 0, NULL, &none)) != SHARE_EAGAIN || !is_readable(fd, 0));
	return r;
}

static void take_one(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_service *s = open_service(c, SHARE_WORKER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_next_request(s, FOREVER, NULL, &m));
	child_point(self, "has it");
}

Test(service_ready, tells_that_all_workers_have_died_with_a_call)
{
	int fd = share_service_get_fd(caller), r;
	share_pending *p;
	share_message none = SHARE_MESSAGE_INIT;

	share_service_close(worker);
	p = ask_for(caller, 1);
	for (int i = 0; i < 3; i++) {
		struct child *victim = child_start(take_one, NULL);

		child_wait(victim, "has it");
		if (i == 2)
			check_error(ask(p, fd), SHARE_EAGAIN);
		child_kill(victim);
	}
	while ((r = share_call_finish(p, 0, NULL, &none)) == SHARE_EAGAIN)
		check(is_readable(fd, FOREVER));
	check_error(r, SHARE_EOWNERDEAD);
	worker = open_service(working, SHARE_WORKER);
}

Test(service_ready, tells_that_there_is_room_for_a_call)
{
	int fd = share_service_get_fd(caller);
	share_pending *calls[64], *more;
	share_message m;
	int n = 0;

	while (n < 64 && share_call_start(caller, NULL, &n, sizeof(n), 0, NULL, &calls[n]) == 0)
		n++;
	check(n > 0 && n < 64);
	check_error(ask(calls[0], fd), SHARE_EAGAIN);
	check_error(share_call_start(caller, NULL, &n, sizeof(n), 0, NULL, &more), SHARE_EAGAIN);
	check(!is_readable(fd, 0));
	/* to take one is to make room */
	m = next_of(worker, 0);
	check(is_readable(fd, FOREVER));
	check_ok(share_call_start(caller, NULL, &n, sizeof(n), 0, NULL, &more));
	/* who was refused has sent now: that there may be more room is nothing to tell */
	check_error(ask(calls[0], fd), SHARE_EAGAIN);
	check_ok(answer(&m));
	expect_answer(calls[0], 0);
}

static void expect_refusal(void)
{
	share_pending *none;

	check_error(share_call_start(caller, NULL, NULL, 0, 0, NULL, &none), SHARE_EAGAIN);
}

/* One more, after which there are as many again. */
static share_pending *start_one(int fd)
{
	share_pending *p;
	int number = 7;

	check(is_readable(fd, FOREVER));
	check_ok(share_call_start(caller, NULL, &number, sizeof(number), 0, NULL, &p));
	check(!is_readable(fd, 0));
	return p;
}

Test(service_ready, tells_who_was_refused_a_call_that_there_are_fewer)
{
	share_message held[SHARE_CALLS_MAX], m;
	int fd = share_service_get_fd(caller);
	share_pending *p;

	hold_answers(held, SHARE_CALLS_MAX);
	expect_refusal();
	check(!is_readable(fd, 0));
	check_ok(share_ack(&held[0], NULL));
	share_call_cancel(start_one(fd));
	/* who was not is told nothing */
	hold_answers(held, 1);
	check_ok(share_ack(&held[0], NULL));
	check(!is_readable(fd, 0));
	hold_answers(held, 1);
	expect_refusal();
	check_ok(share_try_ack(&held[0]));
	share_call_cancel(start_one(fd));
	for (int i = 0; i < 2; i++) {
		p = ask_for(caller, 8);
		expect_refusal();
		check(!is_readable(fd, 0));
		share_call_cancel(p);
		p = start_one(fd);
		expect_refusal();
		m = next_of(worker, 7);
		check_ok(share_ack(&m, NULL)); /* not answered */
		expect_failure(p, SHARE_ECANCELED);
		share_call_cancel(start_one(fd));
	}
	for (int i = 1; i < SHARE_CALLS_MAX; i++)
		check_ok(share_ack(&held[i], NULL));
}

Test(service_ready, tells_who_was_refused_a_call_before_it_had_the_descriptor)
{
	share_message held[SHARE_CALLS_MAX];

	hold_answers(held, SHARE_CALLS_MAX);
	expect_refusal();
	check_ok(share_try_ack(&held[0]));
	share_call_cancel(start_one(share_service_get_fd(caller)));
	for (int i = 1; i < SHARE_CALLS_MAX; i++)
		check_ok(share_ack(&held[i], NULL));
}

/* What others do then (answer, leave, come) is told to nobody, as there is no call to make. */
Test(service_ready, tells_nothing_to_who_has_no_calls)
{
	int fd = share_service_get_fd(caller);
	share_message m, none = SHARE_MESSAGE_INIT;
	share_pending *p, *other;

	check(!is_readable(fd, 0));
	/* finished */
	p = ask_for(caller, 1);
	m = next_of(worker, 1);
	check_ok(answer(&m));
	check(is_readable(fd, FOREVER));
	expect_answer(p, 1);
	check(!is_readable(fd, 0));
	/* canceled while its answer was under way, and the worker has left after that */
	p = ask_for(caller, 2);
	check_error(ask(p, fd), SHARE_EAGAIN);
	m = next_of(worker, 2);
	check_ok(answer(&m));
	check(is_readable(fd, FOREVER));
	share_call_cancel(p);
	check(!is_readable(fd, 0));
	share_service_close(worker);
	check(!is_readable(fd, 0));
	worker = open_service(working, SHARE_WORKER);
	/* canceled after it has ended, which was told */
	p = ask_for(caller, 3);
	m = next_of(worker, 3);
	check_ok(answer(&m));
	other = ask_for(caller, 4);
	check_error(share_call_finish(other, 0, NULL, &none), SHARE_EAGAIN);
	check(is_readable(fd, 0));
	share_call_cancel(p);
	check_error(ask(other, fd), SHARE_EAGAIN);
	share_call_cancel(other);
	check(!is_readable(fd, 0));
}

/* The one that was answered first is told of, whatever is asked for meanwhile. */
Test(service_ready, tells_of_a_call_until_that_is_asked_for)
{
	int fd = share_service_get_fd(caller);
	share_pending *first = ask_for(caller, 1), *more[2];
	share_message one;

	check_error(ask(first, fd), SHARE_EAGAIN);
	one = next_of(worker, 1);
	check_ok(answer(&one));
	for (int i = 0; i < 2; i++) {
		share_message none = SHARE_MESSAGE_INIT;

		more[i] = ask_for(caller, 2 + i);
		check_error(share_call_finish(more[i], 0, NULL, &none), SHARE_EAGAIN);
	}
	check(is_readable(fd, 0));
	expect_answer(first, 1);
	check_error(ask(more[0], fd), SHARE_EAGAIN);
	check_error(ask(more[1], fd), SHARE_EAGAIN);
	for (int i = 0; i < 2; i++)
		share_call_cancel(more[i]);
}

/* As asyncio does when it is woken, as all who wait ask again then. */
Test(service_ready, tells_nothing_of_what_was_asked_before_it_was_to_tell_no_more)
{
	share_message held[SHARE_CALLS_MAX], one, none = SHARE_MESSAGE_INIT;
	int fd = share_service_get_fd(caller);
	share_pending *first = ask_for(caller, 1), *second = ask_for(caller, 2);

	/* an answer */
	one = next_of(worker, 1);
	check_ok(answer(&one));
	until(share_call_finish(second, 0, NULL, &none) == SHARE_EAGAIN && is_readable(fd, 0));
	check_ok(share_untell_calls(caller));
	check_error(ask(second, fd), SHARE_EAGAIN);
	check(!is_readable(fd, 0));
	expect_answer(first, 1);
	one = next_of(worker, 2);
	check_ok(answer(&one));
	expect_answer(second, 2);
	/* that there are fewer: before it was told, and after */
	hold_answers(held, SHARE_CALLS_MAX);
	for (int i = 0; i < 2; i++) {
		expect_refusal();
		if (i == 0)
			check_ok(share_untell_calls(caller));
		check_ok(share_ack(&held[0], NULL));
		check(is_readable(fd, 0) == (i == 1));
		check_ok(share_untell_calls(caller));
		check(!is_readable(fd, 0));
		hold_answers(held, 1);
	}
	/* who is refused after that is told */
	expect_refusal();
	check_ok(share_ack(&held[0], NULL));
	share_call_cancel(start_one(fd));
	for (int i = 1; i < SHARE_CALLS_MAX; i++)
		check_ok(share_ack(&held[i], NULL));
	check_error(share_untell_calls(worker), SHARE_EINVAL);
}

/* An answer is received by whoever asks for any call. */
Test(service_ready, tells_what_has_ended_while_another_call_was_asked_for)
{
	int fd = share_service_get_fd(caller);
	share_pending *first = ask_for(caller, 1), *second = ask_for(caller, 2);
	share_message one = next_of(worker, 1), two = next_of(worker, 2), got = SHARE_MESSAGE_INIT;

	check_error(ask(second, fd), SHARE_EAGAIN);
	check_ok(answer(&two));
	until(share_call_finish(first, 0, NULL, &got) == SHARE_EAGAIN && is_readable(fd, 0));
	check_ok(share_call_finish(second, 0, NULL, &got));
	check_eq(number_in(&got), 4);
	check_ok(share_ack(&got, NULL));
	check_ok(answer(&one));
	expect_answer(first, 1);
}

/* As long as the work runs the call is to be asked for again, as nobody says when that is done; but
 * not at once, which an event loop would do all the time. */
Test(service_ready, tells_of_an_answer_whose_work_still_runs)
{
	int fd = share_service_get_fd(caller), number = 2;
	share_pending *p = ask_for(caller, 1);
	share_buffer *b = allocate(worker_pool, 4096, NULL);
	struct gate *gate = gate_new();
	share_host_stream *stream;
	share_message m = next_of(worker, 1);

	check_error(ask(p, fd), SHARE_EAGAIN);
	check_ok(share_host_stream_create(working, &stream));
	gate_hold(gate, stream);
	check_ok(share_reply(&m, b, &number, sizeof(number), stream));
	check_ok(share_release(b, stream));
	for (int i = 0; i < 3; i++) {
		check(is_readable(fd, FOREVER));
		do /* it may take longer to look than to be told */
			check_error(share_call_finish(p, 0, NULL, &m), SHARE_EAGAIN);
		while (is_readable(fd, 0));
	}
	gate_open(gate);
	check(is_readable(fd, FOREVER));
	expect_answer(p, 1);
	check(!is_readable(fd, 0));
	share_host_stream_destroy(stream);
	gate_free(gate);
}

/* ------------------------------------------------------------------------------------------- */
/* Edge-triggered                                                                              */

#define EDGES 1000
#define CALLS 8

static int watch_edges(share_service *s)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int loop = epoll_create1(EPOLL_CLOEXEC);

	check(loop >= 0);
	check_eq(epoll_ctl(loop, EPOLL_CTL_ADD, share_service_get_fd(s), &e), 0);
	return loop;
}

static void next_edge(int loop)
{
	struct epoll_event e;
	int n;

	do
		n = epoll_wait(loop, &e, 1, FOREVER);
	while (n < 0 && errno == EINTR);
	check_eq(n, 1);
}

static void *answer_at_edges(void *unused)
{
	int loop = watch_edges(worker), r;
	share_message m = SHARE_MESSAGE_INIT;

	(void)unused;
	for (int n = 0; n < EDGES;) {
		r = share_next_request(worker, 0, NULL, &m);
		if (r == SHARE_EAGAIN) {
			next_edge(loop);
			continue;
		}
		check_ok(r);
		check_ok(answer(&m));
		n++;
	}
	close(loop);
	return NULL;
}

/* What is under way and has its answer; so many are left. */
static int finish_all(share_pending **calls, int n)
{
	share_message m = SHARE_MESSAGE_INIT;
	int left = 0, r;

	for (int i = 0; i < n; i++) {
		r = share_call_finish(calls[i], 0, NULL, &m);
		if (r == SHARE_EAGAIN) {
			calls[left++] = calls[i];
			continue;
		}
		check_ok(r);
		check_ok(share_ack(&m, NULL));
	}
	return left;
}

/* Who asks for all that is under way until there is nothing misses no answer and no request. */
Test(service_ready, loops_may_be_edge_triggered)
{
	share_pending *calls[CALLS];
	int loop = watch_edges(caller), n = 0, before, started = 0;
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, answer_at_edges, NULL), 0);
	while (started < EDGES || n > 0) {
		while (n < CALLS && started < EDGES)
			calls[n++] = ask_for(caller, started++);
		before = n;
		n = finish_all(calls, n);
		if (n == before)
			next_edge(loop);
	}
	check_eq(pthread_join(thread, NULL), 0);
	close(loop);
}
