/* SPDX-License-Identifier: MIT */

/*
 * So many callers or workers come and go that the other side owes something to more than a ledger
 * has rows. It is left behind, and opens its channel again by itself: the program learns nothing of
 * it, and what it has stays its own.
 */

#include <poll.h>

#include "pages/channel_page.h"
#include "tests/harness/gate.h"
#include "tests/support/service_work.h"

#define MORE_THAN_ROWS (CHANNEL_MEMBERS_MAX + 1)

TestSuite(service_crowd, .init = service_start, .fini = service_stop, .timeout = 120);

static void callers_come_and_go(void)
{
	for (int i = 0; i < MORE_THAN_ROWS; i++) {
		share_service *s = open_service(asking, SHARE_CALLER);

		share_call_cancel(ask_for(s, 1000 + i));
		share_service_close(s);
	}
}

Test(service_crowd, a_worker_that_did_not_look_while_callers_came_and_went_works_on)
{
	share_pending *first, *later;
	share_message m = SHARE_MESSAGE_INIT;

	first = ask_for(caller, 1);
	m = next_of(worker, 1);
	callers_come_and_go();
	later = ask_for(caller, 2);
	/* what it had it can still answer */
	check_ok(answer(&m));
	expect_answer(first, 1);
	m = next_of(worker, 2);
	check_ok(answer(&m));
	expect_answer(later, 2);
	callers_come_and_go();
	first = ask_for(caller, 3);
	m = next_of(worker, 3);
	check_ok(answer(&m));
	expect_answer(first, 3);
}

Test(service_crowd, a_worker_that_closes_the_service_does_not_tell_of_what_others_have)
{
	share_pending *first = ask_for(caller, 1);
	share_message before = next_of(worker, 1), m = SHARE_MESSAGE_INIT;
	share_service *other;

	callers_come_and_go();
	other = open_service(working, SHARE_WORKER);
	m = next_of(other, 1);
	check_error(share_next_request(worker, 0, NULL, &(share_message)SHARE_MESSAGE_INIT),
		    SHARE_EAGAIN);
	share_service_close(worker);
	worker = NULL;
	check_ok(answer(&m));
	expect_answer(first, 1);
	check_ok(share_ack(&before, NULL));
	share_service_close(other);
}

Test(service_crowd, an_event_loop_goes_on_with_the_same_descriptor)
{
	struct pollfd p = {.fd = share_service_get_fd(worker), .events = POLLIN};
	share_pending *call;
	share_message m = SHARE_MESSAGE_INIT;

	check(p.fd >= 0);
	check_error(share_next_request(worker, 0, NULL, &m), SHARE_EAGAIN);
	callers_come_and_go();
	check_error(share_next_request(worker, 0, NULL, &m), SHARE_EAGAIN);
	check_eq(share_service_get_fd(worker), p.fd);
	call = ask_for(caller, 5);
	do
		check_eq(poll(&p, 1, HARNESS_LIMIT_MS), 1);
	while (share_next_request(worker, 0, NULL, &m) == SHARE_EAGAIN);
	check_eq(number_in(&m), 5);
	check_ok(answer(&m));
	expect_answer(call, 5);
}

Test(service_crowd, a_caller_that_did_not_look_while_workers_came_and_went_calls_on)
{
	share_message held = SHARE_MESSAGE_INIT, m = SHARE_MESSAGE_INIT;
	share_pending *call;

	call = ask_for(caller, 7);
	m = next_of(worker, 7);
	check_ok(answer(&m));
	check_ok(share_call_finish(call, FOREVER, NULL, &held));
	share_service_close(worker);
	for (int i = 0; i < MORE_THAN_ROWS; i++) {
		worker = open_service(working, SHARE_WORKER);
		share_service_close(worker);
	}
	worker = open_service(working, SHARE_WORKER);
	call = ask_for(caller, 8);
	m = next_of(worker, 8);
	check_ok(answer(&m));
	expect_answer(call, 8);
	check_eq(number_in(&held), 14);
	check_ok(share_ack(&held, NULL));
}
