/* SPDX-License-Identifier: MIT */

/*
 * Structs that the caller initialises: without a size they are refused, by a sentence that names
 * what initialises them, and options of which only the size is said mean what the initialiser
 * means. That the two are the same bytes is headers_test.sh's.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <share/channel.h>
#include <share/service.h>

#include "tests/harness/fixture.h"

#define MIB (UINT64_C(1) << 20)

static share_client *client;
static share_pool *pool;

static void start(void)
{
	fixture_start();
	client = connect_as("test");
	pool = open_pool(client);
}

static void stop(void)
{
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(options, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

/* @call uses @s, a struct of this type. */
#define expect_refused(type, INIT, s, call)                                                     \
	do {                                                                                    \
		type s;                                                                         \
                                                                                                \
		memset(&s, 0, sizeof(s));                                                       \
		check_error(call, SHARE_EINVAL);                                                \
		check_detail("the " #type " says that its size is 0: initialise it with " #INIT \
			     ", or set its size to sizeof(" #type ")");                         \
		s.size = sizeof(s) + 8;                                                         \
		check_error(call, SHARE_EINVAL);                                                \
		snprintf(text, sizeof(text), "its size is %zu, and this library's is %zu",      \
			 sizeof(s) + 8, sizeof(s));                                             \
		check_detail(text);                                                             \
	} while (0)

static int on_object(const char *json, void *data)
{
	(void)json, (void)data;
	return 0;
}

Test(options, without_a_size_are_refused_by_the_name_of_their_initialiser)
{
	share_buffer *b = allocate(pool, 4096, NULL), *v = NULL;
	share_service *service = NULL;
	share_channel *channel = NULL;
	share_event *event = NULL;
	share_client *c = NULL;
	share_pool *p = NULL;
	share_token token;
	uint64_t extent;
	char text[128];

	expect_refused(share_connect_options, SHARE_CONNECT_OPTIONS_INIT, s,
		       share_connect_with(broker_socket(), &s, &c));
	expect_refused(share_pool_options, SHARE_POOL_OPTIONS_INIT, s,
		       share_pool_create(client, "pool", &s, &p));
	expect_refused(share_pool_info, SHARE_POOL_INFO_INIT, s, share_pool_get_info(pool, &s));
	expect_refused(share_alloc_options, SHARE_ALLOC_OPTIONS_INIT, s,
		       share_alloc_with(pool, 1, &s, NULL, &v));
	expect_refused(share_buffer_info, SHARE_BUFFER_INFO_INIT, s, share_buffer_get_info(b, &s));
	expect_refused(share_recipe, SHARE_RECIPE_INIT, s, share_get_recipe(b, &s));
	expect_refused(share_publish_options, SHARE_PUBLISH_OPTIONS_INIT, s,
		       share_publish_with(b, "name", &s, NULL, NULL));
	expect_refused(share_export_options, SHARE_EXPORT_OPTIONS_INIT, s,
		       share_export_with(b, &s, NULL, &token));
	expect_refused(share_monitor_options, SHARE_MONITOR_OPTIONS_INIT, s,
		       share_monitor(client, &s, 0, on_object, NULL));
	expect_refused(share_event_options, SHARE_EVENT_OPTIONS_INIT, s,
		       share_event_create(client, &s, &event));
	expect_refused(share_fence_stats, SHARE_FENCE_STATS_INIT, s,
		       share_fence_get_stats(client, &s));
	expect_refused(share_tensor, SHARE_TENSOR_INIT, s, share_tensor_extent(&s, &extent));
	expect_refused(share_tensor, SHARE_TENSOR_INIT, s, share_tensor_get(b, &s));
	expect_refused(share_channel_options, SHARE_CHANNEL_OPTIONS_INIT, s,
		       share_channel_open(client, "channel", SHARE_CONSUMER, &s, &channel));
	expect_refused(share_service_options, SHARE_SERVICE_OPTIONS_INIT, s,
		       share_service_open(client, "service", SHARE_CALLER, &s, &service));
	check(!v && !service && !channel && !event && !c && !p);
	check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, NULL, &channel));
	expect_refused(share_channel_stats, SHARE_CHANNEL_STATS_INIT, s,
		       share_channel_get_stats(channel, &s));
	share_channel_close(channel);
	check_ok(share_release(b, NULL));
}

