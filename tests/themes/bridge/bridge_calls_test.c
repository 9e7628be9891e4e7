/* SPDX-License-Identifier: MIT */

/* Requests and answers of several buffers, and with much data, pass as others do. */

#include <stdlib.h>
#include <string.h>

#include <share/service.h>

#include "tests/harness/fresh.h"
#include "tests/themes/bridge/bridge_messages.h"
#include "tests/themes/bridge/bridge_rig.h"

TestSuite(bridge_calls, .init = fixture_start, .fini = fixture_stop, .timeout = 120);

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static share_service *open_service(share_client *c, int role)
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;
	share_service *s;

	options.buffers = MESSAGE_BUFFERS;
	options.data_max = SHARE_CHANNEL_DATA_MAX - 16;
	options.callers = 8;
	check_ok(share_service_open(c, "detector", role, &options, &s));
	return s;
}

struct ends {
	struct sides s;
	share_service *caller, *worker;
	share_pool *near, *far;
};

static void serve(struct ends *e)
{
	sides_begin(&e->s);
	e->worker = open_service(e->s.far, SHARE_WORKER);
	far_start(&e->s, OPTIONS("--export-service", "*"));
	near_start(&e->s, OPTIONS("--import-service", "detector"));
	until(bridge_said(&e->s.near_bridge, "service 'detector' is that of far") > 0);
	e->caller = open_service(e->s.near, SHARE_CALLER);
	e->near = open_pool(e->s.near);
	e->far = open_pool(e->s.far);
}

static void close_ends(struct ends *e)
{
	share_pool_close(e->near);
	share_pool_close(e->far);
	share_service_close(e->caller);
	share_service_close(e->worker);
	sides_end(&e->s);
}

/* A service has a little of the data for itself. */
static bool is_too_large(unsigned n)
{
	return message_data_size(n) > SHARE_CHANNEL_DATA_MAX - 16;
}

static share_pending *ask(struct ends *e, unsigned n)
{
	static unsigned char data[MESSAGE_DATA];
	share_buffer *buffers[MESSAGE_BUFFERS];
	share_outgoing request = message_make(e->near, n, buffers, data);
	share_pending *p;

	check_ok(share_call_start_with(e->caller, &request, HARNESS_LIMIT_MS, NULL, &p));
	return p;
}

static void reply(struct ends *e, share_message *request, unsigned n)
{
	static unsigned char data[MESSAGE_DATA];
	share_buffer *buffers[MESSAGE_BUFFERS];
	share_outgoing answer = message_make(e->far, n, buffers, data);

	check_ok(share_reply_with(request, &answer, NULL));
}

/* Callers may have gone before: that is told once. */
static void take(struct ends *e, share_message *m)
{
	int r;

	do
		r = share_next_request(e->worker, HARNESS_LIMIT_MS, NULL, fresh(m));
	while (r == SHARE_EPIPE || (r == SHARE_EOWNERDEAD && !m->channel));
	check_ok(r);
}

Test(bridge_calls, a_question_of_several_buffers_gets_such_an_answer)
{
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	struct ends e;

	serve(&e);
	for (unsigned n = 0; n < 40; n++) {
		share_pending *p;

		if (is_too_large(n) || is_too_large(100 + n))
			continue;
		p = ask(&e, n);
		take(&e, &m);
		message_expect(&m);
		check_eq(message_number(&m), n);
		reply(&e, &m, 100 + n);
		check_ok(share_call_finish(p, -1, NULL, fresh(&answer)));
		message_expect(&answer);
		check_eq(message_number(&answer), 100 + n);
		check_ok(share_ack(&answer, NULL));
	}
	close_ends(&e);
}

Test(bridge_calls, a_lost_link_ends_such_calls_on_both_sides_and_later_ones_go_on)
{
	share_message m = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	share_pending *p;
	struct ends e;

	serve(&e);
	p = ask(&e, 3);
	take(&e, &m);
	bridge_kill(&e.s.far_bridge);
	check_error(share_call_finish(p, -1, NULL, &answer), SHARE_ECANCELED);
	until(share_request_status(&m) != 0);
	check_ok(share_ack(&m, NULL));
	far_start(&e.s, OPTIONS("--export-service", "*"));
	p = ask(&e, 4);
	take(&e, &m);
	message_expect(&m);
	reply(&e, &m, 9);
	check_ok(share_call_finish(p, -1, NULL, fresh(&answer)));
	message_expect(&answer);
	check_ok(share_ack(&answer, NULL));
	close_ends(&e);
}
