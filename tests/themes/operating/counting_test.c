/* SPDX-License-Identifier: MIT */

/*
 * What the broker counts for those who watch it over time: requests by message, the errors that
 * they were answered with, how long answers took, allocations that failed in each pool, clients
 * that left quarantine or died. Nothing is timed here: each answer has to be in one of the classes.
 */

#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/harness/status.h"

static const char config[] =
    "{\"limits\": {\"bytes\": \"3MiB\"}, \"pools\": [{\"name\": \"default\", \"kind\": "
    "\"host\", \"limit\": \"2MiB\", \"segment_size\": \"1MiB\"}, {\"name\": \"wide\", \"kind\": "
    "\"host\", \"limit\": \"64MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static void start(void)
{
	fixture_start_with(config);
}

TestSuite(counting, .init = start, .fini = fixture_stop, .timeout = 60);

/* 0 if no such message has arrived. */
static int64_t of_message(share_client *c, const char *message, const char *key)
{
	json_t *rows = report(c, "requests"), *row = row_named(rows, "request", message);
	int64_t n = row ? number_of(row, key) : 0;

	json_decref(rows);
	return n;
}

static int64_t refused(share_client *c, const char *message, const char *error)
{
	json_t *rows = report(c, "requests"), *row = row_named(rows, "request", message);
	json_int_t n = json_integer_value(json_object_get(json_object_get(row, "refused"), error));

	json_decref(rows);
	return n;
}

static int64_t failed(share_client *c, const char *pool, const char *why)
{
	json_t *rows = report(c, "pools"), *row = row_named(rows, "pool", pool);
	int64_t n = number_of(json_object_get(row, "failed"), why);

	json_decref(rows);
	return n;
}

static int64_t in_status(share_client *c, const char *key)
{
	json_t *rows = report(c, "status");
	int64_t n = number_of(json_array_get(rows, 0), key);

	json_decref(rows);
	return n;
}

Test(counting, each_message_is_counted_and_its_answer_timed)
{
	share_client *c = connect_as("counted");
	json_t *rows, *row, *each;
	int64_t in_classes = 0;
	size_t i;

	check_eq(of_message(c, "PING", "arrived"), 0);
	for (int k = 0; k < 7; k++)
		check_ok(share_ping(c));
	check_eq(of_message(c, "PING", "arrived"), 7);
	rows = report(c, "requests");
	row = row_named(rows, "request", "PING");
	check_eq(number_of(row, "timed"), 7);
	check(number_of(row, "total_ns") > 0);
	json_array_foreach (json_object_get(row, "classes"), i, each)
		in_classes += number_of(each, "answers");
	check_eq(in_classes, 7);
	json_decref(rows);
	share_disconnect(c);
}

Test(counting, errors_are_counted_by_message_and_number)
{
	share_client *c = connect_as("refused");
	share_buffer *buffer;

	check_error(share_lookup(c, "nothing", SHARE_RDONLY, 0, NULL, &buffer), SHARE_ENOENT);
	check_error(share_lookup(c, "nothing", SHARE_RDONLY, 0, NULL, &buffer), SHARE_ENOENT);
	check_eq(refused(c, "LOOKUP", "SHARE_ENOENT"), 2);
	/* one that has waited is answered later, and is not timed: it waited for a program */
	check_error(share_lookup(c, "nothing", SHARE_RDONLY, 1, NULL, &buffer), SHARE_ETIMEDOUT);
	check_eq(refused(c, "LOOKUP", "SHARE_ETIMEDOUT"), 1);
	check_eq(of_message(c, "LOOKUP", "arrived"), 3);
	check_eq(of_message(c, "PING", "arrived"), 0);
	share_disconnect(c);
}

Test(counting, failed_allocations_are_counted_by_pool_and_reason)
{
	share_client *c = connect_as("greedy");
	share_pool *pool = open_pool(c), *wide;
	share_buffer *buffer;

	check_ok(share_pool_open(c, "wide", &wide));
	check_error(share_alloc(pool, 4 << 20, NULL, &buffer), SHARE_ENOMEM);
	check_eq(failed(c, "default", "full"), 1);
	check_error(share_alloc(wide, 4 << 20, NULL, &buffer), SHARE_EQUOTA);
	check_eq(failed(c, "wide", "limit"), 1);
	check_eq(failed(c, "wide", "full"), 0);
	check_eq(failed(c, "default", "limit"), 0);
	check_eq(refused(c, "ALLOC", "SHARE_ENOMEM"), 1);
	check_eq(refused(c, "ALLOC", "SHARE_EQUOTA"), 1);
	share_pool_close(wide);
	share_pool_close(pool);
	share_disconnect(c);
}

