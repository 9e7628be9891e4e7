/* SPDX-License-Identifier: MIT */

/*
 * What happens at the broker is told to who asks: each kind of it, by whom and to what; only what
 * is asked for; and to who does not keep up, how much is missing. What is not for a user is
 * hidden_test's.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "libshare/client/client.h"
#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "wire/wire.h"

#define MANY 2000 /* more than a monitor has room for */

static share_client *watcher, *client;
static share_pool *pool;
static share_monitor_options only = SHARE_MONITOR_OPTIONS_INIT;
static json_t *told;

static int keep(const char *json, void *data)
{
	(void)data;
	check_eq(json_array_append_new(told, json_loads(json, 0, NULL)), 0);
	return 0;
}

static void hear(int timeout_ms)
{
	check_ok(share_monitor(watcher, &only, timeout_ms, keep, NULL));
}

static const json_t *seen(const char *action)
{
	hear(0);
	return row_named(told, "action", action);
}

/* The only one of its kind, of this pid if that is not 0. */
static const json_t *once(const char *action, pid_t pid)
{
	const json_t *row, *found = NULL;
	size_t i;

	until(seen(action));
	json_array_foreach (told, i, row) {
		if (strcmp(json_string_value(json_object_get(row, "action")), action) != 0)
			continue;
		check(!found);
		found = row;
	}
	check(found && number_of(found, "time_ms") > 0);
	check(!pid || number_of(found, "pid") == pid);
	return found;
}

static void check_text(const json_t *row, const char *key, const char *text)
{
	const char *is = json_string_value(json_object_get(row, key));

	if (!is || strcmp(is, text) != 0)
		check_failed(__FILE__, __LINE__, "%s is '%s', not '%s'", key, is ? is : "?", text);
}

static void forget(void)
{
	hear(0);
	json_array_clear(told);
}

static void start(void)
{
	fixture_start();
	told = json_array();
	client = connect_as("client");
	pool = open_pool(client);
	watcher = connect_as("watcher");
	hear(-1);
	check_eq(json_array_size(told), 1);
	once("start", 0);
}

static void stop(void)
{
	json_decref(told);
	share_disconnect(watcher);
	share_pool_close(pool);
	share_disconnect(client);
	fixture_stop();
}

TestSuite(monitor, .init = start, .fini = stop, .timeout = 60);

/* ------------------------------------------------------------------------------------------- */

Test(monitor, is_told_of_allocations_names_and_tokens)
{
	share_client *other = connect_as("other");
	share_buffer *b, *found, *imported;
	const json_t *row;
	share_token token;

	b = allocate(pool, 4096, NULL);
	check_ok(share_publish(b, "films/one", NULL));
	check_ok(share_lookup(other, "films/one", SHARE_RDONLY, 0, NULL, &found));
	check_ok(share_export(b, NULL, &token));
	check_ok(share_import(other, &token, 0, NULL, &imported));
	check_ok(share_publish(b, "films/one", NULL));
	check_ok(share_unpublish(client, "films/one"));
	check_ok(share_release(imported, NULL));
	check_ok(share_release(found, NULL));
	check_ok(share_release(b, NULL));
	share_disconnect(other);

	check_text(once("connect", getpid()), "label", "other");
	row = once("alloc", getpid());
	check_text(row, "label", "client");
	check_text(row, "pool", "default");
	check_eq(number_of(row, "uid"), getuid());
	check_eq(number_of(row, "size"), 4096);
	check_eq(number_of(row, "count"), 1);
	row = once("publish", getpid());
	check_text(row, "name", "films/one");
	check_text(row, "pool", "default");
	check_text(row, "label", "client");
	row = once("lookup", getpid());
	check_text(row, "name", "films/one");
	check_text(row, "label", "other");
	check_text(once("export", getpid()), "label", "client");
	check_text(once("import", getpid()), "label", "other");
	check_text(once("replace", getpid()), "name", "films/one");
	check_text(once("unpublish", 0), "name", "films/one");
	check_text(once("free", 0), "buffer",
		   json_string_value(json_object_get(once("alloc", 0), "buffer")));
	check_text(once("disconnect", getpid()), "label", "other");
}

Test(monitor, is_told_of_names_that_somebody_waits_for)
{
	share_client *other = connect_as("other");
	share_buffer *found;

	check_error(share_lookup(other, "films/none", SHARE_RDONLY, 1, NULL, &found),
		    SHARE_ETIMEDOUT);
	check_text(once("wait", getpid()), "name", "films/none");
	share_disconnect(other);
}

