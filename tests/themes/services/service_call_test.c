/* SPDX-License-Identifier: MIT */

/*
 * Services: who asks gets the answer, the right one, once; and what becomes of requests and answers
 * when somebody gives up or does not play along.
 */

#include <stdio.h>
#include <string.h>

#include "tests/harness/gate.h"
#include "tests/support/service_work.h"

TestSuite(service_call, .init = service_start, .fini = service_stop, .timeout = 120);

Test(service_call, carries_buffers_and_data_both_ways)
{
	share_buffer *question = allocate(pool, 4096, NULL), *reply;
	char data[SHARE_REQUEST_DATA_MAX];
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_pending *p;

	memset(share_ptr(question), 5, 4096);
	memset(data, 6, sizeof(data));
	check_ok(share_call_start(caller, question, data, sizeof(data), FOREVER, NULL, &p));
	check_ok(share_release(question, NULL));

	check_ok(share_next_request(worker, FOREVER, NULL, &request));
	check_eq(request.data_size, sizeof(data));
	check_eq(request.deliveries, 1);
	check(memcmp(request.data, data, sizeof(data)) == 0);
	expect_filled(share_ptr(request.buffer), 5, 4096);
	check_eq(share_mode(request.buffer), SHARE_RDONLY);
	check_ok(share_request_status(&request));
	reply = allocate(worker_pool, 100, NULL);
	memset(share_ptr(reply), 7, 100);
	check_ok(share_reply(&request, reply, data, sizeof(data), NULL));
	check(request.channel == NULL);
	check_ok(share_release(reply, NULL));

	check_ok(share_call_finish(p, FOREVER, NULL, &got));
	check_eq(got.data_size, sizeof(data));
	check(memcmp(got.data, data, sizeof(data)) == 0);
	check_eq(share_size(got.buffer), 100);
	expect_filled(share_ptr(got.buffer), 7, 100);
	check_ok(share_ack(&got, NULL));
}

/* Whatever has failed on the way: somebody looked for, and nothing was there yet. */
Test(service_call, what_succeeds_leaves_the_detail_of_the_last_failure)
{
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_service *another;
	share_pending *p;
	char said[256];

	check_error(share_service_open(working, "", SHARE_WORKER, NULL, &another), SHARE_EINVAL);
	snprintf(said, sizeof(said), "%s", share_error_detail());
	check_ok(share_service_open(working, "another", SHARE_WORKER, NULL, &another));
	check_detail(said);
	share_service_close(another);
	check_ok(share_call_start(caller, NULL, "q", 1, FOREVER, NULL, &p));
	check_detail(said);
	check_ok(share_next_request(worker, FOREVER, NULL, &request));
	check_ok(share_reply(&request, NULL, "a", 1, NULL));
	check_ok(share_call_finish(p, FOREVER, NULL, &got));
	check_detail(said);
	check_ok(share_ack(&got, NULL));
}

Test(service_call, can_answer_with_the_buffer_of_the_request)
{
	share_buffer *question = allocate(pool, 4096, NULL);
	share_message request = SHARE_MESSAGE_INIT, got = SHARE_MESSAGE_INIT;
	share_pending *p;

	memset(share_ptr(question), 5, 4096);
	check_ok(share_call_start(caller, question, NULL, 0, FOREVER, NULL, &p));
	check_ok(share_next_request(worker, FOREVER, NULL, &request));
	check_ok(share_reply(&request, request.buffer, NULL, 0, NULL));
	check_ok(share_call_finish(p, FOREVER, NULL, &got));
	check_eq(share_id(got.buffer), share_id(question));
	expect_filled(share_ptr(got.buffer), 5, 4096);
	check_ok(share_ack(&got, NULL));
	check_ok(share_release(question, NULL));
}

Test(service_call, answers_several_calls_in_any_order)
{
	share_message requests[3] = {SHARE_MESSAGE_INIT};
	share_pending *calls[3];

	for (int i = 0; i < 3; i++)
		calls[i] = ask_for(caller, i);
	for (int i = 0; i < 3; i++)
		requests[i] = next_of(worker, i);
	check_ok(answer(&requests[1]));
	check_ok(answer(&requests[2]));
	expect_answer(calls[2], 2);
	check_ok(answer(&requests[0]));
	expect_answer(calls[0], 0);
	expect_answer(calls[1], 1);
}

