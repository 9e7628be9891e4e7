/* SPDX-License-Identifier: MIT */

/*
 * The broker's time is shared between users, not between connections. What is asked for by many
 * connections of one user, all before another user asks for something, does not all come first.
 * Nothing is timed: the broker itself says how many requests it has handled before.
 */

#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/config/config.h"
#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/harness/status.h"

#define MANY     300 /* connections */
#define EACH     4   /* requests */
#define GROUPS   40000
#define PINGS    90
#define SOMEBODY 4711
#define WATCHERS 200
#define LEASES   1000
#define QUERIES  8
#define AT_ONCE  64  /* packets that a socket has room for */
#define WOKEN    128 /* look-ups that are answered in some turns of the broker's loop */

static const char config[] =
    "{\"limits\": {\"connections\": 400}, \"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
    "\"limit\": \"1MiB\", \"access\": [{\"user\": \"*\", \"mode\": \"rw\"}]}]}";

static void start(void)
{
	fixture_start_with(config);
}

TestSuite(fairness, .init = start, .fini = fixture_stop, .timeout = 120);

static void ask_for_much(struct child *self, void *data)
{
	struct raw *all = calloc(MANY, sizeof(*all));
	struct wire_message m = {.type = WIRE_PING};

	(void)data;
	check(all != NULL);
	child_become(SOMEBODY, 0);
	for (unsigned i = 0; i < MANY; i++)
		raw_open(&all[i], "one of many");
	child_point(self, "connected");
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned k = 0; k < EACH; k++) {
			m.serial = ++all[i].serial;
			check_eq(raw_send(&all[i], &m), 0);
		}
	child_point(self, "asked");
	/* all of them are answered in the end */
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned k = 0; k < EACH; k++)
			check_eq(raw_receive(&all[i], HARNESS_LIMIT_MS), RAW_MESSAGE);
	free(all);
}

/* What the broker says of itself, in a page of the report "status". */
static int64_t said(const struct raw *r, const char *what)
{
	const struct wire_bytes *rows = &r->m.report.rows;
	json_t *row = json_loadb(rows->data, rows->size, JSON_DISABLE_EOF_CHECK, NULL);
	int64_t n = number_of(row, what);

	json_decref(row);
	return n;
}

Test(fairness, who_asks_for_little_does_not_wait_for_all_that_another_user_asks_for)
{
	struct wire_message query = {.type = WIRE_QUERY};
	struct child *other;
	struct raw r;
	int64_t before;

	skip_unless_root();
	raw_open(&r, "quiet");
	query.query.what = raw_text("status");
	other = child_start(ask_for_much, NULL);
	child_wait(other, "connected");
	raw_ask(&r, &query, WIRE_REPORT);
	before = said(&r, "requests");
	broker_freeze();
	child_go(other);
	child_wait(other, "asked");
	query.serial = ++r.serial;
	check_eq(raw_send(&r, &query), 0);
	broker_thaw();
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_REPORT);
	/* What was begun, and as much as its own first question cost, which is as much as some tens
	 * of pings and more where memory is touched for the first time. */
	check(said(&r, "requests") - before < MANY * EACH / 3);
	child_go(other);
	child_finish(other);
	raw_close(&r);
}

static void come_in_crowds(struct child *self, void *data)
{
	static struct raw all[MANY];
	static gid_t groups[GROUPS];

	(void)data;
	/* each of which the broker has to ask for, so that who comes is dear */
	for (unsigned i = 0; i < GROUPS; i++)
		groups[i] = SOMEBODY + i;
	check(setgroups(GROUPS, groups) == 0 && setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 &&
	      setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
	child_point(self, "came");
	for (unsigned i = 0; i < MANY; i++)
		raw_connect(&all[i]);
	child_point(self, "connected");
}

Test(fairness, who_asks_for_little_does_not_wait_for_all_who_connect)
{
	struct wire_message query = {.type = WIRE_QUERY}, ping = {.type = WIRE_PING};
	struct child *other;
	struct raw r;
	int64_t before;

	skip_unless_root();
	raw_open(&r, "quiet");
	query.query.what = raw_text("status");
	other = child_start(come_in_crowds, NULL);
	child_wait(other, "came");
	raw_ask(&r, &query, WIRE_REPORT);
	before = said(&r, "connections");
	broker_freeze();
	child_go(other);
	child_wait(other, "connected");
	for (unsigned i = 0; i < PINGS; i++) {
		ping.serial = ++r.serial;
		check_eq(raw_send(&r, &ping), 0);
	}
	query.serial = ++r.serial;
	check_eq(raw_send(&r, &query), 0);
	broker_thaw();
	for (unsigned i = 0; i <= PINGS; i++)
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_REPORT);
	/* each of them takes longer than all that this one asks for */
	check(said(&r, "connections") - before < PINGS / 2);
	child_go(other);
	child_finish(other);
	raw_close(&r);
}