Test(monitor, is_told_of_pools_and_of_allocations_that_fail)
{
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;
	share_buffer *b = NULL;
	share_pool *made;

	o.kind = "host";
	o.limit = o.segment_size = 1 << 20;
	check_ok(share_pool_create(client, "made", &o, &made));
	check_error(share_alloc(made, 2 << 20, NULL, &b), SHARE_ENOMEM);
	check_ok(share_pool_destroy(client, "made"));
	share_pool_close(made);

	check_text(once("pool-create", 0), "pool", "made");
	check_eq(number_of(once("pool-create", 0), "size"), 1 << 20);
	check_text(once("refuse", getpid()), "detail", "full");
	check_eq(number_of(once("refuse", 0), "size"), 2 << 20);
	check_text(once("pool-destroy", 0), "pool", "made");
	check_text(once("pool-end", 0), "pool", "made");
}

Test(monitor, is_told_who_joins_and_leaves_a_channel)
{
	share_channel *ch;

	check_ok(share_channel_open(client, "frames", SHARE_CONSUMER, NULL, &ch));
	share_channel_close(ch);
	check_text(once("join", getpid()), "channel", "frames");
	check_text(once("join", 0), "detail", "consumer");
	check_text(once("join", 0), "pool", "default");
	check_text(once("leave", getpid()), "channel", "frames");
}

static void holds(struct child *self, void *data)
{
	share_client *c = child_connect("holder");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 4096, NULL);
	pid_t pid = getpid();

	(void)data;
	child_point_with(self, "holding", &pid, sizeof(pid));
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

Test(monitor, is_told_of_a_death_and_of_what_comes_of_it)
{
	struct child *child = child_start(holds, NULL);
	pid_t pid;

	child_wait_with(child, "holding", &pid, sizeof(pid));
	child_kill(child);
	check_eq(number_of(once("death", pid), "count"), 1);
	check_eq(number_of(once("death", pid), "size"), 4096);
	check_text(once("poison", pid), "label", "holder");
	check_text(once("free", pid), "label", "holder");
	check_text(once("reclaim", pid), "label", "holder");
	check(!seen("disconnect"));
}

Test(monitor, is_told_of_quarantine)
{
	struct child *child = child_start(holds, NULL);
	json_t *rows;
	pid_t pid;

	child_wait_with(child, "holding", &pid, sizeof(pid));
	rows = report(client, "clients");
	check_ok(share_drop_client(
	    client, (uint64_t)number_of(row_named(rows, "label", "holder"), "client")));
	json_decref(rows);
	check_eq(number_of(once("quarantine", pid), "size"), 4096);
	check(!seen("death"));
	child_kill(child);
	once("death", pid);
}

#define LEFT 100

static void holds_much(struct child *self, void *data)
{
	share_client *c = connect_as("holder");
	share_pool *p = open_pool(c);
	pid_t pid = getpid();

	(void)data;
	for (int i = 0; i < LEFT; i++)
		allocate(p, 4096, NULL);
	child_point_with(self, "holding", &pid, sizeof(pid));
	pause();
}

/* Who watches the pool, and nothing else, sees why it is empty: a death, and not a line for each
 * buffer. The broker tells of some of them in each turn of its loop, and what was told is not
 * changed. */
Test(monitor, of_a_pool_tells_of_the_death_that_has_freed_it)
{
	struct child *child = child_start(holds_much, NULL);
	int64_t freed = 0, bytes = 0;
	size_t i, first = 0, n = 0;
	const json_t *row;
	pid_t pid;

	child_wait_with(child, "holding", &pid, sizeof(pid));
	only.pool = "default";
	forget();
	child_kill(child);
	settle(client, s.leases == 0);
	hear(0);
	check_text(json_array_get(told, 0), "action", "death");
	check_eq(number_of(once("death", pid), "count"), LEFT);
	json_array_foreach (told, i, row) {
		if (strcmp(json_string_value(json_object_get(row, "action")), "free") != 0)
			continue;
		first = n++ ? first : i;
		check_eq(number_of(row, "pid"), pid);
		check_text(row, "label", "holder");
		freed += json_object_get(row, "buffer") ? 1 : number_of(row, "count");
		bytes += number_of(row, "size");
	}
	check_eq(freed, LEFT);
	check_eq(bytes, LEFT * 4096);
	check_eq(first, 1);
	check(n < LEFT / 4);
}

/* ------------------------------------------------------------------------------------------- */

/* What is seen of this when only that is asked for. */
static size_t seen_of_a_publication(void)
{
	share_buffer *b;

	forget();
	b = allocate(pool, 512, NULL);
	check_ok(share_publish(b, "films/one", NULL));
	check_ok(share_release(b, NULL));
	check_ok(share_unpublish(client, "films/one"));
	hear(0);
	return json_array_size(told);
}

