/* SPDX-License-Identifier: MIT */

/*
 * The broker is gone for good, and so is the other side, or it has never come: a worker that waits
 * for a caller, and a caller that waits for an answer, are told that nobody can come any more.
 */

#include <pthread.h>

#include "tests/support/service_work.h"

TestSuite(service_end, .init = fixture_start, .fini = fixture_stop, .timeout = 60);

static void *wait_for_request(void *data)
{
	share_message m = SHARE_MESSAGE_INIT;

	return (void *)(intptr_t)share_next_request(data, -1, NULL, &m);
}

static void *wait_for_answer(void *data)
{
	share_message m = SHARE_MESSAGE_INIT;

	return (void *)(intptr_t)share_call_finish(data, -1, NULL, &m);
}

static void expect_error_of(pthread_t thread, int error)
{
	void *result;

	check_eq(pthread_join(thread, &result), 0);
	check_error((int)(intptr_t)result, error);
}

static pthread_t start(void *(*what)(void *), void *data)
{
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, what, data), 0);
	return thread;
}

/* For the fixture, which wants one at the end. */
static void next_broker(void)
{
	broker_stop();
	broker_start(NULL);
}

Test(service_end, a_worker_is_told_that_no_caller_can_come)
{
	share_client *c = connect_as("worker");
	share_service *s = open_service(c, SHARE_WORKER);
	pthread_t thread = start(wait_for_request, s);

	broker_kill();
	expect_error_of(thread, SHARE_EDISCONNECTED);
	share_service_close(s);
	share_disconnect(c);
	next_broker();
}

static share_pending *call(share_service *s)
{
	int number = 1;
	share_pending *p;

	check_ok(share_call_start(s, NULL, &number, sizeof(number), 0, NULL, &p));
	return p;
}

Test(service_end, a_caller_is_told_that_no_worker_can_come)
{
	share_client *c = connect_as("caller");
	share_service *s = open_service(c, SHARE_CALLER);
	pthread_t thread = start(wait_for_answer, call(s));

	broker_kill();
	expect_error_of(thread, SHARE_EDISCONNECTED);
	share_service_close(s);
	share_disconnect(c);
	next_broker();
}

/* What a caller asked for was with the worker, or not, as that closes the service: it says so
 * itself of what it has. */
Test(service_end, a_caller_is_told_that_the_last_worker_has_gone)
{
	for (int received = 0; received < 2; received++) {
		share_client *c[] = {connect_as("caller"), connect_as("worker")};
		share_service *from = open_service(c[0], SHARE_CALLER);
		share_service *to = open_service(c[1], SHARE_WORKER);
		share_pending *p = call(from);
		pthread_t thread;
		share_message m = SHARE_MESSAGE_INIT;

		if (received)
			m = next_of(to, 1);
		broker_kill();
		thread = start(wait_for_answer, p);
		share_service_close(to);
		expect_error_of(thread, received ? SHARE_ECANCELED : SHARE_EDISCONNECTED);
		if (received)
			share_ack(&m, NULL);
		share_service_close(from);
		share_disconnect(c[0]);
		share_disconnect(c[1]);
		next_broker();
	}
}

/* The request of one that has gone is another's, who answers though there is no broker. */
Test(service_end, a_worker_that_is_left_answers)
{
	share_client *c[] = {connect_as("caller"), connect_as("worker"), connect_as("other")};
	share_service *from = open_service(c[0], SHARE_CALLER);
	share_service *to = open_service(c[1], SHARE_WORKER);
	share_service *other = open_service(c[2], SHARE_WORKER);
	share_message m = SHARE_MESSAGE_INIT;

	broker_kill();
	share_service_close(to);
	for (int i = 0; i < 4; i++) {
		share_pending *p = ask_for(from, i);

		m = next_of(other, i);
		check_ok(answer(&m));
		expect_answer(p, i);
	}
	share_service_close(from);
	share_service_close(other);
	for (unsigned i = 0; i < 3; i++)
		share_disconnect(c[i]);
	next_broker();
}