Test(service_call, gives_each_caller_its_own_answers)
{
	share_service *other = open_service(asking, SHARE_CALLER); /* of the same process, too */
	share_pending *mine = ask_for(caller, 1), *its = ask_for(other, 2);

	for (int i = 0; i < 2; i++) {
		share_message m = SHARE_MESSAGE_INIT;

		check_ok(share_next_request(worker, FOREVER, NULL, &m));
		check_ok(answer(&m));
	}
	expect_answer(its, 2);
	expect_answer(mine, 1);
	share_service_close(other);
}

Test(service_call, keeps_a_request_for_the_first_worker_that_comes)
{
	share_pending *p;

	share_service_close(worker);
	p = ask_for(caller, 1);
	worker = open_service(working, SHARE_WORKER);
	for (share_message m = next_of(worker, 1); m.channel;)
		check_ok(answer(&m));
	expect_answer(p, 1);
}

/* ------------------------------------------------------------------------------------------- */
/* Giving up                                                                                   */

Test(service_call, ends_a_call_at_its_time_limit_and_drops_the_request)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_call(caller, NULL, "x", 1, 10, NULL, &m), SHARE_ETIMEDOUT);
	check_error(share_call(caller, NULL, "x", 1, 0, NULL, &m), SHARE_EAGAIN);
	check(m.channel == NULL);
	expect_no_request();
}

Test(service_call, says_that_there_is_no_answer_yet_and_goes_on)
{
	share_pending *p = ask_for(caller, 1);
	share_message m = SHARE_MESSAGE_INIT, none = SHARE_MESSAGE_INIT;

	check_error(share_call_finish(p, 0, NULL, &none), SHARE_EAGAIN);
	check(!none.channel);
	m = next_of(worker, 1);
	check_error(share_call_finish(p, 0, NULL, &none), SHARE_EAGAIN);
	check(!none.channel);
	check_ok(answer(&m));
	expect_answer(p, 1);
}

Test(service_call, drops_canceled_requests_unseen)
{
	share_pending *p = ask_for(caller, 1), *q = ask_for(caller, 2);

	share_call_cancel(p);
	for (share_message m = next_of(worker, 2); m.channel;)
		check_ok(answer(&m));
	expect_answer(q, 2);
	expect_no_request();
	share_call_cancel(NULL);
}

Test(service_call, tells_a_worker_at_work_that_its_call_was_canceled)
{
	share_pending *p = ask_for(caller, 1), *q;
	share_message m = next_of(worker, 1);

	check_ok(share_request_status(&m));
	share_call_cancel(p);
	check_error(share_request_status(&m), SHARE_ECANCELED);
	/* whose place is taken by another one: the answer to the first is not its answer */
	q = ask_for(caller, 2);
	check_error(share_request_status(&m), SHARE_ECANCELED);
	check_error(answer(&m), SHARE_ECANCELED);
	check(m.channel == NULL);
	m = next_of(worker, 2);
	check_ok(answer(&m));
	expect_answer(q, 2);
}

Test(service_call, drops_an_answer_that_comes_too_late)
{
	share_pending *p = ask_for(caller, 1), *q;
	share_message m = next_of(worker, 1);

	check_ok(answer(&m)); /* on its way */
	share_call_cancel(p);
	q = ask_for(caller, 2);
	m = next_of(worker, 2);
	check_ok(answer(&m));
	expect_answer(q, 2);
}

Test(service_call, fails_a_call_that_was_acknowledged_without_an_answer)
{
	share_pending *p = ask_for(caller, 1);
	share_message m = next_of(worker, 1);

	check_ok(share_ack(&m, NULL));
	expect_failure(p, SHARE_ECANCELED);
	check_detail("has not answered");
}

/* What the worker has taken, and no other one can be given. What it has not, the next one answers.
 */