Test(monitor, is_told_only_of_what_is_asked_for)
{
	only.pool = "default";
	check_eq(seen_of_a_publication(), 4); /* alloc, publish, unpublish, free */
	only.pool = "defaul";
	check_eq(seen_of_a_publication(), 0);
	only.pool = NULL;
	only.prefix = "films/";
	check_eq(seen_of_a_publication(), 2);
	only.prefix = "films/one/";
	check_eq(seen_of_a_publication(), 0);
	only.prefix = NULL;
	only.flags = SHARE_MONITOR_USER;
	only.uid = getuid();
	check_eq(seen_of_a_publication(), 3); /* what only a name kept, nobody frees */
	only.uid = getuid() + 1;
	check_eq(seen_of_a_publication(), 0);
	only.flags = 2;
	check_error(share_monitor(watcher, &only, 0, keep, NULL), SHARE_EINVAL);
}

Test(monitor, who_does_not_read_is_told_how_much_is_missing)
{
	share_buffer *b = allocate(pool, 512, NULL);
	const json_t *last;
	size_t rows;

	check_ok(share_publish(b, "name", NULL));
	forget();
	for (int i = 0; i < MANY; i++)
		check_ok(share_publish(b, "name", NULL));
	hear(0);
	rows = json_array_size(told);
	last = json_array_get(told, rows - 1);
	check(rows > 100 && rows < MANY);
	check_text(last, "action", "lost");
	check_eq((int64_t)(rows - 1) + number_of(last, "count"), MANY);
	json_array_clear(told);
	check_ok(share_unpublish(client, "name"));
	once("unpublish", 0);
	check(!seen("lost"));
	check_ok(share_release(b, NULL));
}

Test(monitor, costs_its_user_what_it_keeps_and_nothing_afterwards)
{
	int64_t unsent = used_of(client, "unsent");

	check_eq(used_of(client, "watches"), 1);
	check(unsent > 10000);
	share_disconnect(watcher);
	until(used_of(client, "watches") == 0);
	check_eq(used_of(client, "unsent"), 0);
	watcher = connect_as("another");
	hear(-1);
	check_eq(used_of(client, "unsent"), unsent);
}

static void waits(struct child *self, void *data)
{
	(void)data;
	watcher = child_connect("waiter");
	hear(-1);
	child_point(self, "watches");
	json_array_clear(told);
	only.prefix = "awaited";
	hear(-1);
	check_eq(json_array_size(told), 1);
	check_text(json_array_get(told, 0), "action", "publish");
	json_decref(told);
	share_disconnect(watcher);
}

Test(monitor, waits_until_something_happens)
{
	struct child *child = child_start(waits, NULL);
	share_buffer *b;

	child_wait(child, "watches");
	child_go(child);
	until(used_of(client, "waits") == 1);
	b = allocate(pool, 512, NULL);
	check_ok(share_publish(b, "awaited", NULL));
	child_finish(child);
	check_ok(share_release(b, NULL));
}

static struct wire_message monitor_request(int timeout)
{
	return (struct wire_message){.type = WIRE_MONITOR, .monitor = {.timeout = timeout}};
}

/* And not what is said unasked: that a segment is empty. */
static void hear_answer(struct raw *r)
{
	do
		check_eq(raw_receive(r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	while (r->m.serial == 0);
}

/* What is said without an answer is read together with what follows it. So the broker finds both
 * before it has come to the one that waits. */
Test(monitor, of_which_one_waits_gets_no_second_one_when_that_is_just_being_woken)
{
	struct wire_message first = monitor_request(-1), second = monitor_request(0), release;
	struct raw r;

	raw_open(&r, "raw");
	release = (struct wire_message){.type = WIRE_RELEASE};
	release.release.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	release.release.count = 1;
	raw_ask(&r, &(struct wire_message){.type = WIRE_MONITOR}, WIRE_REPORT);
	first.serial = 1001;
	check_eq(raw_send(&r, &first), 0);
	until(used_of(client, "waits") == 1);
	broker_freeze();
	second.serial = 1002;
	check_eq(raw_send(&r, &release), 0);
	check_eq(raw_send(&r, &second), 0);
	broker_thaw();
	hear_answer(&r);
	check(r.m.type == WIRE_ERROR && r.m.serial == second.serial);
	check_error(r.m.error.error, SHARE_EBUSY);
	hear_answer(&r);
	check(r.m.type == WIRE_REPORT && r.m.serial == first.serial);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}
