/* SPDX-License-Identifier: MIT */

/*
 * The broker hands over to one of the program that is on the disk. Each test has a folder with a
 * program of its own, whose module it replaces as a package does.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/admin.h>
#include <share/channel.h>

#include "base/system/process.h"
#include "broker/journal/record.h"
#include "tests/harness/fixture.h"

#define SIZE 4096

static char folder[64], program[128], module[128];
static const char *config; /* NULL: as ever */
static const char *keeper = BROKER, *first = BROKER ".so";

static void copy(const char *from, const char *to)
{
	char bytes[65536], other[160];
	FILE *in = fopen(from, "re"), *out;
	size_t n;

	snprintf(other, sizeof(other), "%s.new", to);
	out = fopen(other, "we");
	check(in && out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		check(fwrite(bytes, 1, n, out) == n);
	fclose(in);
	check(fclose(out) == 0 && chmod(other, 0755) == 0 && rename(other, to) == 0);
}

static void start(void)
{
	strcpy(folder, "/tmp/share-upgrade-XXXXXX");
	check(mkdtemp(folder));
	snprintf(program, sizeof(program), "%s/share-broker", folder);
	snprintf(module, sizeof(module), "%s/share-broker.so", folder);
	copy(keeper, program);
	copy(first, module);
	broker_use_program(program);
	fixture_start_with(config);
}

static void stop(void)
{
	fixture_stop();
	unlink(program);
	unlink(module);
	rmdir(folder);
}

TestSuite(upgrade, .init = start, .fini = stop, .timeout = 120);

static int count(const char *json, void *data)
{
	check(strstr(json, "\"from\":\"" SHARE_VERSION "\""));
	check(strstr(json, "\"to\":\"" SHARE_VERSION "\""));
	++*(int *)data;
	return 0;
}

static void upgrade(share_client *c)
{
	pid_t before = broker_pid();
	int n = 0;

	check_ok(share_upgrade(c, count, &n));
	check_eq(n, 1);
	check(broker_pid() != before);
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	check_ok(error);
	*(share_buffer **)data = b;
}

Test(upgrade, nobody_loses_anything)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_client *c = connect_as("one"), *other = connect_as("two");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL), *found = NULL, *later = NULL;
	share_channel *from, *to;
	share_operation *o;
	share_message m = SHARE_MESSAGE_INIT;

	memset(share_ptr(b), 0x5a, SIZE);
	check_ok(share_publish(b, "thing", NULL));
	check_ok(share_channel_open(c, "channel", SHARE_PRODUCER, &options, &from));
	check_ok(share_channel_open(other, "channel", SHARE_CONSUMER, &options, &to));
	check_ok(share_send(from, b, NULL, 0, NULL));
	check_ok(share_lookup_async(other, "later", SHARE_RDONLY, -1, NULL, on_lookup, &later, &o));
	copy(BROKER ".so", module);
	upgrade(c);
	check_ok(share_lookup(other, "thing", SHARE_RDONLY, 0, NULL, &found));
	check_eq(((const unsigned char *)share_ptr(found))[SIZE - 1], 0x5a);
	upgrade(other);
	check_ok(share_recv(to, HARNESS_LIMIT_MS, NULL, &m));
	check_ok(share_ack(&m, NULL));
	check_ok(share_publish(b, "later", NULL));
	until((share_dispatch(other), later));
	share_cancel(o);
	share_release(later, NULL);
	share_release(found, NULL);
	share_release(b, NULL);
	share_channel_close(from);
	share_channel_close(to);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}

/* ------------------------------------------------------------------------------------------- */
/* To a program whose records have one member more each, and back                               */

#define MANY 4000
#define LONG 252 /* bytes of a name, with which a member more takes more memory */

static const char *long_name(int i)
{
	static char text[LONG + 1];

	snprintf(text, sizeof(text), "%0*d", LONG, i);
	return text;
}

static void on_change(const share_name_event *event, void *data)
{
	*(int *)data += event->change == SHARE_UNPUBLISHED;
}

/* For its records the journal grows, and so does the copy of it that is rehearsed with. */
static void leave(share_buffer *b, share_token tokens[2])
{
	for (int i = 0; i < MANY; i++)
		check_ok(share_publish(b, long_name(i), NULL));
	for (int i = 0; i < 2; i++)
		check_ok(share_export(b, NULL, &tokens[i]));
}

static void expect_all(share_client *c, const share_token *token)
{
	share_buffer *found;

	for (int i = 0; i < MANY; i += MANY / 10) {
		check_ok(share_lookup(c, long_name(i), SHARE_RDONLY, 0, NULL, &found));
		check_eq(((const unsigned char *)share_ptr(found))[SIZE - 1], 0x5a);
		share_release(found, NULL);
	}
	check_ok(share_import(c, token, SHARE_RDONLY, NULL, &found));
	share_release(found, NULL);
}

