/* SPDX-License-Identifier: MIT */

/*
 * The broker's time is shared between users, not between connections. What is asked for by many
 * connections of one user, all before another user asks for something, does not all come first.
 * Nothing is timed: the broker itself says how many requests it has handled before.
 */

#include <stdlib.h>
#include <string.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"
#include "tests/harness/status.h"

#define MANY     300 /* connections */
#define EACH     4   /* requests */
#define SOMEBODY 4711

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

static int64_t requests_in(const struct raw *r)
{
	const struct wire_bytes *rows = &r->m.report.rows;
	json_t *row = json_loadb(rows->data, rows->size, JSON_DISABLE_EOF_CHECK, NULL);
	int64_t n = number_of(row, "requests");

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
	before = requests_in(&r);
	broker_freeze();
	child_go(other);
	child_wait(other, "asked");
	query.serial = ++r.serial;
	check_eq(raw_send(&r, &query), 0);
	broker_thaw();
	check_eq(raw_receive(&r, HARNESS_LIMIT_MS), RAW_MESSAGE);
	check_eq(r.m.type, WIRE_REPORT);
	/* what was begun, and as much as its own first question cost */
	check(requests_in(&r) - before < MANY / 3);
	child_go(other);
	child_finish(other);
	raw_close(&r);
}
