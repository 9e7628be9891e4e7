/* SPDX-License-Identifier: MIT */

/* Requests and answers of several buffers: they are one worker's and one caller's as a whole,
 * whoever dies in between, and nobody's answers are in the way of another's. */

#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/fresh.h"
#include "tests/harness/gate.h"
#include "tests/support/raw_channel.h"
#include "tests/support/service_work.h"
#include "tests/support/several_work.h"
#include "wire/messages.h"

static share_service *asks, *works;

static share_service_options several(void)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;

	o.callers = 4;
	o.buffers = MOST;
	o.data_max = 1000;
	return o;
}

static share_service *open_with(share_client *c, const share_service_options *o, int role)
{
	share_service *s;

	check_ok(share_service_open(c, "several", role, o, &s));
	return s;
}

static share_service *open_several(share_client *c, int role)
{
	share_service_options o = several();

	return open_with(c, &o, role);
}

static void start(void)
{
	service_start();
	asks = open_several(asking, SHARE_CALLER);
	works = open_several(working, SHARE_WORKER);
}

static void stop(void)
{
	share_service_close(asks);
	share_service_close(works);
	service_stop();
}

TestSuite(service_several, .init = start, .fini = stop, .timeout = 120);

/* Filled as messages with @value are, and given. */
static share_outgoing parts(share_pool *p, share_buffer **buffers, const int *value, uint32_t n)
{
	share_outgoing m = SHARE_OUTGOING_INIT;

	for (uint32_t i = 0; i < n; i++)
		buffers[i] = filled_buffer(p, *value + (int)i);
	m.buffers = buffers;
	m.n_buffers = n;
	m.flags = SHARE_OUTGOING_GIVE;
	m.data = value;
	m.data_size = sizeof(*value);
	return m;
}

static share_pending *ask_several(share_service *s, share_pool *p, int value, uint32_t n)
{
	share_buffer *buffers[MOST];
	share_outgoing m = parts(p, buffers, &value, n);
	share_pending *call;

	check_ok(share_call_start_with(s, &m, FOREVER, NULL, &call));
	return call;
}

static share_message take_several(share_service *s, int value, uint32_t n)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_next_request(s, FOREVER, NULL, &m));
	check_several(&m, value, n);
	return m;
}

static void answer_several(share_message *request, share_pool *p, int value, uint32_t n)
{
	share_buffer *buffers[MOST];
	share_outgoing m = parts(p, buffers, &value, n);

	check_ok(share_reply_with(request, &m, NULL));
	check(!request->channel);
}

static share_message answer_of(share_pending *call, int value, uint32_t n)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_call_finish(call, FOREVER, NULL, &m));
	check_several(&m, value, n);
	return m;
}

static void expect_several_of(share_pending *call, int value, uint32_t n)
{
	share_message m = answer_of(call, value, n);

	check_ok(share_ack(&m, NULL));
}

static void goes_round(uint32_t asked, uint32_t answered)
{
	share_pending *call = ask_several(asks, pool, 10, asked);
	share_message m = take_several(works, 10, asked);

	answer_several(&m, worker_pool, 90, answered);
	expect_several_of(call, 90, answered);
}

/* ------------------------------------------------------------------------------------------- */

Test(service_several, go_there_and_back)
{
	for (uint32_t n = 1; n <= MOST; n++)
		goes_round(n, MOST + 1 - n);
}

/* All of their memory comes back: far more goes round than the pool has. */
Test(service_several, give_all_their_memory_back)
{
	share_pool_options small = SHARE_POOL_OPTIONS_INIT;
	share_service_options o = several();
	share_pool *few;

	small.kind = "host";
	small.limit = 4 << 20;
	check_ok(share_pool_create(asking, "small", &small, &few));
	share_service_close(asks);
	share_service_close(works);
	o.pool = "small";
	asks = open_with(asking, &o, SHARE_CALLER);
	works = open_with(asking, &o, SHARE_WORKER);
	for (int i = 0; i < 200; i++) {
		share_pending *call = ask_several(asks, few, i % 100, MOST);
		share_message m = SHARE_MESSAGE_INIT;

		if (i % 5 == 0) {
			share_call_cancel(call); /* nobody sees it */
			continue;
		}
		m = take_several(works, i % 100, MOST);
		answer_several(&m, few, 100, MOST);
		if (i % 5 == 1)
			share_call_cancel(call); /* nor the answer */
		else
			expect_several_of(call, 100, MOST);
	}
	share_pool_close(few);
}