Test(counting, what_each_user_has_of_a_pool_is_told)
{
	share_client *c = connect_as("user");
	share_pool *pool = open_pool(c);
	share_buffer *buffer = allocate(pool, 4096, NULL);
	json_t *rows = report(c, "pools"), *users;

	users = json_object_get(row_named(rows, "pool", "default"), "users");
	check_eq(json_array_size(users), 1);
	check_eq(number_of(json_array_get(users, 0), "uid"), (int64_t)getuid());
	check(number_of(json_array_get(users, 0), "bytes") >= 4096);
	check_eq(json_array_size(json_object_get(row_named(rows, "pool", "wide"), "users")), 0);
	json_decref(rows);
	check_ok(share_release(buffer, NULL));
	share_pool_close(pool);
	share_disconnect(c);
}

static void hold_and_lose_the_connection(struct child *self, void *data)
{
	struct raw r;

	(void)data;
	raw_open(&r, "lost");
	raw_alloc(&r, raw_pool(&r, "default"), 4096);
	raw_hang_up(&r);
	child_point(self, "lost");
}

Test(counting, quarantines_and_poisonings_are_counted)
{
	share_client *c = connect_as("watching");
	struct child *child = child_start(hold_and_lose_the_connection, NULL);

	child_wait(child, "lost");
	settle(c, s.quarantined == 1);
	check_eq(in_status(c, "quarantines"), 1);
	check_eq(in_status(c, "poisonings"), 0);
	child_kill(child);
	settle(c, s.clients == 1);
	check_eq(in_status(c, "quarantines"), 1);
	check_eq(in_status(c, "poisonings"), 1);
	share_disconnect(c);
}

Test(counting, who_says_goodbye_is_not_poisoned)
{
	share_client *c = connect_as("watching"), *other = connect_as("polite");
	int64_t before = of_message(c, "BYE", "arrived");

	share_disconnect(other);
	settle(c, s.clients == 1);
	check_eq(in_status(c, "poisonings"), 0);
	check_eq(of_message(c, "BYE", "arrived"), before + 1);
	check_eq(of_message(c, "BYE", "timed"), before + 1);
	share_disconnect(c);
}

/* A lease that is given up and taken again is a new one. */
Test(counting, the_oldest_lease_is_the_first_of_those_that_are_left)
{
	share_client *c = connect_as("holder");
	share_pool *pool = open_pool(c);
	json_t *rows = report(c, "status");
	share_buffer *first, *second;

	check(json_is_null(json_object_get(json_array_get(rows, 0), "oldest_lease_ms")));
	json_decref(rows);
	first = allocate(pool, 100, NULL);
	settle(c, in_status(c, "oldest_lease_ms") >= 2000);
	second = allocate(pool, 100, NULL);
	check(in_status(c, "oldest_lease_ms") >= 2000);
	check_ok(share_release(first, NULL));
	check_ok(share_ping(c));
	/* the other one was made two seconds after the broker, or later */
	check(in_status(c, "oldest_lease_ms") <= in_status(c, "uptime_ms") - 2000 + 1000);
	check_ok(share_release(second, NULL));
	share_pool_close(pool);
	share_disconnect(c);
}

#define SOMEBODY 4711

static size_t n_users_of(share_client *c, const char *pool)
{
	json_t *rows = report(c, "pools");
	size_t n = json_array_size(json_object_get(row_named(rows, "pool", pool), "users"));

	json_decref(rows);
	return n;
}

static void share_a_pool(struct child *self, void *data)
{
	share_client *c;
	share_pool *pool;
	share_buffer *buffer;

	(void)data;
	child_become(SOMEBODY, 0);
	c = child_connect("somebody");
	check_ok(share_pool_open(c, "wide", &pool));
	check_ok(share_alloc(pool, 4096, NULL, &buffer));
	check_eq(n_users_of(c, "wide"), 1);
	child_point(self, "has some");
}

Test(counting, what_other_users_have_of_a_pool_is_for_administrators)
{
	share_client *c = connect_as("administrator");
	struct child *child;
	share_buffer *buffer;
	share_pool *wide;

	skip_unless_root();
	check_ok(share_pool_open(c, "wide", &wide));
	check_ok(share_alloc(wide, 4096, NULL, &buffer));
	child = child_start(share_a_pool, NULL);
	child_wait(child, "has some");
	check_eq(n_users_of(c, "wide"), 2);
	child_go(child);
	child_finish(child);
	check_ok(share_release(buffer, NULL));
	share_pool_close(wide);
	share_disconnect(c);
}