Test(service_call, fails_those_that_a_worker_has_as_it_closes_the_service)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	share_pending *with, *without, *answered, *waiting;
	share_message first, second, third = SHARE_MESSAGE_INIT;
	int number = 1;

	memset(share_ptr(b), 5, 4096);
	check_ok(share_call_start(caller, b, &number, sizeof(number), 0, NULL, &with));
	check_ok(share_release(b, NULL));
	first = next_of(worker, 1);
	answered = ask_for(caller, 2);
	second = next_of(worker, 2);
	check_ok(answer(&second));
	without = ask_for(caller, 3);
	second = next_of(worker, 3);
	waiting = ask_for(caller, 4);
	share_service_close(worker);
	expect_failure(with, SHARE_ECANCELED);
	check_detail("has not answered");
	expect_failure(without, SHARE_ECANCELED);
	expect_answer(answered, 2);
	/* its memory stays as long as the message */
	expect_filled(share_ptr(first.buffer), 5, 4096);
	check_ok(share_ack(&first, NULL));
	check_ok(share_ack(&second, NULL));
	worker = open_service(working, SHARE_WORKER);
	third = next_of(worker, 4);
	check_ok(answer(&third));
	expect_answer(waiting, 4);
}

Test(service_call, limits_calls_and_answers_that_are_held)
{
	share_message requests[SHARE_CALLS_MAX] = {SHARE_MESSAGE_INIT}, held = SHARE_MESSAGE_INIT;
	share_pending *calls[SHARE_CALLS_MAX], *p;

	for (int i = 0; i < SHARE_CALLS_MAX; i++) {
		calls[i] = ask_for(caller, i);
		requests[i] = next_of(worker, i);
	}
	check_error(share_call_start(caller, NULL, NULL, 0, 10, NULL, &p), SHARE_EAGAIN);
	check_detail("finish some");
	check_ok(answer(&requests[0]));
	check_ok(share_call_finish(calls[0], FOREVER, NULL, &held));
	check_error(share_call_start(caller, NULL, NULL, 0, 10, NULL, &p), SHARE_EAGAIN);
	check_ok(share_ack(&held, NULL));
	share_call_cancel(calls[1]);
	check_error(answer(&requests[1]), SHARE_ECANCELED);
	for (int i = 0; i < 2; i++) {
		calls[i] = ask_for(caller, i);
		requests[i] = next_of(worker, i);
	}
	check_error(share_call_start(caller, NULL, NULL, 0, 10, NULL, &p), SHARE_EAGAIN);
	for (int i = 0; i < SHARE_CALLS_MAX; i++) {
		check_ok(answer(&requests[i]));
		expect_answer(calls[i], i);
	}
}

Test(service_call, waits_for_room_as_long_as_it_was_said)
{
	share_pending *calls[16], *p; /* the depth */
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < 16; i++)
		calls[i] = ask_for(caller, i);
	check_error(share_call_start(caller, NULL, NULL, 0, 10, NULL, &p), SHARE_ETIMEDOUT);
	check_error(share_call_start(caller, NULL, NULL, 0, 0, NULL, &p), SHARE_EAGAIN);
	check_error(share_call(caller, NULL, NULL, 0, 10, NULL, &m), SHARE_ETIMEDOUT);
	check_error(share_call(caller, NULL, NULL, 0, 0, NULL, &m), SHARE_EAGAIN);
	m = next_of(worker, 0);
	p = ask_for(caller, 16);
	check_ok(answer(&m));
	expect_answer(calls[0], 0);
	for (int i = 1; i < 16; i++)
		share_call_cancel(calls[i]);
	m = next_of(worker, 16);
	check_ok(answer(&m));
	expect_answer(p, 16);
}

/* ------------------------------------------------------------------------------------------- */
/* Mistakes                                                                                    */