Test(service_several, each_may_be_kept_by_itself)
{
	share_pending *call = ask_several(asks, pool, 10, 4);
	share_message m = take_several(works, 10, 4);
	share_buffer *asked = share_retain(m.buffers[2]), *answered;

	answer_several(&m, worker_pool, 50, 3);
	m = answer_of(call, 50, 3);
	answered = share_retain(m.buffers[1]);
	check_ok(share_ack(&m, NULL));
	/* what comes next gets other memory */
	for (int i = 0; i < 10; i++)
		goes_round(4, 3);
	expect_filled(share_ptr(asked), 12, 4096);
	expect_filled(share_ptr(answered), 51, 4096);
	check_ok(share_release(asked, NULL));
	check_ok(share_release(answered, NULL));
}

/* Which the worker only has on loan. */
Test(service_several, may_be_answered_with_those_of_the_request)
{
	share_pending *call = ask_several(asks, pool, 10, 4);
	share_message m = take_several(works, 10, 4);
	share_outgoing same = SHARE_OUTGOING_INIT;
	int value = 10;

	same.buffers = m.buffers;
	same.n_buffers = m.n_buffers;
	same.data = &value;
	same.data_size = sizeof(value);
	check_ok(share_reply_with(&m, &same, NULL));
	expect_several_of(call, 10, 4);
}

Test(service_several, may_be_asked_for_and_waited_for_in_one_call)
{
	share_buffer *buffers[MOST];
	int value = 10;
	share_outgoing m = parts(pool, buffers, &value, 3);
	share_message got = SHARE_MESSAGE_INIT;

	check_error(share_call_with(asks, &m, 0, NULL, &got), SHARE_EAGAIN);
	check(!got.channel);
	/* it was sent, and nobody waits for it */
	check_error(share_next_request(works, 0, NULL, &got), SHARE_EAGAIN);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(buffers[i], NULL));
}

/* All of it is enqueued before any of it can run. */
Test(service_several, come_after_the_work_on_each_of_them)
{
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_buffer *buffers[2], *answers[2];
	share_outgoing m = SHARE_OUTGOING_INIT;
	struct gate *g = gate_new();
	share_host_stream *a, *b;
	share_pending *call;

	check_ok(share_host_stream_create(asking, &a));
	check_ok(share_host_stream_create(working, &b));
	gate_hold(g, a);
	for (int i = 0; i < 2; i++) {
		buffers[i] = allocate(pool, 4096, a);
		answers[i] = allocate(worker_pool, 4096, b);
		gate_fill(g, a, share_ptr(buffers[i]), 3 + i, 4096);
	}
	m.buffers = buffers;
	m.n_buffers = 2;
	m.flags = SHARE_OUTGOING_GIVE;
	check_ok(share_call_start_with(asks, &m, FOREVER, a, &call));
	check_ok(share_next_request(works, FOREVER, b, &request));
	check_eq(request.n_buffers, 2);
	for (int i = 0; i < 2; i++) {
		gate_expect(g, b, share_ptr(request.buffers[i]), 3 + i, 4096, 1 + 2 * i);
		gate_fill(g, b, share_ptr(answers[i]), 5 + i, 4096);
	}
	m.buffers = answers;
	check_ok(share_reply_with(&request, &m, b));
	check_ok(share_call_finish(call, FOREVER, a, &got));
	for (int i = 0; i < 2; i++)
		gate_expect(g, a, share_ptr(got.buffers[i]), 5 + i, 4096, 2 + 2 * i);
	check_ok(share_ack(&got, a));
	gate_open(g);
	check_ok(share_host_stream_synchronize(a));
	check_ok(share_host_stream_synchronize(b));
	share_host_stream_destroy(a);
	share_host_stream_destroy(b);
	gate_free(g);
}

/* The request is acknowledged behind the fence of the answer only where that comes after the work
 * on each of its buffers. */
