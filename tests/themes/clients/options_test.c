/* SPDX-License-Identifier: MIT */

/*
 * Options of which only the size is said mean what the initialiser means. That the two are the same
 * bytes is headers_test.sh's; what sizes there may be is structs_test.c's.
 */

#include <pthread.h>
#include <string.h>

#include <share/channel.h>

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

Test(options, of_a_channel_wait_for_room_without_limit_as_the_initialiser_says)
{
	share_channel_options plain = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *to, *from;
	pthread_t thread;
	share_message m = SHARE_MESSAGE_INIT;
	void *result;

	plain.depth = plain.in_flight = 1;
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

Test(options, of_a_channel_with_a_time_limit_of_0_do_not_wait_for_room)
{
	share_channel_options plain = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *to, *from;

	plain.depth = plain.in_flight = 1;
	plain.send_timeout_ms = 0;
	check_ok(share_channel_open(client, "channel", SHARE_CONSUMER, &plain, &from));
	check_ok(share_channel_open(client, "channel", SHARE_PRODUCER, &plain, &to));
	check_ok(share_send(to, NULL, "1", 1, NULL));
	check_error(share_send(to, NULL, "2", 1, NULL), SHARE_EAGAIN);
	check_eq(sleeps_of(to), 0);
	share_channel_close(to);
	share_channel_close(from);
}

Test(options, a_time_limit_of_0_is_over_before_anybody_is_connected)
{
	share_connect_options options = SHARE_CONNECT_OPTIONS_INIT;
	share_client *c = NULL;

	options.timeout_ms = 0;
	broker_freeze(); /* it may be as fast as that */
	check_error(share_connect_with(broker_socket(), &options, &c), SHARE_ETIMEDOUT);
	broker_thaw();
	options.timeout_ms = -1;
	check_ok(share_connect_with(broker_socket(), &options, &c));
	share_disconnect(c);
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