/* ------------------------------------------------------------------------------------------- */
/* What was not 0 once                                                                         */

static int64_t kept_of(const char *name)
{
	json_t *rows = report(client, "pools");
	int64_t kept = number_of(row_named(rows, "pool", name), "release_threshold");

	json_decref(rows);
	return kept;
}

Test(options, of_a_pool_keep_a_segment_as_the_initialiser_does_and_none_when_told)
{
	share_pool_options plain = {.size = sizeof(plain)}, none = SHARE_POOL_OPTIONS_INIT;
	share_pool *p, *q;

	plain.kind = none.kind = "host";
	plain.segment_size = none.segment_size = MIB;
	check_ok(share_pool_create(client, "plain", &plain, &p));
	check_eq(kept_of("plain"), MIB);
	none.release_threshold = SHARE_KEEP_NONE;
	check_ok(share_pool_create(client, "none", &none, &q));
	check_eq(kept_of("none"), 0);
	share_pool_close(q);

	/* whoever opens it asks for nothing by 0, and for nothing to be kept by its name */
	plain.flags = none.flags = SHARE_POOL_OPEN_OR_CREATE;
	check_ok(share_pool_create(client, "plain", &plain, &q));
	share_pool_close(q);
	check_error(share_pool_create(client, "plain", &none, &q), SHARE_EEXIST);
	check_detail("release_threshold of pool 'plain' is 1MiB, not 0");
	share_pool_close(p);
}

static void *send_one(void *channel)
{
	return (void *)(intptr_t)share_send(channel, NULL, "2", 1, NULL);
}

static uint64_t sleeps_of(share_channel *ch)
{
	share_channel_stats stats = SHARE_CHANNEL_STATS_INIT;

	check_ok(share_channel_get_stats(ch, &stats));
	return stats.sleeps;
}

Test(options, of_a_channel_wait_for_room_without_limit_as_the_initialiser_does)
{
	share_channel_options plain = {.size = sizeof(plain), .depth = 1, .in_flight = 1};
	share_channel *to, *from;
	pthread_t thread;
	share_message m;
	void *result;

	check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, &plain, &from));
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, &plain, &to));
	check_ok(share_send(to, NULL, "1", 1, NULL));
	check(pthread_create(&thread, NULL, send_one, to) == 0);
	until(sleeps_of(to) > 0);
	for (const char *c = "12"; *c; c++) {
		check_ok(share_recv(from, -1, NULL, &m));
		check(m.data_size == 1 && m.data[0] == *c);
		check_ok(share_ack(&m, NULL));
	}
	check(pthread_join(thread, &result) == 0);
	check_ok((int)(intptr_t)result);
	share_channel_close(to);
	share_channel_close(from);
}

Test(options, who_was_compiled_before_there_was_a_time_limit_connects)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c;

	options.size = offsetof(share_connect_options, timeout_ms);
	options.label = "old";
	options.timeout_ms = -77; /* is not looked at */
	check_ok(share_connect_with(broker_socket(), &options, &c));
	share_disconnect(c);
}

Test(options, a_label_has_its_limit)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	char label[SHARE_LABEL_MAX + 2];
	share_client *c = NULL;

	memset(label, 'x', sizeof(label));
	label[SHARE_LABEL_MAX + 1] = '\0';
	options.label = label;
	check_error(share_connect_with(broker_socket(), &options, &c), SHARE_EINVAL);
	check_detail("a label has at most 63 bytes");
	check(c == NULL);
	label[SHARE_LABEL_MAX] = '\0';
	check_ok(share_connect_with(broker_socket(), &options, &c));
	share_disconnect(c);
}