Test(service_several, of_a_request_stay_until_work_on_another_stream_is_done)
{
	share_buffer *answers[2] = {filled_buffer(worker_pool, 50), filled_buffer(worker_pool, 51)};
	share_outgoing with = SHARE_OUTGOING_INIT;
	share_pending *call = ask_several(asks, pool, 10, 3);
	share_message m = take_several(works, 10, 3);
	share_host_stream *slow, *quick;
	struct gate *g = gate_new();
	share_buffer *held = share_retain(m.buffers[2]), *others[8];
	int value = 50;

	check_ok(share_host_stream_create(working, &slow));
	check_ok(share_host_stream_create(working, &quick));
	gate_hold(g, slow);
	gate_expect(g, slow, share_ptr(held), 12, 4096, 0);
	check_ok(share_release(held, slow));
	with.buffers = answers;
	with.n_buffers = 2;
	with.data = &value;
	with.data_size = sizeof(value);
	check_ok(share_reply_with(&m, &with, quick));
	expect_several_of(call, 50, 2);
	/* the next calls see that the request is acknowledged: these would get its memory then */
	for (int i = 0; i < 8; i++) {
		goes_round(1, 1);
		others[i] = filled_buffer(pool, 77);
	}
	gate_open(g);
	check_ok(share_host_stream_synchronize(slow));
	check_ok(share_host_stream_synchronize(quick));
	for (int i = 0; i < 8; i++)
		check_ok(share_release(others[i], NULL));
	for (int i = 0; i < 2; i++)
		check_ok(share_release(answers[i], NULL));
	share_host_stream_destroy(slow);
	share_host_stream_destroy(quick);
	gate_free(g);
}

Test(service_several, carry_as_many_bytes_as_was_said)
{
	static unsigned char bytes[1000];
	share_buffer *buffers[MOST];
	int value = 10;
	share_outgoing m = parts(pool, buffers, &value, 2);
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_pending *call;

	memset(bytes, 7, sizeof(bytes));
	m.data = bytes;
	m.data_size = sizeof(bytes);
	check_ok(share_call_start_with(asks, &m, FOREVER, NULL, &call));
	check_ok(share_next_request(works, FOREVER, NULL, &request));
	check(request.data_size == sizeof(bytes) && memcmp(request.data, bytes, 1000) == 0);
	check_ok(share_reply(&request, NULL, bytes, sizeof(bytes), NULL));
	check_ok(share_call_finish(call, FOREVER, NULL, &got));
	check(got.data_size == sizeof(bytes) && memcmp(got.data, bytes, 1000) == 0);
	check_ok(share_ack(&got, NULL));
	check_error(share_call(asks, NULL, bytes, 1001, FOREVER, NULL, &got), SHARE_EINVAL);
	check_detail("up to 1000 bytes");
}

/* Who says nothing counts on them. */
Test(service_several, carry_as_many_bytes_as_ever_where_fewer_were_said)
{
	static const unsigned char bytes[SHARE_REQUEST_DATA_MAX] = {7};
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_service *few, *any;
	share_pending *call;

	o.data_max = 1;
	check_ok(share_service_open(asking, "few", SHARE_CALLER, &o, &few));
	check_ok(share_service_open(working, "few", SHARE_WORKER, NULL, &any));
	check_ok(share_call_start(few, NULL, bytes, sizeof(bytes), FOREVER, NULL, &call));
	check_ok(share_next_request(any, FOREVER, NULL, &request));
	check_eq(request.data_size, sizeof(bytes));
	check_ok(share_reply(&request, NULL, bytes, sizeof(bytes), NULL));
	check_ok(share_call_finish(call, FOREVER, NULL, &got));
	check_eq(got.data_size, sizeof(bytes));
	check_ok(share_ack(&got, NULL));
	share_service_close(few);
	share_service_close(any);
}

/* ------------------------------------------------------------------------------------------- */
/* How many                                                                                    */

static uint32_t calls_at_a_time(share_service *s)
{
	share_pending *calls[SHARE_CALLS_MAX], *one;
	uint32_t n = 0;
	int r;

	while ((r = share_call_start(s, NULL, NULL, 0, 0, NULL, &one)) == 0) {
		share_message m = SHARE_MESSAGE_INIT;

		calls[n++] = one;
		check_ok(share_next_request(works, FOREVER, NULL, &m));
		check_ok(share_reply(&m, NULL, NULL, 0, NULL));
	}
	check_error(r, SHARE_EAGAIN);
	check_detail("finish some");
	for (uint32_t i = 0; i < n; i++)
		share_call_cancel(calls[i]);
	return n;
}

