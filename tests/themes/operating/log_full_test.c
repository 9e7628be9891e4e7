/* SPDX-License-Identifier: MIT */

/*
 * A log that somebody fills, or that nobody reads: the broker serves all the same, and says how
 * much is missing.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/fixture.h"
#include "tests/harness/raw.h"

static share_client *witness;
static int ends[2] = {-1, -1};

static void stop(void)
{
	share_disconnect(witness);
	fixture_stop();
	close(ends[0]);
	close(ends[1]);
}

static void start(void)
{
	fixture_start();
	witness = connect_as("witness");
}

TestSuite(log_flood, .init = start, .fini = stop, .timeout = 120);

/* Each costs the log a line. */
static void be_rude(int times)
{
	struct raw r;

	for (int i = 0; i < times; i++) {
		raw_open(&r, "rude one");
		check_eq(raw_send_bytes(&r, "nonsense", 8, NULL, 0), 0);
		check_error(raw_farewell(&r), SHARE_EPROTO);
		raw_close(&r);
	}
	settle(witness, s.clients == 1);
}

Test(log_flood, a_user_has_so_many_lines_a_minute_and_the_others_are_announced)
{
	be_rude(500);
	check_eq(broker_said("'rude one'"), 200);
	check_eq(broker_said("caused 200 lines within a minute: more are left out"), 1);
}

static void others_are_rude(struct child *self, void *data)
{
	(void)self;
	(void)data;
	child_become(4711, 0);
	for (int i = 0; i < 250; i++) {
		struct raw r;

		raw_open(&r, "stranger");
		check_eq(raw_send_bytes(&r, "nonsense", 8, NULL, 0), 0);
		check_error(raw_farewell(&r), SHARE_EPROTO);
		raw_close(&r);
	}
}

Test(log_flood, what_a_user_causes_hides_nobody_else)
{
	skip_unless_root();
	child_finish(child_start(others_are_rude, NULL));
	check_eq(broker_said("'stranger'"), 200);
	be_rude(1);
	check_eq(broker_said("'rude one'"), 1);
}

static void start_with_pipe(void)
{
	check(pipe2(ends, O_CLOEXEC) == 0);
	check(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
	broker_log_to(ends[1]);
	start();
}

TestSuite(log_pipe, .init = start_with_pipe, .fini = stop, .timeout = 120);

/* All that is in the pipe, for free(). */
static char *read_all(void)
{
	char *text = calloc(1, 1 << 20);
	ssize_t n;
	size_t got = 0;

	check(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
	while ((n = read(ends[0], text + got, (1 << 20) - 1 - got)) > 0)
		got += (size_t)n;
	return text;
}

static int count(const char *text, const char *what)
{
	int n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

Test(log_pipe, that_nobody_reads_holds_up_nobody_and_the_lines_are_counted)
{
	int before, missing;
	char *text, *said;

	be_rude(100);
	check_ok(share_ping(witness));
	check((fcntl(ends[1], F_GETFL) & O_NONBLOCK) == 0);
	text = read_all();
	before = count(text, "'rude one'");
	check(before > 0 && before < 100);
	check(text[strlen(text) - 1] == '\n');
	free(text);

	be_rude(1);
	text = read_all();
	said = strstr(text, "stderr had no room for ");
	check(said != NULL);
	missing = atoi(said + strlen("stderr had no room for "));
	check_eq(before + missing, 100);
	check_eq(count(text, "'rude one'"), 1);
	free(text);
}
