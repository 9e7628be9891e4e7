/* SPDX-License-Identifier: MIT */

/*
 * Handles that were given up. Whoever uses one is told so, and nothing else happens: neither to
 * what the library has, nor to the objects that other handles stand for now.
 */

#include <share/admin.h>

#include "tests/support/channel_work.h"

#include "tests/harness/fixture.h"

#define LIVES 2000 /* more than a slot has generations, several times */

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("handles");
	pool = open_pool(client);
}

static void stop(void)
{
	if (!check_has_failed()) {
		check_ok(share_pool_set_cache(pool, 0));
		settle(client, s.clients == 1 && s.leases == 0);
	}
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(handles, .init = start, .fini = stop, .timeout = 120);

static void on_change(const share_name_event *event, void *data)
{
	(void)event, (void)data;
}

static int on_name(const share_name_info *info, void *data)
{
	(void)info, (void)data;
	return 0;
}

static int on_json(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

static void on_status(int status, void *data)
{
	(void)status, (void)data;
}

/* ------------------------------------------------------------------------------------------- */
/* Clients and pools                                                                           */

Test(handles, a_client_is_given_up_once)
{
	share_client *c = connect_as("given up");
	share_pool *p = open_pool(c), *other;
	share_host_stream *stream;
	share_fence fence;
	share_event *event;
	share_watch *watch;
	share_buffer *b;

	share_disconnect(c);
	share_disconnect(c); /* which would take from the pool what holds the connection */
	check_given_up(share_ping(c));
	check_given_up(share_get_fd(c));
	check_given_up(share_dispatch(c));
	check_given_up(share_pool_open(c, "default", &other));
	check_given_up(share_pool_create(c, "other", NULL, &other));
	check_given_up(share_pool_destroy(c, "other"));
	check_given_up(share_lookup(c, "name", SHARE_RDONLY, 0, NULL, &b));
	check_given_up(share_unpublish(c, "name"));
	check_given_up(share_watch_names(c, "", on_change, NULL, &watch));
	check_given_up(share_list(c, "", on_name, NULL));
	check_given_up(share_inspect(c, "pools", on_json, NULL));
	check_given_up(share_revoke_id(c, 1));
	check_given_up(share_drop_client(c, 1));
	check_given_up(share_fence_record(c, -1, NULL, &fence));
	check_given_up(share_host_stream_create(c, &stream));
	check_given_up(share_event_create(c, NULL, &event));
	check(!share_address(c));
	b = allocate(p, 4096, NULL);
	check_ok(share_release(b, NULL));
	share_pool_close(p);
}

Test(handles, a_pool_is_given_up_once)
{
	share_pool *p = open_pool(client);
	share_pool_info info = SHARE_POOL_INFO_INIT;
	share_buffer *b;

	share_pool_close(p);
	share_pool_close(p);
	check_given_up(share_alloc(p, 4096, NULL, &b));
	check_given_up(share_pool_get_info(p, &info));
	check_given_up(share_pool_set_cache(p, 0));
	check_ok(share_ping(client));
}

Test(handles, a_handle_of_another_kind_is_refused)
{
	share_buffer *b = allocate(pool, 4096, NULL), *other;

	check_error(share_release((share_buffer *)(void *)pool, NULL), SHARE_EINVAL);
	check_detail("not of the kind \"buffer\" but \"pool\"");
	check_error(share_alloc((share_pool *)(void *)client, 4096, NULL, &other), SHARE_EINVAL);
	check_error(share_ping((share_client *)(void *)b), SHARE_EINVAL);
	share_pool_close((share_pool *)(void *)b);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Buffers                                                                                     */

Test(handles, a_buffer_is_released_once)
{
	share_buffer *b = allocate(pool, 4096, NULL), *first, *second;

	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
	first = allocate(pool, 4096, NULL);
	second = allocate(pool, 4096, NULL);
	check(first != second && share_ptr(first) != share_ptr(second));
	check_ok(share_release(first, NULL));
	check_ok(share_release(second, NULL));
}

Test(handles, a_buffer_that_the_broker_got_back_is_released_once)
{
	share_buffer *b = allocate(pool, 4096, NULL);

	check_ok(share_publish(b, "name", NULL)); /* so that it is not kept */
	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
	check_ok(share_lookup(client, "name", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_unpublish(client, "name"));
	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
}

Test(handles, a_buffer_that_was_released_is_good_for_nothing)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	share_recipe recipe = SHARE_RECIPE_INIT;
	const int64_t shape[] = {4};
	share_tensor tensor = SHARE_TENSOR_INIT;
	share_token token;
	char byte = 0, *text;
	void *bytes;
	size_t size;

	check_ok(share_tensor_init(&tensor, SHARE_INT8, 1, shape));
	check_ok(share_release(b, NULL));
	check(!share_ptr(b) && share_size(b) == 0 && share_id(b) == 0 && share_mode(b) == 0);
	check(share_name_version(b) == 0 && !share_retain(b));
	check_given_up(share_buffer_status(b));
	check_given_up(share_buffer_watch(b, on_status, NULL, NULL));
	check_given_up(share_buffer_get_info(b, &info));
	check_given_up(share_copy_to_host(b, 0, &byte, 1, NULL));
	check_given_up(share_copy_from_host(b, 0, &byte, 1, NULL));
	check_given_up(share_copy(b, 0, b, 0, 1, NULL));
	check_given_up(share_get_recipe(b, &recipe));
	check_given_up(share_metadata_set(b, "{}"));
	check_given_up(share_metadata_get(b, &text));
	check_given_up(share_metadata_get_raw(b, &bytes, &size));
	check_given_up(share_tensor_set(b, &tensor));
	check_given_up(share_tensor_get(b, &tensor));
	check_given_up(share_publish(b, "name", NULL));
	check_given_up(share_export(b, NULL, &token));
}

/* The same block is handed out each time: its handle never is. */
Test(handles, a_released_buffer_is_known_for_long)
{
	share_buffer *old = allocate(pool, 4096, NULL), *b;

	check_ok(share_release(old, NULL));
	for (int i = 0; i < LIVES; i++) {
		b = allocate(pool, 4096, NULL);
		check(b != old);
		check_given_up(share_release(old, NULL));
		check_ok(share_release(b, NULL));
	}
	/* nor when it is the broker that hands it out */
	check_ok(share_pool_set_cache(pool, 0));
	for (int i = 0; i < LIVES; i++) {
		b = allocate(pool, 4096, NULL);
		check(b != old);
		check_given_up(share_release(old, NULL));
		check_ok(share_release(b, NULL));
	}
}

Test(handles, each_reference_to_a_buffer_is_released_once)
{
	share_buffer *b = allocate(pool, 4096, NULL);

	check(share_retain(b) == b && share_retain(b) == b);
	for (int i = 0; i < 3; i++) {
		check(share_ptr(b));
		check_ok(share_release(b, NULL));
	}
	check(!share_ptr(b));
	check_given_up(share_release(b, NULL));
}

Test(handles, a_buffer_whose_release_failed_is_still_there)
{
	share_buffer *b = allocate(pool, 4096, NULL);
	int nonsense = 0;

	check_error(share_release(b, &nonsense), SHARE_EINVAL);
	check(share_ptr(b));
	check_ok(share_release(b, NULL));
	check_given_up(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* Watches, operations, events, streams                                                        */

Test(handles, a_watch_is_given_up_once)
{
	share_watch *old, *w;

	check_ok(share_watch_names(client, "", on_change, NULL, &old));
	share_unwatch(old);
	check_ok(share_watch_names(client, "", on_change, NULL, &w));
	check(w != old);
	share_unwatch(old);
	share_unwatch(w);
	share_unwatch(w);
	check_ok(share_ping(client));
}

static void count_lookup(share_buffer *b, int error, void *data)
{
	check_ok(error);
	check_ok(share_release(b, NULL));
	++*(int *)data;
}

Test(handles, an_operation_is_given_up_once)
{
	share_operation *old, *o;
	share_buffer *b;
	int called = 0;

	check_ok(share_lookup_async(client, "name", SHARE_RDONLY, -1, NULL, count_lookup, &called,
				    &old));
	share_cancel(old);
	check_ok(
	    share_lookup_async(client, "name", SHARE_RDONLY, -1, NULL, count_lookup, &called, &o));
	check(o != old);
	share_cancel(old); /* which is not the second one */
	b = filled_buffer(pool, 1);
	check_ok(share_publish(b, "name", NULL));
	check_ok(share_release(b, NULL));
	until(share_dispatch(client) == 1);
	check_eq(called, 1);
	share_cancel(o);
	share_cancel(o);
	check_ok(share_unpublish(client, "name"));
}

static void count(void *data)
{
	++*(int *)data;
}

Test(handles, a_host_stream_is_given_up_once)
{
	share_buffer *b = allocate(pool, 4096, NULL), *other;
	share_host_stream *old, *s;
	share_fence fence;
	int counted = 0;
	char byte;

	check_ok(share_host_stream_create(client, &old));
	share_host_stream_destroy(old);
	check_ok(share_host_stream_create(client, &s));
	check(s != old);
	share_host_stream_destroy(old);
	check_given_up(share_host_stream_launch(old, count, &counted));
	check_given_up(share_host_stream_synchronize(old));
	check_given_up(share_alloc(pool, 4096, old, &other));
	check_given_up(share_copy_to_host(b, 0, &byte, 1, old));
	check_given_up(share_fence_record(client, -1, old, &fence));
	check_given_up(share_release(b, old));
	check_ok(share_host_stream_launch(s, count, &counted));
	check_ok(share_release(b, s));
	check_ok(share_host_stream_synchronize(s));
	check_eq(counted, 1);
	share_host_stream_destroy(s);
	share_host_stream_destroy(s);
}