/* From it nobody goes back to a program that knows the older layout alone, also when it dies before
 * it serves: then the next one is of the same program. */
static void go_there_and_stay(void)
{
	share_client *c = connect_as("one"), *other = connect_as("two");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL);
	share_token tokens[2];
	char detail[150];
	share_watch *w;
	pid_t before;
	int gone = 0;

	memset(share_ptr(b), 0x5a, SIZE);
	leave(b, tokens);
	check_ok(share_watch_names(other, "", on_change, &gone, &w));
	copy(BROKER_OF_NEXT_LAYOUT ".so", module);
	upgrade(c);
	expect_all(other, &tokens[0]);
	broker_kill_serving();
	copy(BROKER ".so", module);
	before = broker_pid();
	check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
	snprintf(detail, sizeof(detail),
		 "the journal is of version %u, which another program has written, and this one "
		 "reads %u at most",
		 STATE_LAYOUT + 2, STATE_LAYOUT + 1);
	check_detail(detail);
	check_eq(broker_pid(), before);
	expect_all(other, &tokens[1]);
	check_ok(share_unpublish(c, long_name(0)));
	until((share_dispatch(other), gone > 0));
	share_unwatch(w);
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(other);
	share_disconnect(c);
}

Test(upgrade, to_the_next_layout_loses_nothing_and_is_not_taken_back)
{
	go_there_and_stay();
}

static void start_with_one_that_dies(void)
{
	setenv("SHARE_TEST_DIES_UNTIL", "5", 1);
	start();
}

TestSuite(upgrade_to_one_that_dies, .init = start_with_one_that_dies, .fini = stop, .timeout = 120);

Test(upgrade_to_one_that_dies, when_it_is_about_to_serve_stays_with_it)
{
	go_there_and_stay();
}

/* ------------------------------------------------------------------------------------------- */

/* Who serves afterwards is the same, and so is what there is. */
static void expect_refusal(const char *why)
{
	share_client *c = connect_as("one");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL), *found;
	pid_t before = broker_pid();

	check_ok(share_publish(b, "thing", NULL));
	for (int i = 0; i < 3; i++) {
		check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
		check_detail(why);
		check_eq(broker_pid(), before);
		check_ok(share_lookup(c, "thing", SHARE_RDONLY, 0, NULL, &found));
		share_release(found, NULL);
	}
	check_ok(share_unpublish(c, "thing"));
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

Test(upgrade, a_program_that_cannot_be_loaded_is_refused)
{
	copy(BROKER, module); /* which is no module */
	expect_refusal("cannot dynamically load");
}

Test(upgrade, a_program_that_is_gone_is_refused)
{
	unlink(module);
	expect_refusal("No such file");
}

static void start_with_odd_one(const char *how)
{
	setenv("SHARE_TEST_ODD", how, 1);
	start();
	copy(ODD_BROKER ".so", module);
}

TestSuite(upgrade_to_an_odd_one, .fini = stop, .timeout = 120);

Test(upgrade_to_an_odd_one, that_does_not_understand_what_there_is_is_refused)
{
	start_with_odd_one("refuses");
	expect_refusal("the journal is of a version that this broker does not read");
}

Test(upgrade_to_an_odd_one, that_ends_is_refused)
{
	start_with_odd_one("ends");
	expect_refusal("cannot go on: it ended with exit code 3");
}

Test(upgrade_to_an_odd_one, that_crashes_is_refused)
{
	start_with_odd_one("crashes");
	expect_refusal("cannot go on: it died of signal 9");
}

#if !PROCESS_IS_INSTRUMENTED /* then the sanitizer says where */
Test(upgrade_to_an_odd_one, that_crashes_says_where)
{
	start_with_odd_one("fails");
	expect_refusal("cannot go on: it died of signal 11");
	check_eq(broker_said("has crashed: signal 11 (Segmentation fault), address 0x10, at "
			     "share-broker.so+0x"),
		 3);
}
#endif

/* The program of before has all that there was, and the log says @why. */
static void expect_old_one(const char *why)
{
	share_client *c = connect_as("one");
	share_pool *p;
	share_buffer *b, *found;

	p = open_pool(c);
	b = allocate(p, SIZE, NULL);
	check_ok(share_publish(b, "thing", NULL));
	for (int i = 0; i < 3; i++) {
		check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
		check_detail("could not go on");
		check_eq(broker_said(why), i + 1);
		check_ok(share_lookup(c, "thing", SHARE_RDONLY, 0, NULL, &found));
		share_release(found, NULL);
	}
	check_ok(share_unpublish(c, "thing"));
	share_release(b, NULL);
	share_pool_close(p);
	share_disconnect(c);
}

