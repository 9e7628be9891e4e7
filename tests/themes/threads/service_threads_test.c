/* SPDX-License-Identifier: MIT */

/*
 * Services with many threads on each handle: callers that call, start several and finish them in
 * any order, or give up; workers that answer, take their time or do not answer at all. Every answer
 * is that to its own question.
 */

#include <stdio.h>

#include <share/service.h>

#include "tests/themes/threads/threads.h"

#define CALLERS 4
#define WORKERS 3
#define FOREVER 60000 /* only so that a test which hangs ends */

static share_service *caller, *worker;
static share_pool *workers_pool;
static struct crew crew;

static void start_service(void)
{
	start();
	check_ok(share_pool_open(second, "default", &workers_pool));
	check_ok(share_service_open(client, "echo", SHARE_CALLER, NULL, &caller));
	check_ok(share_service_open(second, "echo", SHARE_WORKER, NULL, &worker));
}

static void stop_service(void)
{
	share_service_close(caller);
	share_service_close(worker);
	share_pool_close(workers_pool);
	stop();
}

/* With memory or with data alone; the number is in both. */
static share_pending *ask(uint32_t *state, uint64_t number)
{
	share_buffer *b =
	    dice(state, 2) ? marked_buffer(pool, 8 + dice(state, 8192), number) : NULL;
	share_pending *p = NULL;
	int r;

	r = share_call_start(caller, b, &number, sizeof(number), FOREVER, NULL, &p);
	check_ok(r);
	if (b)
		check_ok(share_release(b, NULL));
	return p;
}

static void expect(share_pending *p, uint64_t number)
{
	share_message m = SHARE_MESSAGE_INIT;
	uint64_t got;

	if (check_one_of(share_call_finish(p, FOREVER, NULL, &m), SHARE_ECANCELED) != 0)
		return;
	check_eq(m.data_size, sizeof(got));
	memcpy(&got, m.data, sizeof(got));
	check_eq(got, number + 1);
	if (m.buffer)
		check_eq(mark_of(m.buffer), number + 1);
	check_ok(share_ack(&m, NULL));
}

static void call(void *data, unsigned index)
{
	uint32_t state = index + 1;

	(void)data;
	for (unsigned i = 0; i < steps(100); i++) {
		uint64_t number = (uint64_t)index << 32 | i << 8;
		share_pending *calls[4];
		unsigned n = 1 + dice(&state, 4), first = dice(&state, n);

		for (unsigned k = 0; k < n; k++)
			calls[k] = ask(&state, number + k);
		for (unsigned k = 0; k < n; k++) {
			unsigned at = (first + k) % n;

			if (dice(&state, 5) == 0)
				share_call_cancel(calls[at]);
			else
				expect(calls[at], number + at);
		}
	}
	crew_done(&crew);
}

static void answer(share_message *request, uint32_t *state)
{
	share_buffer *b = NULL;
	uint64_t number;

	check_eq(request->data_size, sizeof(number));
	memcpy(&number, request->data, sizeof(number));
	if (request->buffer)
		check_eq(mark_of(request->buffer), number);
	check_one_of(share_request_status(request), SHARE_ECANCELED);
	if (dice(state, 10) == 0) {
		check_ok(share_ack(request, NULL));
		return;
	}
	if (dice(state, 2))
		b = marked_buffer(workers_pool, 8 + dice(state, 8192), number + 1);
	number++;
	check_one_of(share_reply(request, b, &number, sizeof(number), NULL), SHARE_ECANCELED);
	check(request->channel == NULL);
	if (b)
		check_ok(share_release(b, NULL));
}

static void work(void *data, unsigned index)
{
	uint32_t state = index + 100;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	while (crew_is_busy(&crew))
		if (check_one_of(share_next_request(worker, 10, NULL, &m), SHARE_ETIMEDOUT) == 0)
			answer(&m, &state);
}

static void every_answer_is_that_to_its_question(void)
{
	start_service();
	crew = (struct crew){.busy = CALLERS};
	crew_add(&crew, CALLERS, call, NULL);
	crew_add(&crew, WORKERS, work, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop_service();
}

/* ------------------------------------------------------------------------------------------- */

/* A worker that comes and goes takes no request along. */
static void come_and_go(void *data, unsigned index)
{
	uint32_t state = index + 200;
	share_service *s;
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	while (crew_is_busy(&crew)) {
		check_ok(share_service_open(second, "echo", SHARE_WORKER, NULL, &s));
		for (unsigned i = dice(&state, 20); i > 0; i--)
			if (check_one_of(share_next_request(s, 1, NULL, &m), SHARE_ETIMEDOUT) == 0)
				answer(&m, &state);
		share_service_close(s);
	}
}

static void workers_may_come_and_go(void)
{
	start_service();
	crew = (struct crew){.busy = CALLERS};
	crew_add(&crew, CALLERS, call, NULL);
	crew_add(&crew, 1, work, NULL);
	crew_add(&crew, 2, come_and_go, NULL);
	crew_start(&crew);
	crew_join(&crew);
	stop_service();
}

int main(int argc, char **argv)
{
	static const struct thread_test tests[] = {
	    TEST(every_answer_is_that_to_its_question),
	    TEST(workers_may_come_and_go),
	};

	return threads_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
