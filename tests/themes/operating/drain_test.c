/* SPDX-License-Identifier: MIT */

/*
 * The broker is told to end while it has clients: it tells them, serves them as before but begins
 * nothing new, lets nobody in but operators, and ends when nobody holds anything any more, when the
 * time is over, or when it is told once more. Where the limit is long, a broker that waited for it
 * would never end here.
 */

#include <poll.h>
#include <signal.h>

#include <share/channel.h>
#include <share/event.h>
#include <share/service.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

#define SIZE 3000

static void start_with(const char *drain_ms)
{
	broker_drain(drain_ms);
	fixture_start();
}

static void start(void)
{
	start_with("60000");
}

static void start_short(void)
{
	start_with("100");
}

TestSuite(drain, .fini = fixture_stop, .timeout = 120);

#define DrainTest(sentence) Test(drain, sentence, .init = start)

static void tell_broker_to_end(void)
{
	check(kill(broker_pid(), SIGTERM) == 0);
}

/* Has memory, a name and a channel. */
struct holder {
	share_client *client;
	share_pool *pool;
	share_buffer *buffer;
};

static struct holder hold(const char *label)
{
	struct holder h = {.client = connect_as(label)};

	h.pool = open_pool(h.client);
	h.buffer = allocate(h.pool, SIZE, NULL);
	return h;
}

static void let_go(struct holder *h)
{
	check_ok(share_release(h->buffer, NULL));
	share_pool_close(h->pool);
	share_disconnect(h->client);
}

/* The broker is gone, which knows nothing of it any more. */
static void drop(struct holder *h)
{
	check_error(share_release(h->buffer, NULL), SHARE_EDISCONNECTED);
	share_pool_close(h->pool);
	share_disconnect(h->client);
}

static void expect_ending(share_client *c)
{
	until(share_ending(c) != 0);
	check(share_ending(c) > 0 && share_ending(c) <= 60000);
}

DrainTest(who_holds_nothing_is_not_waited_for)
{
	share_client *c = connect_as("idle");
	share_pool *p = open_pool(c);

	check_eq(share_ending(c), 0);
	tell_broker_to_end();
	check_eq(broker_wait(), 0);
	check(broker_said("is to end") == 0);
	check(broker_said("ends on SIGTERM") == 1);
	check_error(share_ending(c), SHARE_EDISCONNECTED);
	share_pool_close(p);
	share_disconnect(c);
}

DrainTest(the_broker_ends_when_the_last_one_has_let_go)
{
	struct holder one = hold("one"), other = hold("other");

	tell_broker_to_end();
	expect_ending(one.client);
	expect_ending(other.client);
	check(broker_said("is to end on SIGTERM, and waits until 2 clients no longer hold "
			  "anything, for 60000 ms at most") == 1);
	let_go(&one);
	check_ok(share_ping(other.client));
	let_go(&other);
	check_eq(broker_wait(), 0);
	check(broker_said("as the broker ends") == 0);
	check(broker_said("ends on SIGTERM") == 1);
}

/* No thread of the program reads the socket but its event loop. */
DrainTest(an_event_loop_learns_of_it)
{
	struct holder h = hold("loop");
	struct pollfd p = {.fd = share_get_fd(h.client), .events = POLLIN};

	check(poll(&p, 1, 0) == 0);
	tell_broker_to_end();
	check(poll(&p, 1, HARNESS_LIMIT_MS) == 1);
	check_ok(share_dispatch(h.client));
	check(share_ending(h.client) > 0);
	check(poll(&p, 1, 0) == 0);
	let_go(&h);
	check_eq(broker_wait(), 0);
}

/* It came with an answer that another call has read. */
DrainTest(an_event_loop_learns_of_it_when_another_call_has_heard_it)
{
	struct holder h = hold("loop");
	struct pollfd p = {.fd = share_get_fd(h.client), .events = POLLIN};

	tell_broker_to_end();
	expect_ending(h.client);
	check(poll(&p, 1, 0) == 1);
	check_ok(share_dispatch(h.client));
	check(poll(&p, 1, 0) == 0);
	let_go(&h);
	check_eq(broker_wait(), 0);
}

