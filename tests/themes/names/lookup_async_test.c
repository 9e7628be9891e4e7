/* SPDX-License-Identifier: MIT */

/* Asynchronous look-ups: called back once, from dispatch, unless they are canceled. */

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

static share_client *client, *other;
static share_pool *pool;
static share_host_stream *busy; /* of the publisher */
static struct gate *gate;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	other = connect_as("publisher");
	pool = open_pool(other);
	check_ok(share_host_stream_create(other, &busy));
	gate = gate_new();
}

static void stop(void)
{
	gate_open(gate);
	if (!check_has_failed()) {
		share_host_stream_destroy(busy);
		share_pool_close(pool);
		share_disconnect(other);
		share_disconnect(client);
	}
	fixture_stop();
	gate_free(gate);
}

TestSuite(lookup_async, .init = start, .fini = stop, .timeout = 60);

#define NOT_CALLED 1

struct result {
	int error;
	int calls;
	int place; /* among all calls */
	share_buffer *buffer;
};

static int called;

static void on_lookup(share_buffer *b, int error, void *data)
{
	struct result *r = data;

	check((b != NULL) == (error == 0));
	r->error = error;
	r->buffer = b;
	r->calls++;
	r->place = ++called;
}

static share_operation *look_up(const char *name, int timeout_ms, struct result *r)
{
	share_operation *o;

	*r = (struct result){.error = NOT_CALLED};
	check_ok(
	    share_lookup_async(client, name, SHARE_RDONLY, timeout_ms, NULL, on_lookup, r, &o));
	return o;
}

static void publish(const char *name, void *stream)
{
	share_buffer *b = allocate(pool, 4096, NULL);

	memset(share_ptr(b), 5, 4096);
	if (stream)
		gate_fill(gate, busy, share_ptr(b), 6, 4096);
	check_ok(share_publish(b, name, stream));
	check_ok(share_release(b, stream));
}

static void expect_buffer(struct result *r)
{
	until((share_dispatch(client), r->calls));
	check_ok(r->error);
	expect_filled(share_ptr(r->buffer), 5, 4096);
	check_ok(share_release(r->buffer, NULL));
}

Test(lookup_async, gets_what_is_there)
{
	struct result r;
	share_operation *o;

	publish("name", NULL);
	o = look_up("name", 0, &r);
	check_eq(r.calls, 0);
	expect_buffer(&r);
	share_cancel(o);
	share_dispatch(client);
	check_eq(r.calls, 1);
}

Test(lookup_async, calls_back_in_the_order_of_the_publications)
{
	share_operation *o[10];
	struct result r[10];
	char name[16];

	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "%d", i);
		o[i] = look_up(name, SHARE_WAIT_FOREVER, &r[i]);
	}
	check_ok(share_ping(client)); /* all of them wait */
	for (int i = 9; i >= 0; i--) {
		snprintf(name, sizeof(name), "%d", i);
		publish(name, NULL);
	}
	for (int i = 9; i >= 0; i--) {
		expect_buffer(&r[i]);
		check_eq(r[i].place, 10 - i);
		share_cancel(o[i]);
	}
}

Test(lookup_async, that_waits_for_the_same_name_is_answered_in_the_order_of_asking)
{
	share_operation *o[10];
	struct result r[10];

	for (int i = 0; i < 10; i++)
		o[i] = look_up("name", SHARE_WAIT_FOREVER, &r[i]);
	publish("name", NULL);
	for (int i = 0; i < 10; i++) {
		expect_buffer(&r[i]);
		check_eq(r[i].place, i + 1);
		share_cancel(o[i]);
	}
}