Test(upgrade_to_an_odd_one, that_dies_all_the_same_leads_back_to_the_old_one)
{
	start_with_odd_one("dies");
	expect_old_one("has ended with exit code 3 before it served: the old one goes on");
}

/* Three times in a row. Whoever has killed it might not kill the next one. */
Test(upgrade_to_an_odd_one, that_is_killed_again_and_again_leads_back_to_the_old_one)
{
	start_with_odd_one("is killed");
	expect_old_one("3 brokers of the new program were killed before they served");
}

static void hang_after(const char *hang_ms)
{
	static char text[160];

	snprintf(text, sizeof(text),
		 "{\"hang_ms\": %s, \"pools\": [{\"name\": \"default\", \"kind\": \"host\", "
		 "\"limit\": \"64MiB\", \"release_threshold\": 0}]}",
		 hang_ms);
	config = text;
}

static void expect_late(const char *why)
{
	share_client *c = connect_as("one");
	pid_t before = broker_pid();

	check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
	check_detail(why);
	check_eq(broker_pid(), before);
	share_disconnect(c);
}

/* While the machine stands still nobody is said not to move, but time passes: an attempt may be
 * over before that is known. It will not be each time. */
static void expect_motionless(const char *why)
{
	share_client *c = connect_as("one");
	pid_t before = broker_pid();
	int left = 5;

	do
		check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
	while (--left > 0 && strstr(share_error_detail(), "cannot go on: it was not done after "));
	check_detail(why);
	check_eq(broker_pid(), before);
	share_disconnect(c);
}

Test(upgrade_to_an_odd_one, that_does_not_move_is_refused)
{
	hang_after("1000");
	start_with_odd_one("stops");
	expect_motionless("cannot go on: it has not moved for 1000 ms (hang_ms)");
}

Test(upgrade_to_an_odd_one, that_never_ends_is_refused)
{
	hang_after("1000");
	start_with_odd_one("never ends");
	expect_late("cannot go on: it was not done after ");
	check_detail(" ms (twice hang_ms, and 200 ms for each of ");
}

/* The keeper finds out that the rehearsal has ended, though it got no descriptor of it. */
Test(upgrade_to_an_odd_one, by_a_keeper_without_a_pidfd_is_done)
{
	share_client *c;

	keeper = ODD_BROKER;
	start();
	c = connect_as("one");
	upgrade(c);
	upgrade(c);
	share_disconnect(c);
}

/* There may be much to take over. */
Test(upgrade_to_an_odd_one, that_gets_on_has_longer_than_one_that_hangs)
{
	share_client *c;

	hang_after("3000");
	start_with_odd_one("is slow");
	c = connect_as("one");
	upgrade(c);
	share_disconnect(c);
}

Test(upgrade_to_an_odd_one, that_hangs_leads_back_to_the_old_one)
{
	hang_after("1500");
	start_with_odd_one("hangs");
	expect_old_one("has hung before it served: the old one goes on");
}

/* Though another program is on the disk by now. */
Test(upgrade_to_an_odd_one, does_not_happen_by_itself_when_a_broker_is_killed)
{
	share_client *c;
	share_pool *p;

	start_with_odd_one("dies");
	c = connect_as("one");
	p = open_pool(c);
	for (int i = 0; i < 3; i++) {
		broker_kill_serving();
		share_release(allocate(p, SIZE, NULL), NULL);
	}
	share_pool_close(p);
	share_disconnect(c);
}

static int64_t history(share_client *c, const char *key)
{
	json_t *rows = report(c, "status");
	int64_t n = number_of(json_array_get(rows, 0), key);

	json_decref(rows);
	return n;
}

/* Who asked was told that the broker is not upgraded, so it is not when the broker dies some day.
 */
Test(upgrade_to_an_odd_one, does_not_happen_later_when_the_keeper_is_told_too_late)
{
	share_client *c;

	hang_after("1000");
	setenv("SHARE_TEST_ODD", "is told late", 1);
	first = ODD_BROKER ".so";
	start();
	c = connect_as("one");
	check_error(share_upgrade(c, NULL, NULL), SHARE_ENOTSUP);
	check_detail("its keeper was not told");
	until(broker_said("the keeper answers again") == 1);
	broker_kill_serving();
	check_eq(history(c, "brokers_died"), 1);
	check_eq(history(c, "brokers_upgraded"), 0);
	share_disconnect(c);
}