static void expect_calls(uint32_t callers, uint32_t buffers, uint32_t data_max, uint32_t n)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;

	share_service_close(asks);
	share_service_close(works);
	o.callers = callers;
	o.buffers = buffers;
	o.data_max = data_max;
	asks = open_with(asking, &o, SHARE_CALLER);
	works = open_with(working, &o, SHARE_WORKER);
	check_eq(calls_at_a_time(asks), n);
}

Test(service_several, are_of_as_many_calls_as_there_is_room_for_their_answers)
{
	expect_calls(0, 1, 0, SHARE_CALLS_MAX);
	expect_calls(0, 2, 0, 64);
	expect_calls(0, MOST, 0, 4);
	expect_calls(3, MOST, 0, 64);
	expect_calls(1, MOST, 0, SHARE_CALLS_MAX);
	expect_calls(1, 1, 65519, SHARE_CALLS_MAX);
	expect_calls(64, 1, 65519, 16);
	expect_calls(1, MOST, 65519, 16);
}

/* Whoever keeps all the answers that it may have. */
Test(service_several, that_one_caller_keeps_are_in_no_other_ones_way)
{
	share_service *greedy[3];
	share_message held[3][64];

	for (int k = 0; k < 3; k++) {
		greedy[k] = open_several(asking, SHARE_CALLER);
		for (int i = 0; i < 64; i++) {
			share_pending *call = ask_several(greedy[k], pool, 1, 1);
			share_message m = take_several(works, 1, 1);

			answer_several(&m, worker_pool, 100, MOST);
			held[k][i] = (share_message)SHARE_MESSAGE_INIT;
			check_ok(share_call_finish(call, FOREVER, NULL, &held[k][i]));
		}
	}
	for (int i = 0; i < 64; i++)
		goes_round(MOST, MOST);
	for (int k = 0; k < 3; k++) {
		check_ok(share_ack_many(held[k], 64, NULL));
		share_service_close(greedy[k]);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Who dies                                                                                    */

static void take_and_die(struct child *self, void *data)
{
	share_service *s = open_several(child_connect("dies"), SHARE_WORKER);

	(void)data;
	child_point(self, "open");
	take_several(s, 10, 4);
	child_point(self, "took it");
}

Test(service_several, that_a_dead_worker_had_go_to_another_as_a_whole)
{
	struct child *child;
	share_pending *call;
	share_message m;

	share_service_close(works);
	child = child_start(take_and_die, NULL);
	child_wait(child, "open");
	call = ask_several(asks, pool, 10, 4);
	child_go(child);
	child_wait(child, "took it");
	works = open_several(working, SHARE_WORKER);
	child_kill(child);
	m = take_several(works, 10, 4);
	check_eq(m.deliveries, 2);
	answer_several(&m, worker_pool, 50, 5);
	expect_several_of(call, 50, 5);
}

Test(service_several, that_all_workers_died_with_are_their_callers_again)
{
	share_pending *call = NULL;

	share_service_close(works);
	for (int i = 0; i < 3; i++) {
		struct child *child = child_start(take_and_die, NULL);

		child_wait(child, "open");
		if (i == 0)
			call = ask_several(asks, pool, 10, 4);
		child_go(child);
		child_wait(child, "took it");
		child_kill(child);
	}
	expect_failure(call, SHARE_EOWNERDEAD);
	works = open_several(working, SHARE_WORKER);
	goes_round(4, 4);
}

static void answer_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_service *s = open_several(c, SHARE_WORKER);
	share_pool *p = open_pool(c);
	share_message m;

	(void)data;
	child_point(self, "open");
	m = take_several(s, 10, 4);
	answer_several(&m, p, 50, 5);
	child_point(self, "answered");
}

/* The broker keeps the memory of each until it is acknowledged. */
Test(service_several, outlive_the_worker_that_has_answered)
{
	struct child *child;
	share_pending *call;
	share_message m;
	share_buffer *kept;

	share_service_close(works);
	child = child_start(answer_and_die, NULL);
	child_wait(child, "open");
	call = ask_several(asks, pool, 10, 4);
	child_go(child);
	child_wait(child, "answered");
	child_kill(child);
	m = answer_of(call, 50, 5);
	kept = share_retain(m.buffers[4]);
	check_ok(share_ack(&m, NULL));
	expect_filled(share_ptr(kept), 54, 4096);
	check_ok(share_release(kept, NULL));
	works = open_several(working, SHARE_WORKER);
	goes_round(4, 4);
}

static void ask_and_die(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_service *s = open_several(c, SHARE_CALLER);
	share_pending *call = ask_several(s, open_pool(c), 10, 4);
	share_message m;

	(void)data;
	child_point(self, "asked");
	m = answer_of(call, 50, MOST);
	child_point(self, "has the answer");
	check_ok(share_ack(&m, NULL));
}

/* The answer is its worker's still. */
Test(service_several, that_nobody_waits_for_any_more_are_not_given)
{
	share_pending *call = ask_several(asks, pool, 10, 4);
	share_message m = take_several(works, 10, 4);
	share_buffer *buffers[3];
	int value = 50;
	share_outgoing with = parts(worker_pool, buffers, &value, 3);

	share_call_cancel(call);
	check_error(share_reply_with(&m, &with, NULL), SHARE_ECANCELED);
	check(!m.channel);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(buffers[i], NULL));
}

