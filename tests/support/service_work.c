/* SPDX-License-Identifier: MIT */

#include "tests/support/service_work.h"

#include <string.h>

share_client *asking, *working;
share_pool *pool, *worker_pool;
share_service *caller, *worker;

share_service *open_service(share_client *c, int role)
{
	share_service *s;

	check_ok(share_service_open(c, "sums", role, NULL, &s));
	return s;
}

void service_start(void)
{
	fixture_start();
	asking = connect_as("caller");
	working = connect_as("worker");
	pool = open_pool(asking);
	worker_pool = open_pool(working);
	caller = open_service(asking, SHARE_CALLER);
	worker = open_service(working, SHARE_WORKER);
}

void service_stop(void)
{
	share_service_close(caller);
	share_service_close(worker);
	share_pool_close(pool);
	share_pool_close(worker_pool);
	share_disconnect(asking);
	share_disconnect(working);
	fixture_stop();
}

share_pending *ask_for(share_service *s, int number)
{
	share_pending *p;

	check_ok(share_call_start(s, NULL, &number, sizeof(number), FOREVER, NULL, &p));
	return p;
}

int number_in(const share_message *m)
{
	int number;

	check_eq(m->data_size, sizeof(number));
	memcpy(&number, m->data, sizeof(number));
	return number;
}

share_message next_of(share_service *s, int number)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_next_request(s, FOREVER, NULL, &m));
	check_eq(number_in(&m), number);
	return m;
}

/* The answer to n is 2 * n. */
int answer(share_message *request)
{
	int number = 2 * number_in(request);

	return share_reply(request, NULL, &number, sizeof(number), NULL);
}

void expect_answer(share_pending *p, int number)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_ok(share_call_finish(p, FOREVER, NULL, &m));
	check_eq(number_in(&m), 2 * number);
	check_ok(share_ack(&m, NULL));
}

void hold_answers(share_message *held, int n)
{
	for (int i = 0; i < n; i++) {
		share_pending *p = ask_for(caller, i);
		share_message m = next_of(worker, i);

		held[i] = (share_message)SHARE_MESSAGE_INIT;
		check_ok(answer(&m));
		check_ok(share_call_finish(p, FOREVER, NULL, &held[i]));
	}
}

void expect_failure(share_pending *p, int error)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_call_finish(p, FOREVER, NULL, &m), error);
	check(m.channel == NULL);
}

void expect_no_request(void)
{
	share_message m = SHARE_MESSAGE_INIT;

	check_error(share_next_request(worker, 0, NULL, &m), SHARE_EAGAIN);
}