Test(fairness, a_page_of_a_report_has_few_rows)
{
	struct wire_message query = {.type = WIRE_QUERY};
	struct raw all[16], r;

	for (unsigned i = 0; i < 16; i++)
		raw_open(&all[i], "one of several");
	raw_open(&r, "asks");
	query.query.what = raw_text("clients");
	raw_ask(&r, &query, WIRE_REPORT);
	check(r.m.report.cursor.size > 0);
	check(r.m.report.rows.size > 0 && r.m.report.rows.size < 1024);
	raw_close(&r);
	for (unsigned i = 0; i < 16; i++)
		raw_close(&all[i]);
}

static void watch_all(struct child *self, void *data)
{
	struct raw *all = calloc(WATCHERS, sizeof(*all));
	struct wire_message m = {.type = WIRE_MONITOR}, ping = {.type = WIRE_PING};

	(void)data;
	check(all != NULL);
	child_become(SOMEBODY, 0);
	for (unsigned i = 0; i < WATCHERS; i++) {
		raw_open(&all[i], "one of many");
		m.monitor.timeout = 0;
		m.monitor.prefix = raw_text("shown");
		raw_ask(&all[i], &m, WIRE_REPORT);
		m.monitor.timeout = -1;
		m.serial = ++all[i].serial;
		check_eq(raw_send(&all[i], &m), 0);
		raw_ask(&all[i], &ping, WIRE_DONE);
	}
	child_point(self, "wait");
	for (unsigned i = 0; i < WATCHERS; i++) {
		check_eq(raw_receive(&all[i], HARNESS_LIMIT_MS), RAW_MESSAGE);
		check_eq(all[i].m.type, WIRE_REPORT);
		check(memmem(all[i].packet, all[i].size, "\"publish\"", 9) != NULL);
	}
	free(all);
}

Test(fairness, who_publishes_does_not_wait_until_all_who_ask_what_happens_are_told)
{
	struct wire_message publish = {.type = WIRE_PUBLISH}, query = {.type = WIRE_QUERY};
	struct child *other;
	char cursor[16];
	struct raw r;

	skip_unless_root();
	raw_open(&r, "quiet");
	publish.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	fd_list_close(&r.fds);
	publish.publish.size = 4096;
	publish.publish.name = raw_text("shown");
	snprintf(cursor, sizeof(cursor), "%d", SOMEBODY * LIMIT_KINDS + LIMIT_WAITS);
	query.query.what = raw_text("users");
	query.query.cursor = raw_text(cursor);
	other = child_start(watch_all, NULL);
	child_wait(other, "wait");
	raw_ask(&r, &query, WIRE_REPORT);
	check_eq(said(&r, "used"), WATCHERS);
	broker_freeze();
	publish.serial = ++r.serial;
	query.serial = ++r.serial;
	check_eq(raw_send(&r, &publish), 0);
	check_eq(raw_send(&r, &query), 0);
	broker_thaw();
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_PUBLISHED);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	/* by then some were */
	check(said(&r, "used") > WATCHERS / 2);
	child_go(other);
	child_finish(other);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

