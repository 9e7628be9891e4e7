/* SPDX-License-Identifier: MIT */

/* Who pays for answers that are acknowledged behind work, and whose a buffer is that was to be
 * given with a call or an answer that failed. */

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"
#include "tests/support/service_work.h"
#include "tests/support/several_work.h"

#define CALLERS 32
#define CALLS   (8192 / (CALLERS * MOST))
#define OTHERS  3

static share_service *asks, *works;

static share_service *open_behind(share_client *c, int role)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	o.callers = CALLERS;
	o.buffers = MOST;
	o.depth = CALLS / 2;
	check_ok(share_service_open(c, "behind", role, &o, &s));
	return s;
}

static void start(void)
{
	service_start();
	asks = open_behind(asking, SHARE_CALLER);
	works = open_behind(working, SHARE_WORKER);
}

static void stop(void)
{
	share_service_close(asks);
	share_service_close(works);
	service_stop();
}

TestSuite(service_behind, .init = start, .fini = stop, .timeout = 120);

static share_outgoing to_be_given(share_pool *p, share_buffer **buffers, uint32_t n)
{
	share_outgoing m = SHARE_OUTGOING_INIT;

	for (uint32_t i = 0; i < n; i++)
		buffers[i] = filled_buffer(p, 50 + (int)i);
	m.buffers = buffers;
	m.n_buffers = n;
	m.flags = SHARE_OUTGOING_GIVE;
	return m;
}

static share_pending *ask(share_service *s)
{
	share_pending *call;

	check_ok(share_call_start(s, NULL, NULL, 0, FOREVER, NULL, &call));
	return call;
}

static share_message next(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_next_request(works, FOREVER, NULL, &m));
	return m;
}

static share_message answer_of(share_pending *call, void *stream)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_call_finish(call, FOREVER, stream, &m));
	return m;
}

/* With an answer as large as there is, which is acknowledged behind what @stream does. */
static void goes_round(share_service *s, void *stream)
{
	share_buffer *buffers[MOST];
	share_pending *call = ask(s);
	share_message request = next(), got;
	share_outgoing m = to_be_given(worker_pool, buffers, MOST);

	check_ok(share_reply_with(&request, &m, NULL));
	got = answer_of(call, stream);
	check_eq(got.n_buffers, MOST);
	check_ok(share_ack(&got, stream));
}

/* ------------------------------------------------------------------------------------------- */

static share_host_stream *busy;
static struct gate *gate;

static void begin_work(void)
{
	gate = gate_new();
	check_ok(share_host_stream_create(asking, &busy));
	gate_hold(gate, busy);
}

static void end_work(void)
{
	gate_open(gate);
	check_ok(share_host_stream_synchronize(busy));
	share_host_stream_destroy(busy);
	gate_free(gate);
}

Test(service_behind, answers_take_the_room_of_their_caller_and_of_nobody_else)
{
	share_service *others[OTHERS];
	share_pending *call;

	begin_work();
	for (int i = 0; i < CALLS; i++)
		goes_round(asks, busy);
	check_error(share_call_start(asks, NULL, NULL, 0, 0, NULL, &call), SHARE_EAGAIN);
	check_detail("behind work that is not done");
	check_error(share_call_start(asks, NULL, NULL, 0, 1, NULL, &call), SHARE_ETIMEDOUT);
	check_detail("8 answers");
	for (int k = 0; k < OTHERS; k++) {
		others[k] = open_behind(asking, SHARE_CALLER);
		for (int i = 0; i < CALLS; i++)
			goes_round(others[k], busy);
	}
	end_work();
	for (int i = 0; i < 2 * CALLS; i++) {
		goes_round(asks, NULL);
		goes_round(others[0], NULL);
	}
	for (int k = 0; k < OTHERS; k++)
		share_service_close(others[k]);
}

static void *opens_gate(void *unused)
{
	(void)unused;
	gate_open(gate);
	return NULL;
}

