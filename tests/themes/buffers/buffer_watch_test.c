/* SPDX-License-Identifier: MIT */

/*
 * Watching a buffer: the callback runs once, from dispatch, when the giver's work is done or will
 * never be. The host's streams are the givers here; tests/themes/gpu/gpu_death_test.c has CUDA's.
 */

#include <poll.h>

#include "tests/harness/fixture.h"
#include "tests/harness/gate.h"

static struct gate *gate;
static share_client *client;
static share_host_stream *stream;

static void start(void)
{
	fixture_start();
	gate = gate_new();
	client = connect_as("test");
	check_ok(share_host_stream_create(client, &stream));
}

static void stop(void)
{
	gate_open(gate);
	if (!check_has_failed()) {
		share_host_stream_destroy(stream);
		share_disconnect(client);
	}
	fixture_stop();
	gate_free(gate);
}

TestSuite(buffer_watch, .init = start, .fini = stop, .timeout = 60);

struct told {
	int calls;
	int status;
};

static void tell(int status, void *data)
{
	struct told *told = data;

	told->calls++;
	told->status = status;
}

static void gives_while_busy(struct child *self, void *data)
{
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;
	share_client *c = child_connect("giver");
	share_host_stream *s;
	share_pool *p = open_pool(c);
	share_buffer *b;

	(void)data;
	options.flags = SHARE_PUBLISH_PERSISTENT;
	check_ok(share_host_stream_create(c, &s));
	b = allocate(p, 4096, s);
	gate_hold(gate, s);
	check_ok(share_publish_with(b, "work", &options, s, NULL));
	check_ok(share_release(b, s));
	child_point(self, "given");
	share_host_stream_destroy(s);
	share_pool_close(p);
	share_disconnect(c);
}

/* A buffer whose giver is not done. */
static share_buffer *look_up(struct child **giver)
{
	share_buffer *b;

	*giver = child_start(gives_while_busy, NULL);
	child_wait(*giver, "given");
	check_ok(share_lookup(client, "work", SHARE_RDONLY, 0, stream, &b));
	check_error(share_buffer_status(b), SHARE_EAGAIN);
	return b;
}

static void finish(struct child *giver)
{
	gate_open(gate);
	child_go(giver);
	child_finish(giver);
	check_ok(share_unpublish(client, "work"));
}

/* ------------------------------------------------------------------------------------------- */

Test(buffer_watch, tells_once_and_from_dispatch_that_the_work_is_done)
{
	struct pollfd p = {.fd = share_get_fd(client), .events = POLLIN};
	struct told told = {0, 1};
	struct child *giver;
	share_buffer *b = look_up(&giver);
	share_operation *o;

	check_ok(share_buffer_watch(b, tell, &told, &o));
	check_eq(share_dispatch(client), 0);
	check_eq(told.calls, 0);
	gate_open(gate);
	while (told.calls == 0) {
		check(poll(&p, 1, HARNESS_LIMIT_MS) == 1);
		check(share_dispatch(client) >= 0);
	}
	check_ok(told.status);
	check_ok(share_buffer_status(b));
	check_eq(share_dispatch(client), 0);
	check_eq(told.calls, 1);
	share_cancel(o);
	check_ok(share_release(b, stream));
	finish(giver);
}

Test(buffer_watch, tells_that_the_giver_died_before_its_work_was_done)
{
	struct told told = {0, 1};
	struct child *giver;
	share_buffer *b = look_up(&giver);

	check_ok(share_buffer_watch(b, tell, &told, NULL));
	child_kill(giver);
	until((share_dispatch(client), told.calls > 0));
	check_error(told.status, SHARE_EOWNERDEAD);
	check_error(share_buffer_status(b), SHARE_EOWNERDEAD);
	/* and to whoever asks later, at the next dispatch */
	check_ok(share_buffer_watch(b, tell, &told, NULL));
	check_eq(told.calls, 1);
	check_eq(share_dispatch(client), 1);
	check_eq(told.calls, 2);
	check_error(told.status, SHARE_EOWNERDEAD);
	check_ok(share_unpublish(client, "work"));
	check_ok(share_release(b, stream));
}

Test(buffer_watch, tells_at_the_next_dispatch_what_is_known_already)
{
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL);
	struct told told = {0, 1};
	share_operation *o;

	check_ok(share_buffer_watch(b, tell, &told, &o));
	check_eq(told.calls, 0);
	check_eq(share_dispatch(client), 1);
	check_eq(told.calls, 1);
	check_ok(told.status);
	share_cancel(o);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Test(buffer_watch, goes_on_when_the_buffer_is_released)
{
	struct told told = {0, 1};
	struct child *giver;
	share_buffer *b = look_up(&giver);

	check_ok(share_buffer_watch(b, tell, &told, NULL));
	check_ok(share_release(b, stream));
	finish(giver);
	until((share_dispatch(client), told.calls > 0));
	check_ok(told.status);
}

Test(buffer_watch, tells_nothing_once_it_is_canceled)
{
	share_operation *waiting, *due;
	struct told told = {0, 1};
	struct child *giver;
	share_buffer *b = look_up(&giver), *good;
	share_pool *p = open_pool(client);

	good = allocate(p, 64, NULL);
	check_ok(share_buffer_watch(b, tell, &told, &waiting));
	check_ok(share_buffer_watch(good, tell, &told, &due));
	share_cancel(due);
	share_cancel(waiting);
	check_eq(share_dispatch(client), 0);
	check_ok(share_release(b, stream));
	finish(giver);
	check_eq(share_dispatch(client), 0);
	check_eq(told.calls, 0);
	check_ok(share_release(good, NULL));
	share_pool_close(p);
}

/* A client that is given up waits for no watch that nobody can cancel. */
Test(buffer_watch, ends_with_the_client_when_nobody_has_a_handle)
{
	share_client *c = connect_as("watching");
	struct told told = {0, 1};
	struct child *giver;
	share_buffer *mine = look_up(&giver), *b;
	share_host_stream *own;

	check_ok(share_host_stream_create(c, &own));
	check_ok(share_lookup(c, "work", SHARE_RDONLY, 0, own, &b));
	check_ok(share_buffer_watch(b, tell, &told, NULL));
	check_ok(share_release(b, NULL));
	gate_open(gate);
	share_host_stream_destroy(own);
	share_disconnect(c);
	settle(client, s.clients == 2);
	check_eq(told.calls, 0);
	check_ok(share_release(mine, stream));
	finish(giver);
}

Test(buffer_watch, wants_a_buffer_and_a_callback)
{
	share_pool *p = open_pool(client);
	share_buffer *b = allocate(p, 4096, NULL);
	share_operation *o = NULL;

	check_error(share_buffer_watch(NULL, tell, NULL, &o), SHARE_EINVAL);
	check_error(share_buffer_watch(b, NULL, NULL, &o), SHARE_EINVAL);
	check(o == NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}