Test(lookup_async, tells_the_errors_of_a_look_up)
{
	struct result missing, late, forbidden;
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_buffer *b = allocate(pool, 1, NULL);
	share_operation *o[3];

	options.mode = SHARE_RDONLY;
	check_ok(share_publish_with(b, "read-only", &options, NULL, NULL));
	o[0] = look_up("nothing", 0, &missing);
	o[1] = look_up("nothing", 10, &late);
	forbidden = (struct result){.error = NOT_CALLED};
	check_ok(share_lookup_async(client, "read-only", SHARE_RDWR, -1, NULL, on_lookup,
				    &forbidden, &o[2]));
	until((share_dispatch(client), missing.calls && late.calls && forbidden.calls));
	check_error(missing.error, SHARE_ENOENT);
	check_error(late.error, SHARE_ETIMEDOUT);
	check_error(forbidden.error, SHARE_EACCES);
	for (int i = 0; i < 3; i++)
		share_cancel(o[i]);
	check_error(share_lookup_async(client, "", SHARE_RDWR, 0, NULL, on_lookup, NULL, NULL),
		    SHARE_EINVAL);
	check_error(share_lookup_async(client, "x", SHARE_RDWR, -2, NULL, on_lookup, NULL, NULL),
		    SHARE_EINVAL);
	check_error(share_lookup_async(client, "x", SHARE_RDWR, 0, NULL, NULL, NULL, NULL),
		    SHARE_EINVAL);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Canceling                                                                                   */

Test(lookup_async, canceled_before_the_answer_is_not_called_back)
{
	struct result r;

	share_cancel(look_up("name", SHARE_WAIT_FOREVER, &r));
	publish("name", NULL);
	until(share_dispatch(client) == 0);
	check_eq(r.calls, 0);
	settle(client, s.leases == 0);
	share_cancel(NULL);
}

Test(lookup_async, canceled_after_the_answer_came_is_not_called_back_and_holds_nothing)
{
	share_operation *o;
	struct result r;

	publish("name", NULL);
	o = look_up("name", 0, &r);
	check_ok(share_ping(client)); /* the answer has been read */
	share_cancel(o);
	check_eq(share_dispatch(client), 0);
	check_eq(r.calls, 0);
	settle(client, s.leases == 0);
}

static share_operation *own;

static void cancel_own(share_buffer *b, int error, void *data)
{
	share_cancel(own);
	on_lookup(b, error, data);
}

Test(lookup_async, can_be_canceled_by_its_own_callback)
{
	struct result r = {.error = NOT_CALLED};

	publish("name", NULL);
	check_ok(share_lookup_async(client, "name", SHARE_RDONLY, 0, NULL, cancel_own, &r, &own));
	expect_buffer(&r);
}

static share_operation *victims[2];

static void cancel_others(share_buffer *b, int error, void *data)
{
	share_cancel(victims[0]);
	share_cancel(victims[1]);
	on_lookup(b, error, data);
}

Test(lookup_async, can_be_canceled_by_the_callback_of_another)
{
	struct result r = {.error = NOT_CALLED}, ready, pending;
	share_operation *o;

	publish("name", NULL);
	check_ok(share_lookup_async(client, "name", SHARE_RDONLY, 0, NULL, cancel_others, &r, &o));
	victims[0] = look_up("name", 0, &ready); /* called back next, but for the cancel */
	victims[1] = look_up("never", -1, &pending);
	check_ok(share_ping(client));
	expect_buffer(&r);
	until(share_dispatch(client) == 0);
	check_eq(ready.calls, 0);
	check_eq(pending.calls, 0);
	settle(client, s.leases == 0);
	share_cancel(o);
}

static void *cancel_in_a_thread(void *data)
{
	share_cancel(data);
	return NULL;
}

Test(lookup_async, races_between_answer_and_cancel_call_back_once_or_never)
{
	for (int i = 0; i < 300; i++) {
		share_operation *o;
		pthread_t thread;
		struct result r;

		o = look_up("name", SHARE_WAIT_FOREVER, &r);
		check(pthread_create(&thread, NULL, cancel_in_a_thread, o) == 0);
		publish("name", NULL);
		share_dispatch(client);
		check(pthread_join(thread, NULL) == 0);
		check(r.calls <= 1);
		if (r.calls)
			check_ok(share_release(r.buffer, NULL));
		check_ok(share_unpublish(other, "name"));
	}
	until(share_dispatch(client) == 0);
	settle(client, s.leases == 0 && s.buffers == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* A client that is given up                                                                   */

Test(lookup_async, without_a_handle_ends_with_its_client)
{
	share_client *c = connect_as("leaving one");
	struct result r = {.error = NOT_CALLED};

	publish("there", NULL);
	check_ok(share_lookup_async(c, "never", SHARE_RDONLY, -1, NULL, on_lookup, &r, NULL));
	check_ok(share_lookup_async(c, "there", SHARE_RDONLY, 0, NULL, on_lookup, &r, NULL));
	check_ok(share_ping(c));
	check_ok(share_lookup_async(c, "there", SHARE_RDONLY, 0, NULL, on_lookup, &r, NULL));
	share_disconnect(c);
	settle(client, s.clients == 2 && s.leases == 0);
	check_eq(r.calls, 0);
}

Test(lookup_async, with_a_handle_keeps_its_client_until_it_is_canceled)
{
	share_client *c = connect_as("leaving one");
	struct result r = {.error = NOT_CALLED};
	share_operation *o;

	check_ok(share_lookup_async(c, "never", SHARE_RDONLY, -1, NULL, on_lookup, &r, &o));
	share_disconnect(c);
	settle(client, s.clients == 3);
	share_cancel(o);
	settle(client, s.clients == 2);
	check_eq(r.calls, 0);
}

static share_client *leaving;

static void give_the_client_up(share_buffer *b, int error, void *data)
{
	on_lookup(b, error, data);
	check_ok(share_release(b, NULL));
	share_disconnect(leaving);
}

Test(lookup_async, callbacks_may_give_the_last_handle_up)
{
	struct result r = {.error = NOT_CALLED};

	publish("name", NULL);
	leaving = connect_as("leaving one");
	check_ok(share_lookup_async(leaving, "name", SHARE_RDONLY, -1, NULL, give_the_client_up, &r,
				    NULL));
	check_ok(share_ping(leaving));
	check_eq(share_dispatch(leaving), 1);
	check_eq(r.calls, 1);
	settle(client, s.clients == 2 && s.leases == 0);
}

/* ------------------------------------------------------------------------------------------- */
/* A giver who is still at work                                                                */

Test(lookup_async, without_a_stream_is_called_back_when_the_giver_is_done)
{
	struct pollfd p = {.fd = share_get_fd(client), .events = POLLIN};
	share_operation *o;
	struct result r;

	gate_hold(gate, busy);
	publish("name", busy);
	o = look_up("name", SHARE_WAIT_FOREVER, &r);
	check_ok(share_ping(client));
	share_dispatch(client);
	check_eq(r.calls, 0);
	check_eq(poll(&p, 1, 0), 0); /* dispatch need not be called for nothing */
	gate_open(gate);
	check_eq(poll(&p, 1, HARNESS_LIMIT_MS), 1);
	until((share_dispatch(client), r.calls));
	check_ok(r.error);
	expect_filled(share_ptr(r.buffer), 6, 4096);
	check_ok(share_release(r.buffer, NULL));
	share_cancel(o);
}

Test(lookup_async, with_a_stream_is_called_back_at_once_and_orders_the_stream)
{
	struct result r = {.error = NOT_CALLED};
	share_host_stream *stream;
	share_operation *o;

	check_ok(share_host_stream_create(client, &stream));
	gate_hold(gate, busy);
	publish("name", busy);
	check_ok(share_lookup_async(client, "name", SHARE_RDONLY, 0, stream, on_lookup, &r, &o));
	until((share_dispatch(client), r.calls));
	check_ok(r.error);
	check_error(share_buffer_status(r.buffer), SHARE_EAGAIN);
	gate_expect(gate, stream, share_ptr(r.buffer), 6, 4096, 1);
	gate_open(gate);
	check_ok(share_release(r.buffer, stream));
	share_cancel(o);
	share_host_stream_destroy(stream);
}

/* For writing, it has to come after all who use the buffer, and dispatch must not wait for them. */
Test(lookup_async, is_called_back_when_former_users_are_done)
{
	struct result r = {.error = NOT_CALLED};
	share_operation *o;
	share_buffer *b;

	publish("name", NULL);
	check_ok(share_lookup(other, "name", SHARE_RDONLY, 0, NULL, &b));
	gate_hold(gate, busy);
	check_ok(share_release(b, busy));
	check_ok(share_lookup_async(client, "name", SHARE_RDWR, -1, NULL, on_lookup, &r, &o));
	check_ok(share_ping(client));
	check_eq(share_dispatch(client), 1);
	check_eq(r.calls, 0);
	gate_open(gate);
	expect_buffer(&r);
	share_cancel(o);
}

Test(lookup_async, waits_for_the_giver_within_its_time_limit)
{
	share_operation *o;
	struct result r;

	gate_hold(gate, busy);
	publish("name", busy);
	o = look_up("name", 20, &r);
	until((share_dispatch(client), r.calls));
	check_error(r.error, SHARE_ETIMEDOUT);
	settle(client, s.leases == 0);
	share_cancel(o);
}

Test(lookup_async, can_be_canceled_while_the_giver_is_at_work)
{
	share_operation *o;
	struct result r;

	gate_hold(gate, busy);
	publish("name", busy);
	o = look_up("name", SHARE_WAIT_FOREVER, &r);
	check_ok(share_ping(client));
	share_dispatch(client);
	share_cancel(o);
	/* the gate is still closed: nobody waits behind it any more */
	settle(client, s.leases == 0);
	gate_open(gate);
	check_ok(share_host_stream_synchronize(busy));
	share_dispatch(client);
	check_eq(r.calls, 0);
}

static void publishes_and_never_finishes(struct child *self, void *data)
{
	share_client *c = child_connect("victim");
	share_host_stream *s;

	(void)data;
	check_ok(share_host_stream_create(c, &s));
	gate_hold(gate, s);
	check_ok(share_publish(allocate(open_pool(c), 1, NULL), "name", s));
	child_point(self, "published");
}

Test(lookup_async, tells_that_the_giver_died)
{
	struct child *child = child_start(publishes_and_never_finishes, NULL);
	share_operation *o;
	struct result r;

	child_wait(child, "published");
	o = look_up("name", SHARE_WAIT_FOREVER, &r);
	check_ok(share_ping(client));
	share_dispatch(client);
	child_kill(child);
	until((share_dispatch(client), r.calls));
	check_error(r.error, SHARE_EOWNERDEAD);
	settle(client, s.leases == 0);
	share_cancel(o);
}