Test(service_behind, a_call_waits_for_work_that_its_caller_has_enqueued)
{
	pthread_t opener;

	begin_work();
	for (int i = 0; i < CALLS; i++)
		goes_round(asks, busy);
	check_eq(pthread_create(&opener, NULL, opens_gate, NULL), 0);
	goes_round(asks, busy);
	pthread_join(opener, NULL);
	end_work();
}

Test(service_behind, an_event_loop_is_told_when_that_work_is_done)
{
	struct pollfd fd = {.fd = share_service_get_fd(asks), .events = POLLIN};
	share_pending *call;
	int r;

	begin_work();
	for (int i = 0; i < CALLS; i++)
		goes_round(asks, busy);
	check_error(share_call_start(asks, NULL, NULL, 0, 0, NULL, &call), SHARE_EAGAIN);
	gate_open(gate);
	while ((r = share_call_start(asks, NULL, NULL, 0, 0, NULL, &call)) == SHARE_EAGAIN)
		check_eq(poll(&fd, 1, FOREVER), 1);
	check_ok(r);
	check_eq(poll(&fd, 1, 0), 0);
	share_call_cancel(call);
	end_work();
}

/* Messages of the channels of services, as their producers say. */
static int64_t all_in_flight(void)
{
	json_t *rows = report(asking, "channels"), *row, *member;
	size_t i, k;
	int64_t n = 0;

	json_array_foreach (rows, i, row)
		json_array_foreach (json_object_get(row, "members"), k, member)
			n += json_object_get(member, "in_flight") ? number_of(member, "in_flight")
								  : 0;
	json_decref(rows);
	return n;
}

/* Else one that opens it again and again would take the room of all others: each time it has as
 * many calls as all have. */
Test(service_behind, who_has_closed_it_takes_no_room_however_long_its_work_lasts)
{
	share_service *other = open_behind(asking, SHARE_CALLER);

	begin_work();
	for (int i = 0; i < CALLS; i++)
		goes_round(other, busy);
	check(all_in_flight() >= CALLS * MOST);
	share_service_close(other);
	until(all_in_flight() == 0);
	goes_round(asks, NULL);
	end_work();
}

/* Only what is done ends, wherever it is among the others. */
Test(service_behind, what_is_done_makes_room_for_as_many)
{
	share_host_stream *idle;
	share_pending *call;

	begin_work();
	check_ok(share_host_stream_create(asking, &idle));
	for (int i = 0; i < CALLS / 2; i++) {
		goes_round(asks, busy);
		goes_round(asks, idle);
	}
	check_ok(share_host_stream_synchronize(idle));
	for (int i = 0; i < CALLS / 2; i++)
		goes_round(asks, busy);
	check_error(share_call_start(asks, NULL, NULL, 0, 0, NULL, &call), SHARE_EAGAIN);
	end_work();
	share_host_stream_destroy(idle);
}

/* ------------------------------------------------------------------------------------------- */

static void releases_all(share_buffer **buffers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		check_ok(share_release(buffers[i], NULL));
}

static void has_none_of(share_buffer **buffers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		check_error(share_release(buffers[i], NULL), SHARE_EINVAL);
}

Test(service_behind, what_a_call_that_fails_was_to_give_is_its_callers)
{
	share_buffer *buffers[3];
	share_outgoing m = to_be_given(pool, buffers, 3);
	share_message got = SHARE_MESSAGE_INIT;
	share_pending *calls[CALLS];
	uint32_t n = 0;

	/* the answer is late */
	check_error(share_call_with(asks, &m, 1, NULL, &got), SHARE_ETIMEDOUT);
	releases_all(buffers, 3);
	/* there is no room for the request */
	share_service_close(works);
	while (n < CALLS && share_call_start(asks, NULL, NULL, 0, 0, NULL, &calls[n]) == 0)
		n++;
	check(n < CALLS);
	m = to_be_given(pool, buffers, 3);
	check_error(share_call_with(asks, &m, 1, NULL, &got), SHARE_ETIMEDOUT);
	releases_all(buffers, 3);
	m = to_be_given(pool, buffers, 3);
	check_error(share_call_with(asks, &m, 0, NULL, &got), SHARE_EAGAIN);
	releases_all(buffers, 3);
	while (n > 0)
		share_call_cancel(calls[--n]);
	works = open_behind(working, SHARE_WORKER);
}