DrainTest(what_is_in_hand_can_be_finished)
{
	struct holder giver = hold("giver"), taker = hold("taker");
	share_buffer *more, *found;
	share_token token;

	tell_broker_to_end();
	expect_ending(giver.client);
	check_ok(share_alloc(giver.pool, SIZE, NULL, &more));
	check_ok(share_publish(more, "result", NULL));
	check_ok(share_lookup(taker.client, "result", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_release(found, NULL));
	check_ok(share_export(more, NULL, &token));
	check_ok(share_import(taker.client, &token, SHARE_RDONLY, NULL, &found));
	check_ok(share_release(found, NULL));
	check_ok(share_release(more, NULL));
	let_go(&giver);
	let_go(&taker);
	check_eq(broker_wait(), 0);
}

DrainTest(nothing_new_is_begun)
{
	share_service_options service = SHARE_SERVICE_OPTIONS_INIT;
	struct holder h = hold("holder");
	share_client *late;
	share_channel *ch;
	share_service *s;
	share_event *e;
	share_pool *p;

	tell_broker_to_end();
	expect_ending(h.client);
	check_error(share_pool_open(h.client, "default", &p), SHARE_EDISCONNECTED);
	check_detail("about to end");
	check_error(share_pool_create(h.client, "new", NULL, &p), SHARE_EDISCONNECTED);
	check_error(share_channel_open(h.client, "new", SHARE_PRODUCER, NULL, &ch),
		    SHARE_EDISCONNECTED);
	check_error(share_service_open(h.client, "new", SHARE_WORKER, &service, &s),
		    SHARE_EDISCONNECTED);
	check_error(share_event_create(h.client, NULL, &e), SHARE_EDISCONNECTED);
	check_error(share_connect(broker_socket(), &late), SHARE_ENOBROKER);
	check_detail("about to end");
	/* and that was all that has happened to it */
	check_ok(share_ping(h.client));
	let_go(&h);
	check_eq(broker_wait(), 0);
}

/* Who is root here, or the broker's own user. */
DrainTest(an_operator_gets_in_and_sees_who_is_waited_for)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	struct holder h = hold("holder");
	share_client *operator;
	json_t *clients;

	tell_broker_to_end();
	expect_ending(h.client);
	options.flags = SHARE_CONNECT_OPERATOR;
	check_ok(share_connect_with(broker_socket(), &options, &operator));
	clients = report(operator, "clients");
	check(row_named(clients, "label", "holder") != NULL);
	json_decref(clients);
	/* and is not waited for, though it stays */
	let_go(&h);
	check_eq(broker_wait(), 0);
	check(broker_said("as the broker ends") == 0);
	check_error(share_ping(operator), SHARE_EDISCONNECTED);
	share_disconnect(operator);
}

DrainTest(whom_it_waits_for_is_named_at_once)
{
	struct holder one = hold("one"), other = hold("other");
	share_client *idle = connect_as("idle");

	tell_broker_to_end();
	expect_ending(one.client);
	check(broker_said("'one') is waited for: it holds 1 lease (3KiB)") == 1);
	check(broker_said("'other') is waited for: it holds 1 lease (3KiB)") == 1);
	check(broker_said("is waited for") == 2);
	share_disconnect(idle);
	let_go(&one);
	let_go(&other);
	check_eq(broker_wait(), 0);
}

static void holds(struct child *self, void *data)
{
	struct holder h = hold("child");

	(void)data;
	child_point(self, "holds");
	let_go(&h);
}

DrainTest(who_dies_is_waited_for_no_more)
{
	struct child *child = child_start(holds, NULL);
	struct holder h = hold("told");

	child_wait(child, "holds");
	tell_broker_to_end();
	expect_ending(h.client);
	let_go(&h);
	child_kill(child);
	check_eq(broker_wait(), 0);
	/* Its connection may be seen to end before its process is, and the broker ends before it
	 * has said anything of that. */
	check(broker_said("died holding 1 lease") + broker_said("lives and keeps 1 lease") <= 1);
	check_eq(broker_said("as the broker ends"), 0);
}

/* It cannot be told, and what it has mapped is its own in any case. */
DrainTest(who_is_in_quarantine_is_not_waited_for)
{
	share_client *c = connect_as("observer");
	struct raw r;

	raw_open(&r, "quarantined");
	raw_alloc(&r, raw_pool(&r, "default"), SIZE);
	raw_close(&r);
	settle(c, s.quarantined == 1);
	tell_broker_to_end();
	check_eq(broker_wait(), 0);
	check(broker_said("is to end") == 0);
	share_disconnect(c);
}

Test(drain, who_does_not_let_go_in_time_is_named, .init = start_short)
{
	struct holder h = hold("stays"), other = hold("stays, too");

	check_ok(share_publish(h.buffer, "kept", NULL));
	tell_broker_to_end();
	check_eq(broker_wait(), 0);
	check(broker_said("'stays') still holds 1 lease (3KiB), 1 name as the broker ends") == 1);
	check(broker_said("'stays, too') still holds 1 lease (3KiB) as the broker ends") == 1);
	check(broker_said("ends on SIGTERM, after 0d 00:00:00; 2 clients connected") == 1);
	drop(&h);
	drop(&other);
}

DrainTest(a_second_signal_ends_it_at_once)
{
	struct holder h = hold("stays");

	check(kill(broker_pid(), SIGINT) == 0);
	expect_ending(h.client);
	tell_broker_to_end();
	check_eq(broker_wait(), 0);
	check(broker_said("is to end on SIGINT") == 1);
	check(broker_said("'stays') still holds 1 lease") == 1);
	drop(&h);
}

/* It was told itself, and not its keeper. */
DrainTest(a_broker_that_dies_over_it_is_followed_by_one_that_is_to_end_too)
{
	struct holder h = hold("holds");

	tell_broker_to_end();
	expect_ending(h.client);
	broker_kill_serving();
	until(broker_said("is to end on SIGTERM, and waits until 1 client") == 2);
	let_go(&h);
	check_eq(broker_wait(), 0);
}

DrainTest(so_does_the_end_of_who_has_started_it)
{
	struct holder h = hold("stays");

	tell_broker_to_end();
	expect_ending(h.client);
	check_eq(broker_let_go(), 0);
	drop(&h);
}