Test(service_several, that_nobody_answers_in_time_are_late)
{
	share_buffer *buffers[3];
	int value = 10;
	share_outgoing with = parts(pool, buffers, &value, 3);
	share_message got = SHARE_MESSAGE_INIT;

	check_error(share_call_with(asks, &with, 1, NULL, &got), SHARE_ETIMEDOUT);
	check(!got.channel);
	for (int i = 0; i < 3; i++)
		check_ok(share_release(buffers[i], NULL));
}

/* It was given to nobody else, and there are tickets for the next one. */
Test(service_several, that_a_dead_caller_had_are_back)
{
	for (int i = 0; i < 20; i++) {
		struct child *child = child_start(ask_and_die, NULL);
		share_message m;

		child_wait(child, "asked");
		m = take_several(works, 10, 4);
		if (i % 2 == 0) {
			answer_several(&m, worker_pool, 50, MOST);
			child_go(child);
			child_wait(child, "has the answer");
			child_kill(child);
			continue;
		}
		child_kill(child);
		check_several(&m, 10, 4);
		until(share_request_status(&m) == SHARE_EOWNERDEAD);
		check_ok(share_ack(&m, NULL));
	}
	goes_round(4, MOST);
}

Test(service_several, are_known_to_the_next_broker)
{
	share_pending *first = ask_several(asks, pool, 10, 4), *second;
	share_message m = take_several(works, 10, 4), got;
	share_service *another;

	broker_kill_serving();
	answer_several(&m, worker_pool, 50, 5);
	second = ask_several(asks, pool, 20, 3);
	broker_kill_serving();
	another = open_several(working, SHARE_WORKER);
	got = answer_of(first, 50, 5);
	broker_kill_serving();
	check_ok(share_ack(&got, NULL));
	m = take_several(works, 20, 3);
	answer_several(&m, worker_pool, 60, MOST);
	expect_several_of(second, 60, MOST);
	share_service_close(another);
}

Test(service_several, go_on_without_the_broker)
{
	share_buffer *buffers[4], *answers[4];
	int value = 10, reply = 50;
	share_outgoing request = parts(pool, buffers, &value, 4);
	share_outgoing with = parts(worker_pool, answers, &reply, 4);
	share_message m;
	share_pending *call;

	goes_round(4, 4);
	broker_kill();
	check_ok(share_call_start_with(asks, &request, FOREVER, NULL, &call));
	m = take_several(works, 10, 4);
	check_ok(share_reply_with(&m, &with, NULL));
	expect_several_of(call, 50, 4);
}