/* Of one connection, each for the same name. */
static void look_up_many(struct child *self, void *data)
{
	const unsigned *n = data;
	struct wire_message m = {.type = WIRE_LOOKUP}, ping = {.type = WIRE_PING};
	struct raw r;
	uint32_t *serials = calloc(*n, sizeof(*serials));

	check(serials != NULL);
	raw_open(&r, "waits");
	m.lookup.mode = SHARE_RDONLY;
	m.lookup.timeout = -1;
	m.lookup.name = raw_text("shown");
	for (unsigned i = 0; i < *n; i++) {
		m.serial = serials[i] = ++r.serial;
		check_eq(raw_send(&r, &m), 0);
		if (i % AT_ONCE == AT_ONCE - 1)
			raw_ask(&r, &ping, WIRE_DONE);
	}
	raw_ask(&r, &ping, WIRE_DONE);
	child_point(self, "wait");
	/* all of them are answered in the end, in the order in which they came */
	for (unsigned i = 0; i < *n; i++) {
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
		check_eq(r.m.type, WIRE_GRANT);
		check_eq(r.m.serial, serials[i]);
		fd_list_close(&r.fds);
	}
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
	free(serials);
}

static void publish_before(unsigned n)
{
	struct wire_message publish = {.type = WIRE_PUBLISH}, query = {.type = WIRE_QUERY};
	struct child *waiters;
	char cursor[16];
	struct raw r;

	raw_open(&r, "publishes");
	publish.publish.buffer = raw_alloc(&r, raw_pool(&r, "default"), 4096);
	fd_list_close(&r.fds);
	publish.publish.size = 4096;
	publish.publish.name = raw_text("shown");
	snprintf(cursor, sizeof(cursor), "%u", (unsigned)getuid() * LIMIT_KINDS + LIMIT_WAITS);
	query.query.what = raw_text("users");
	query.query.cursor = raw_text(cursor);
	waiters = child_start(look_up_many, &n);
	child_wait(waiters, "wait");
	raw_ask(&r, &query, WIRE_REPORT);
	check_eq(said(&r, "used"), n);
	broker_freeze();
	publish.serial = ++r.serial;
	query.serial = ++r.serial;
	check_eq(raw_send(&r, &publish), 0);
	check_eq(raw_send(&r, &query), 0);
	broker_thaw();
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_PUBLISHED);
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	/* by then some were answered, in the few turns that it takes to handle both */
	check(said(&r, "used") > n - WOKEN);
	child_go(waiters);
	child_finish(waiters);
	raw_ask(&r, &query, WIRE_REPORT);
	check_eq(said(&r, "used"), 0);
	raw_ask(&r, &(struct wire_message){.type = WIRE_BYE}, WIRE_DONE);
	raw_close(&r);
}

Test(fairness, who_publishes_does_not_wait_until_250_who_look_it_up_are_answered)
{
	publish_before(250);
}

Test(fairness, who_publishes_does_not_wait_until_4000_who_look_it_up_are_answered)
{
	publish_before(4000);
}

static void holds_many(struct child *self, void *data)
{
	struct raw r;
	uint64_t pool;

	(void)data;
	raw_open(&r, "holds many");
	pool = raw_pool(&r, "default");
	for (unsigned i = 0; i < LEASES; i++) {
		raw_alloc(&r, pool, 512);
		fd_list_close(&r.fds);
	}
	child_point(self, "holds");
}

Test(fairness, who_is_taken_apart_while_many_are_told_of_it_holds_nobody_up)
{
	struct wire_message query = {.type = WIRE_QUERY}, m = {.type = WIRE_MONITOR};
	struct raw *all = calloc(WATCHERS, sizeof(*all)), r;
	struct child *holder;

	check(all != NULL);
	raw_open(&r, "quiet");
	query.query.what = raw_text("status");
	holder = child_start(holds_many, NULL);
	child_wait(holder, "holds");
	for (unsigned i = 0; i < WATCHERS; i++) {
		raw_open(&all[i], "one of many");
		raw_ask(&all[i], &m, WIRE_REPORT);
	}
	broker_freeze();
	child_kill(holder);
	for (unsigned i = 0; i < QUERIES; i++) {
		query.serial = ++r.serial;
		check_eq(raw_send(&r, &query), 0);
	}
	broker_thaw();
	for (unsigned i = 0; i < QUERIES; i++)
		check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check(said(&r, "leases") > LEASES / 2);
	for (unsigned i = 0; i < WATCHERS; i++)
		raw_close(&all[i]);
	free(all);
	raw_close(&r);
}
