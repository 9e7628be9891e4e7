/* SPDX-License-Identifier: MIT */

/* Services of one side are called on the other, and each call has one end. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/service.h>

#include "tests/harness/child.h"
#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_services, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static share_service *open_service(share_client *c, int role)
{
	share_service *s;

	check_ok(share_service_open(c, "detector", role, NULL, &s));
	return s;
}

static void start_both(struct sides *s)
{
	far_start(s, OPTIONS("--export-service", "*"));
	near_start(s, OPTIONS("--import-service", "detector"));
	until(bridge_said(&s->near_bridge, "service 'detector' is that of far") > 0);
}

/* Asks, and leaves the answer to somebody else. */
static share_pending *ask(share_service *caller, share_buffer *b, const char *question)
{
	share_pending *p;

	check_ok(
	    share_call_start(caller, b, question, strlen(question), HARNESS_LIMIT_MS, NULL, &p));
	return p;
}

/* Callers may have gone before: that is told once. */
static void take(share_service *worker, share_message *m)
{
	int r;

	do
		r = share_next_request(worker, HARNESS_LIMIT_MS, NULL, m);
	while (r == SHARE_EPIPE || (r == SHARE_EOWNERDEAD && !m->channel));
	check_ok(r);
}

Test(bridge_services, a_question_with_memory_gets_an_answer_with_memory)
{
	struct sides s;
	share_service *caller, *worker;
	share_pool *far_pool, *near_pool;
	share_buffer *b;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	far_pool = open_pool(s.far);
	near_pool = open_pool(s.near);
	for (unsigned i = 0; i < 50; i++) {
		b = allocate(near_pool, 1 + i * 999, NULL);
		content_fill(b, i);
		p = ask(caller, b, "what");
		check_ok(share_release(b, NULL));
		take(worker, &m);
		check(m.data_size == 4 && memcmp(m.data, "what", 4) == 0);
		check(share_size(m.buffer) == 1 + i * 999 && content_is(m.buffer, i));
		b = allocate(far_pool, 50000 - i * 999, NULL);
		content_fill(b, 1000 + i);
		check_ok(share_reply(&m, b, "that", 4, NULL));
		check_ok(share_release(b, NULL));
		check_ok(share_call_finish(p, -1, NULL, &answer));
		check(answer.data_size == 4 && memcmp(answer.data, "that", 4) == 0);
		check(content_is(answer.buffer, 1000 + i));
		check_ok(share_ack(&answer, NULL));
	}
	share_pool_close(far_pool);
	share_pool_close(near_pool);
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

Test(bridge_services, calls_are_answered_in_any_order)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p[16];
	share_message m[16] = {SHARE_MESSAGE_INIT}, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	for (int i = 0; i < 16; i++) {
		char question[2] = {(char)('a' + i)};

		p[i] = ask(caller, NULL, question);
	}
	for (int i = 0; i < 16; i++)
		take(worker, fresh(&m[i]));
	for (int i = 15; i >= 0; i--) {
		unsigned char word = m[i].data[0];

		check_ok(share_reply(&m[i], NULL, &word, 1, NULL));
	}
	for (int i = 0; i < 16; i++) {
		check_ok(share_call_finish(p[i], -1, NULL, &answer));
		check(answer.data_size == 1 && answer.data[0] == 'a' + i);
		check_ok(share_ack(&answer, NULL));
	}
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

Test(bridge_services, who_gives_a_call_up_gives_it_up_over_there)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	check_ok(share_request_status(&m));
	share_call_cancel(p);
	until(share_request_status(&m) == SHARE_ECANCELED);
	check_error(share_reply(&m, NULL, NULL, 0, NULL), SHARE_ECANCELED);
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

#define SERVICES 8

/* A bridge finds these calls as it opens, and hears of nothing new before they are given up.
 * Whether it finds a call at once or a moment later is a matter of chance, so there are some. */
Test(bridge_services, who_called_before_the_bridge_came_can_give_up_too)
{
	struct sides s;
	share_service *callers[SERVICES], *workers[SERVICES];
	share_pending *p[SERVICES];
	share_message m[SERVICES] = {SHARE_MESSAGE_INIT};
	char names[SERVICES][8];
	const char *options[2 * SERVICES + 1] = {NULL};

	sides_begin(&s);
	for (int i = 0; i < SERVICES; i++) {
		snprintf(names[i], sizeof(names[i]), "s%d", i);
		options[2 * i] = "--import-service";
		options[2 * i + 1] = names[i];
		check_ok(share_service_open(s.far, names[i], SHARE_WORKER, NULL, &workers[i]));
		check_ok(share_service_open(s.near, names[i], SHARE_CALLER, NULL, &callers[i]));
		p[i] = ask(callers[i], NULL, "what");
	}
	far_start(&s, OPTIONS("--export-service", "*"));
	near_start(&s, options);
	for (int i = 0; i < SERVICES; i++)
		take(workers[i], fresh(&m[i]));
	for (int i = 0; i < SERVICES; i++)
		share_call_cancel(p[i]);
	for (int i = 0; i < SERVICES; i++) {
		until(share_request_status(&m[i]) == SHARE_ECANCELED);
		check_ok(share_ack(&m[i], NULL));
		share_service_close(callers[i]);
		share_service_close(workers[i]);
	}
	sides_end(&s);
}

/* Nobody over there knows how long that was; who works for the caller is told when it is over. */
Test(bridge_services, a_call_whose_time_is_over_is_over_there_too)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	check_error(share_call_finish(p, 1, NULL, &answer), SHARE_ETIMEDOUT);
	until(share_request_status(&m) == SHARE_ECANCELED);
	check_ok(share_ack(&m, NULL));
	p = ask(caller, NULL, "again");
	take(worker, &m);
	check(m.data_size == 5);
	check_ok(share_reply(&m, NULL, "yes", 3, NULL));
	check_ok(share_call_finish(p, -1, NULL, &answer));
	check_ok(share_ack(&answer, NULL));
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

static void call_and_wait(struct child *self, void *address)
{
	share_service *caller;
	share_client *c;

	check_ok(share_connect(address, &c));
	caller = open_service(c, SHARE_CALLER);
	ask(caller, NULL, "what");
	child_point(self, "has asked");
}

Test(bridge_services, a_caller_that_dies_is_missed_over_there)
{
	struct sides s;
	share_service *worker;
	struct child *child;
	share_message m = SHARE_MESSAGE_INIT;
	char address[128];

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	snprintf(address, sizeof(address), "%s", share_address(s.near));
	child = child_start(call_and_wait, address);
	child_wait(child, "has asked");
	take(worker, &m);
	check_ok(share_request_status(&m));
	child_kill(child);
	until(share_request_status(&m) == SHARE_ECANCELED);
	check_ok(share_ack(&m, NULL));
	share_service_close(worker);
	sides_end(&s);
}

/* As with every worker that dies: the next one gets it, and who works for it over there is told. */
Test(bridge_services, calls_of_a_bridge_that_dies_go_to_the_next_one)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	bridge_kill(&s.near_bridge);
	until(share_request_status(&m) != 0);
	check_ok(share_ack(&m, NULL));
	near_start(&s, OPTIONS("--import-service", "detector"));
	take(worker, &m);
	check(m.data_size == 4);
	check_ok(share_reply(&m, NULL, "yes", 3, NULL));
	check_ok(share_call_finish(p, -1, NULL, &answer));
	check(answer.data_size == 3);
	check_ok(share_ack(&answer, NULL));
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

Test(bridge_services, a_worker_that_does_not_answer_is_told_of)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	check_ok(share_ack(&m, NULL));
	check_error(share_call_finish(p, -1, NULL, &m), SHARE_ECANCELED);
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

Test(bridge_services, a_lost_link_ends_the_calls_on_both_sides_and_later_ones_go_on)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	bridge_kill(&s.far_bridge);
	check_error(share_call_finish(p, -1, NULL, &answer), SHARE_ECANCELED);
	until(share_request_status(&m) != 0);
	check_ok(share_ack(&m, NULL));
	far_start(&s, OPTIONS("--export-service", "*"));
	p = ask(caller, NULL, "again");
	take(worker, &m);
	check_ok(share_reply(&m, NULL, "yes", 3, NULL));
	check_ok(share_call_finish(p, -1, NULL, &answer));
	check(answer.data_size == 3);
	check_ok(share_ack(&answer, NULL));
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}

