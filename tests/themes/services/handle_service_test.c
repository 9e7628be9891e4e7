/* SPDX-License-Identifier: MIT */

/* Handles that were given up, of services and their calls; and requests that were answered. */

#include <poll.h>

#include "libshare/service/inside.h"
#include "tests/support/service_work.h"

TestSuite(handle_service, .init = service_start, .fini = service_stop, .timeout = 120);

Test(handle_service, a_service_is_given_up_once)
{
	share_service *old_caller = open_service(asking, SHARE_CALLER);
	share_service *old_worker = open_service(working, SHARE_WORKER), *s;
	share_outgoing with = SHARE_OUTGOING_INIT;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	for (int i = 0; i < 2; i++) {
		share_service_close(old_caller);
		share_service_close(old_worker);
	}
	check_given_up(share_call(old_caller, NULL, NULL, 0, 0, NULL, &m));
	check_given_up(share_call_start(old_caller, NULL, NULL, 0, 0, NULL, &p));
	check_given_up(share_call_with(old_caller, &with, 0, NULL, &m));
	check_given_up(share_call_start_with(old_caller, &with, 0, NULL, &p));
	check_given_up(share_next_request(old_worker, 0, NULL, &m));
	check_given_up(share_service_get_fd(old_worker));
	s = open_service(asking, SHARE_CALLER);
	check(s != old_caller && s != old_worker);
	share_service_close(old_caller);
	p = ask_for(s, 1);
	m = next_of(worker, 1);
	check_ok(answer(&m));
	expect_answer(p, 1);
	share_service_close(s);
}

Test(handle_service, a_call_is_given_up_once)
{
	share_pending *old = ask_for(caller, 1), *p;
	share_message m = SHARE_MESSAGE_INIT, request = SHARE_MESSAGE_INIT;

	check_error(share_call_finish(old, 0, NULL, &m), SHARE_EAGAIN); /* it stays */
	request = next_of(worker, 1);
	check_ok(answer(&request));
	expect_answer(old, 1);
	check_given_up(share_call_finish(old, 0, NULL, &m));
	for (int i = 0; i < 300; i++) { /* in its place */
		p = ask_for(caller, i);
		check(p != old);
		share_call_cancel(old);
		check_given_up(share_call_finish(old, 0, NULL, &m));
		request = next_of(worker, i);
		check_ok(answer(&request));
		expect_answer(p, i);
	}
	p = ask_for(caller, 2);
	share_call_cancel(p);
	share_call_cancel(p);
	check_given_up(share_call_finish(p, 0, NULL, &m));
	check_error(share_call_finish((share_pending *)(void *)caller, 0, NULL, &m), SHARE_EINVAL);
}

/* With memory, and without. */
Test(handle_service, a_request_is_answered_once)
{
	for (int i = 0; i < 2; i++) {
		share_buffer *b = i ? allocate(pool, 4096, NULL) : NULL;
		share_message request = SHARE_MESSAGE_INIT, copy = SHARE_MESSAGE_INIT;
		share_pending *p;

		check_ok(share_call_start(caller, b, &i, sizeof(i), FOREVER, NULL, &p));
		request = copy = next_of(worker, i);
		check_ok(share_request_status(&copy));
		check_ok(answer(&request));
		check_given_up(share_request_status(&copy));
		check_given_up(share_reply(&copy, NULL, &i, sizeof(i), NULL));
		check_given_up(share_ack(&copy, NULL));
		expect_answer(p, i);
		expect_no_request();
		if (b)
			check_ok(share_release(b, NULL));
	}
}

/* Nobody looks at it then, and it is not taken for a stream of a GPU. */
Test(handle_service, a_host_stream_that_was_given_up_is_refused)
{
	share_pending *p = ask_for(caller, 1);
	share_message m = SHARE_MESSAGE_INIT;
	share_host_stream *asks, *works;

	check_ok(share_host_stream_create(asking, &asks));
	check_ok(share_host_stream_create(working, &works));
	share_host_stream_destroy(asks);
	share_host_stream_destroy(works);
	check_given_up(share_next_request(worker, 0, works, &m));
	m = next_of(worker, 1);
	check_ok(answer(&m));
	check_given_up(share_call_finish(p, FOREVER, asks, &m));
	expect_answer(p, 1);
}

/* Another thread has said that it is about a call, and is about to look whether that is one still:
 * so it is none any more before anybody looks who says so, and not only when its memory is free. */
Test(handle_service, a_call_that_is_over_is_found_by_nobody_while_it_waits_for_others)
{
	HAZARDS;
	share_service *s = open_service(asking, SHARE_CALLER), *next;
	share_pending *p = ask_for(s, 1);

	/* the last one of its slot */
	while (!handle_is_worn(handle_object(p))) {
		share_call_cancel(p);
		expect_no_request();
		p = ask_for(s, 1);
	}
	check(hazard_set(handle_object(p)));
	share_call_cancel(p);
	check(!handle_exists(p, HANDLE_PENDING));
	p = ask_for(s, 2);
	check(hazard_set(handle_object(p)));
	share_service_close(s);
	check(!handle_exists(p, HANDLE_PENDING));
	/* perhaps where the other one was */
	next = open_service(asking, SHARE_CALLER);
	share_call_cancel(p);
	share_service_close(next);
}

/* Another thread has learned that the channel was left behind, and has not opened it again when the
 * service is given up: nobody would end the waits for what comes through a new one. */
Test(handle_service, a_service_that_was_given_up_opens_no_channel_again)
{
	HAZARDS;
	share_service *s = handle_object(worker);
	share_channel *requests = s->requests;

	check(hazard_set(s));
	share_service_close(worker);
	check_error(service_open_again(s, requests), SHARE_ECANCELED);
	check(s->requests == requests);
}

/* Answers of the channel that was left take no room any more. */
Test(handle_service, who_was_refused_a_call_is_told_when_the_channel_was_opened_again)
{
	HAZARDS;
	share_service *s = handle_object(caller);
	struct pollfd fd = {.fd = share_service_get_fd(caller), .events = POLLIN};
	share_message held[SHARE_CALLS_MAX];
	share_pending *p;

	check(hazard_set(s));
	hold_answers(held, SHARE_CALLS_MAX);
	check_error(share_call_start(caller, NULL, NULL, 0, 0, NULL, &p), SHARE_EAGAIN);
	check_eq(poll(&fd, 1, 0), 0);
	check_ok(service_open_again(s, s->replies));
	check_eq(poll(&fd, 1, FOREVER), 1);
	check_ok(share_call_start(caller, NULL, NULL, 0, 0, NULL, &p));
	for (int i = 0; i < SHARE_CALLS_MAX; i++)
		check_ok(share_ack(&held[i], NULL));
	check_eq(poll(&fd, 1, 0), 0);
	share_call_cancel(p);
}