Test(service_call, refuses_what_makes_no_sense)
{
	char much[SHARE_REQUEST_DATA_MAX + 1] = "";
	share_pending *p = ask_for(caller, 1);
	share_message m = SHARE_MESSAGE_INIT, none = SHARE_MESSAGE_INIT;
	share_pending *q;

	check_error(share_call_start(caller, NULL, much, sizeof(much), 0, NULL, &q), SHARE_EINVAL);
	check_error(share_call_start(worker, NULL, NULL, 0, 0, NULL, &q), SHARE_EINVAL);
	check_detail("not a caller");
	check_error(share_next_request(caller, 0, NULL, &m), SHARE_EINVAL);
	check_error(share_reply(&none, NULL, NULL, 0, NULL), SHARE_EINVAL);
	check_error(share_request_status(&none), SHARE_EINVAL);
	m = next_of(worker, 1);
	/* the request stays, and can be answered */
	check_error(share_reply(&m, NULL, much, sizeof(much), NULL), SHARE_EINVAL);
	check_ok(answer(&m));
	/* an answer is no request */
	check_ok(share_call_finish(p, FOREVER, NULL, &m));
	check_error(share_reply(&m, NULL, NULL, 0, NULL), SHARE_EINVAL);
	check_ok(share_ack(&m, NULL));
}

Test(service_call, keeps_a_request_whose_answer_is_of_another_pool)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pending *p = ask_for(caller, 1);
	share_message m = next_of(worker, 1);
	share_pool *strange;
	share_buffer *b;

	options.kind = "host";
	check_ok(share_pool_create(working, "strange", &options, &strange));
	b = allocate(strange, 100, NULL);
	check_error(share_reply(&m, b, NULL, 0, NULL), SHARE_EINVAL);
	check_ok(share_request_status(&m));
	check_ok(answer(&m));
	expect_answer(p, 1);
	check_ok(share_release(b, NULL));
	share_pool_close(strange);
}

Test(service_call, is_as_the_first_has_made_it)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s, *t;

	options.depth = 8;
	check_error(share_service_open(asking, "sums", SHARE_CALLER, &options, &s), SHARE_EEXIST);
	check_ok(share_service_open(asking, "other", SHARE_CALLER, &options, &s));
	check_ok(share_service_open(working, "other", SHARE_WORKER, NULL, &t));
	share_service_close(t);
	check_ok(share_service_open(working, "other", SHARE_WORKER, &options, &t));
	share_service_close(t);
	share_service_close(s);
	check_error(share_service_open(asking, "x", 3, NULL, &s), SHARE_EINVAL);
	share_service_close(NULL);
}

Test(service_call, does_not_take_a_channel_of_its_name_for_its_own)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;
	share_service *s = NULL;

	options.mode = SHARE_QUEUE;
	check_ok(share_channel_open(asking, "plain", SHARE_PRODUCER, &options, &ch));
	for (int role = SHARE_CALLER; role <= SHARE_WORKER; role++) {
		check_error(share_service_open(working, "plain", role, NULL, &s), SHARE_EEXIST);
		check_detail("channel 'plain' is not of a service");
	}
	check(s == NULL);
	share_channel_close(ch);
	/* with the channel its name is free */
	check_ok(share_service_open(working, "plain", SHARE_WORKER, NULL, &s));
	share_service_close(s);
}

Test(service_call, says_what_is_wrong_with_a_call)
{
	static const char data[SHARE_REQUEST_DATA_MAX + 1];
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_call_start(caller, NULL, data, sizeof(data), 0, NULL, &p), SHARE_EINVAL);
	check_detail(
	    "a request carries up to 240 bytes of data, not 241; up to 65519 if all who "
	    "open the service say so (data_max)");
	check_error(share_call_start(caller, NULL, NULL, 1, 0, NULL, &p), SHARE_EINVAL);
	check_detail("data is NULL, and its size 1");
	check_error(share_call_start(caller, NULL, data, 1, 0, NULL, NULL), SHARE_EINVAL);
	check_detail("out is NULL");
	check_error(share_call(caller, NULL, data, 1, 1, NULL, &m), SHARE_ETIMEDOUT);
	check_detail(
	    "no worker has answered in time, and the service has 1: sharectl channels shows "
	    "what they have");
	share_service_close(worker);
	worker = NULL;
	check_error(share_call(caller, NULL, data, 1, 1, NULL, &m), SHARE_ETIMEDOUT);
	check_detail("no worker takes part in the service, so nobody has answered");
}