static bool is_asleep(const struct bridge_process *p)
{
	char path[64], text[512] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)p->pid);
	f = fopen(path, "r");
	check(f && fgets(text, sizeof(text), f));
	fclose(f);
	end = strrchr(text, ')'); /* of the program's name */
	return end && end[2] == 'S';
}

/* What a bridge has to do takes a moment; one that never sleeps is never seen asleep. */
static void until_it_sleeps(const struct bridge_process *p)
{
	int asleep = 0;

	until((asleep = is_asleep(p) ? asleep + 1 : 0) == 20);
}

Test(bridge_services, a_bridge_that_nobody_asks_sleeps)
{
	struct sides s;
	share_service *caller, *worker;
	share_pending *p;
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;

	sides_begin(&s);
	worker = open_service(s.far, SHARE_WORKER);
	start_both(&s);
	until_it_sleeps(&s.far_bridge);
	until_it_sleeps(&s.near_bridge);
	caller = open_service(s.near, SHARE_CALLER);
	p = ask(caller, NULL, "what");
	take(worker, &m);
	check_ok(share_reply(&m, NULL, "yes", 3, NULL));
	check_ok(share_call_finish(p, -1, NULL, &answer));
	check_ok(share_ack(&answer, NULL));
	until_it_sleeps(&s.far_bridge);
	until_it_sleeps(&s.near_bridge);
	share_service_close(caller);
	share_service_close(worker);
	sides_end(&s);
}