static void *answers_one(void *unused)
{
	share_message request = next();

	(void)unused;
	check_eq(request.n_buffers, 3);
	check_ok(share_reply(&request, NULL, NULL, 0, NULL));
	return NULL;
}

Test(service_behind, what_a_call_gives_that_is_answered_is_given)
{
	share_buffer *buffers[3];
	share_outgoing m = to_be_given(pool, buffers, 3);
	share_message got = SHARE_MESSAGE_INIT;
	pthread_t answering;

	check_eq(pthread_create(&answering, NULL, answers_one, NULL), 0);
	check_ok(share_call_with(asks, &m, FOREVER, NULL, &got));
	pthread_join(answering, NULL);
	has_none_of(buffers, 3);
	check_ok(share_ack(&got, NULL));
}

/* What only the message holds cannot be given. */
Test(service_behind, a_loan_is_not_given_along_with_a_call)
{
	share_buffer *buffers[MOST];
	share_pending *call = ask(asks);
	share_message request = next(), got, none = SHARE_MESSAGE_INIT;
	share_outgoing m = to_be_given(worker_pool, buffers, 2);

	check_ok(share_reply_with(&request, &m, NULL));
	has_none_of(buffers, 2);
	got = answer_of(call, NULL);
	m.buffers = got.buffers;
	check_error(share_call_with(asks, &m, 0, NULL, &none), SHARE_EINVAL);
	check_ok(share_ack(&got, NULL));
}

/* The answer has gone, but the request could not be acknowledged: for what was kept of it there is
 * nobody to give a lease. */
Test(service_behind, what_an_answer_gives_is_the_workers_until_the_request_is_acknowledged)
{
	share_buffer *asked[4], *buffers[2], *kept;
	share_outgoing m = to_be_given(pool, asked, 4);
	share_message request, got;
	share_pending *call;

	check_ok(share_call_start_with(asks, &m, FOREVER, NULL, &call));
	request = next();
	kept = share_retain(request.buffers[2]);
	m = to_be_given(worker_pool, buffers, 2);
	broker_kill();
	check_error(share_reply_with(&request, &m, NULL), SHARE_EDISCONNECTED);
	check(request.channel);
	for (int i = 0; i < 2; i++)
		check_eq(*(unsigned char *)share_ptr(buffers[i]), 50 + i);
	got = answer_of(call, NULL);
	check_eq(got.n_buffers, 2);
	check_ok(share_ack(&got, NULL));
	check_ok(share_release(kept, NULL));
	check_ok(share_reply_with(&request, &m, NULL));
	check(!request.channel);
	has_none_of(buffers, 2);
}

/* ------------------------------------------------------------------------------------------- */

Test(service_behind, a_service_that_has_no_room_for_its_callers_says_how_many_it_has_room_for)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	o.buffers = MOST;
	o.data_max = 65519;
	check_error(share_service_open(asking, "largest", SHARE_CALLER, &o, &s), SHARE_EINVAL);
	check_detail("32 buffers and 65519 bytes of data has room for 31 callers at most, not 64");
	o.callers = 31;
	check_ok(share_service_open(asking, "largest", SHARE_CALLER, &o, &s));
	share_service_close(s);
}

Test(service_behind,
     a_service_that_is_to_have_more_members_than_it_may_says_so_in_words_of_services)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	o.callers = 65;
	check_error(share_service_open(asking, "crowded", SHARE_CALLER, &o, &s), SHARE_EINVAL);
	check_detail("a service has at most 64 callers at a time, not 65");
	o.callers = 0;
	o.workers = 1000;
	check_error(share_service_open(asking, "crowded", SHARE_WORKER, &o, &s), SHARE_EINVAL);
	check_detail("a service has at most 64 workers at a time, not 1000");
	o.workers = 64;
	check_ok(share_service_open(asking, "crowded", SHARE_WORKER, &o, &s));
	share_service_close(s);
}