/* It opens the channel again by itself, as it was opened before. */
Test(service_several, go_on_where_one_that_did_not_look_is_left_behind)
{
	share_pending *call;
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < CHANNEL_MEMBERS_MAX + 1; i++) {
		share_service *s = open_several(asking, SHARE_CALLER);

		check_ok(share_call_start(s, NULL, NULL, 0, FOREVER, NULL, &call));
		share_call_cancel(call);
		share_service_close(s);
	}
	check_error(share_next_request(works, 0, NULL, &m), SHARE_EAGAIN);
	goes_round(5, 6);
}

/* ------------------------------------------------------------------------------------------- */
/* What is refused                                                                             */

Test(service_several, what_makes_no_sense_is_refused)
{
	share_buffer *buffers[MOST + 1] = {filled_buffer(pool, 1), NULL};
	share_outgoing m = SHARE_OUTGOING_INIT;
	share_message got = SHARE_MESSAGE_INIT, request;
	share_service_options o = several();
	share_pending *call;
	share_service *s;

	m.buffers = buffers;
	m.n_buffers = 2;
	check_error(share_call_with(asks, &m, FOREVER, NULL, &got), SHARE_EINVAL);
	check_error(share_call_start_with(asks, &m, FOREVER, NULL, &call), SHARE_EINVAL);
	m.n_buffers = MOST + 1;
	check_error(share_call_with(asks, &m, FOREVER, NULL, &got), SHARE_EINVAL);
	check_detail("up to 32 buffers, not 33");
	check_error(share_call_with(asks, NULL, FOREVER, NULL, &got), SHARE_EINVAL);
	check_ok(share_release(buffers[0], NULL));
	call = ask_several(asks, pool, 10, 2);
	request = take_several(works, 10, 2);
	check_error(share_reply_with(&request, &m, NULL), SHARE_EINVAL);
	check_error(share_reply_with(&request, NULL, NULL), SHARE_EINVAL);
	answer_several(&request, worker_pool, 50, 2);
	expect_several_of(call, 50, 2);
	o.buffers = MOST + 1;
	check_error(share_service_open(asking, "other", SHARE_CALLER, &o, &s), SHARE_EINVAL);
	o.buffers = 1;
	o.data_max = 65520;
	check_error(share_service_open(asking, "other", SHARE_CALLER, &o, &s), SHARE_EINVAL);
	check_detail("65519");
}

Test(service_several, in_a_service_of_one_each_are_refused)
{
	share_buffer *buffers[2];
	int value = 10;
	share_outgoing m = parts(pool, buffers, &value, 2);
	share_message got = SHARE_MESSAGE_INIT;

	check_error(share_call_with(caller, &m, FOREVER, NULL, &got), SHARE_EINVAL);
	check_ok(share_release(buffers[0], NULL));
	check_ok(share_release(buffers[1], NULL));
}

/* Its program may look at the first alone. */
Test(service_several, are_of_those_who_have_said_that_they_want_them)
{
	share_service_options o = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	check_error(share_service_open(asking, "several", SHARE_CALLER, NULL, &s), SHARE_EEXIST);
	check(strstr(share_error_detail(), "buffers"));
	check_error(share_service_open(asking, "several", SHARE_WORKER, NULL, &s), SHARE_EEXIST);
	o.buffers = MOST; /* and not how many bytes */
	check_error(share_service_open(asking, "several", SHARE_CALLER, &o, &s), SHARE_EEXIST);
	o.buffers = 0;
	o.data_max = 1000;
	check_error(share_service_open(asking, "several", SHARE_WORKER, &o, &s), SHARE_EEXIST);
	/* who has said nothing has not kept others out */
	goes_round(4, 4);
}

Test(service_several, an_older_library_is_told_that_it_cannot_take_part)
{
	static const char *const names[] = {"several", "several.replies"};
	static const uint32_t modes[] = {CHANNEL_QUEUE, CHANNEL_DIRECT};
	struct raw r;

	raw_connect(&r);
	r.version = WIRE_VERSION_FAR - 1;
	raw_greet(&r, "old");
	for (int i = 0; i < 2; i++)
		for (uint32_t role = SHARE_PRODUCER; role <= SHARE_CONSUMER; role++) {
			struct wire_message m = party_request(names[i], role);

			m.channel_open.mode = modes[i];
			m.channel_open.flags |= WIRE_CHANNEL_SERVICE;
			raw_ask_error(&r, &m, SHARE_ENOTSUP);
		}
	raw_close(&r);
}
