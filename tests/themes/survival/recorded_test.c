/* SPDX-License-Identifier: MIT */

/*
 * What brokers of versions before have left is there for this one: each recording in journals/ (see
 * recording.h) is either gone on from, and clients find all that there was, or refused for the
 * reason that journals/list has.
 *
 * So it is under limits that are lower than what there is: nothing of it is lost, no more is had,
 * and what is given back makes room.
 *
 * And what a broker of this version leaves is recorded, with records of all types; with
 * $SHARE_RECORD_JOURNAL as that file. docs/testing.md says when to keep one.
 */

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/journal/record_types.h"
#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/themes/survival/recorded_scenario.h"
#include "tests/themes/survival/recording.h"

/* ------------------------------------------------------------------------------------------- */
/* What there is, as clients are told                                                          */

/* Without what is the process's own, or another time's. */
static const struct {
	const char *name, *without, *only;
} reports[] = {
    {"status", "",
     "clients quarantined pools segments segment_bytes buffers buffer_bytes leases names tokens"},
    {"pools", "", NULL},
    {"segments", "", NULL},
    {"buffers", "holders", NULL},
    {"leases", "age_ms", NULL},
    {"names", "", NULL},
    {"tokens", "left_ms", NULL},
    {"events", "", NULL},
    {"channels", "", NULL},
    {"clients", "oldest_lease_ms", NULL},
    {"users", "limit in_flight", NULL},
    {"agents", "agent replaced", NULL},
};

static json_t *part_of(const json_t *row, const char *without, const char *only)
{
	json_t *part = only ? json_object() : json_copy((json_t *)(uintptr_t)row);
	char copy[256], *rest = copy, *key;

	snprintf(copy, sizeof(copy), "%s", only ? only : without);
	while ((key = strsep(&rest, " "))) {
		if (only)
			json_object_set(part, key, json_object_get(row, key));
		else
			json_object_del(part, key);
	}
	return part;
}

#define LOOKS "looks" /* who does, is nobody of them */

/* What this client is, or its user has that has nothing else; what is on its way, and arrives
 * whoever goes on; and what all this costs. */
static bool is_left_out(const json_t *row)
{
	static const char *const resources[] = {"connections", "descriptors", "unsent",
						"broker_memory"};
	const char *label = json_string_value(json_object_get(row, "label"));
	const char *resource = json_string_value(json_object_get(row, "resource"));

	for (size_t i = 0; resource && i < sizeof(resources) / sizeof(resources[0]); i++)
		if (strcmp(resource, resources[i]) == 0)
			return true;
	return (label && strcmp(label, LOOKS) == 0) || (resource && number_of(row, "used") == 0);
}

static json_t *what_is_there(void)
{
	share_client *c = connect_as(LOOKS);
	json_t *there = json_object();

	for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		json_t *rows = report(c, reports[i].name), *parts = json_array();

		for (size_t k = 0; k < json_array_size(rows); k++) {
			const json_t *row = json_array_get(rows, k);

			if (!is_left_out(row))
				json_array_append_new(
				    parts, part_of(row, reports[i].without, reports[i].only));
		}
		json_object_set_new(there, reports[i].name, parts);
		json_decref(rows);
	}
	share_disconnect(c);
	return there;
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_known(json_t *rows, const char *key)
{
	for (size_t i = 0; i < json_array_size(rows); i++)
		if (json_object_get(json_array_get(rows, i), key))
			return true;
	return false;
}

/* What rows have under this key, where that are rows themselves; of all rows together. */
static json_t *rows_under(json_t *rows, const char *key)
{
	json_t *all = json_array();

	for (size_t i = 0; i < json_array_size(rows); i++)
		json_array_extend(all, json_object_get(json_array_get(rows, i), key));
	return all;
}

/* Of a row what others know, and the same of rows in it. */
static json_t *known_part(json_t *row, json_t *known)
{
	json_t *part = json_object(), *value;
	const char *key;

	json_object_foreach (row, key, value) {
		json_t *inner, *parts;

		if (!is_known(known, key))
			continue;
		if (!json_is_object(json_array_get(value, 0))) {
			json_object_set(part, key, value);
			continue;
		}
		inner = rows_under(known, key);
		parts = json_array();
		for (size_t i = 0; i < json_array_size(value); i++)
			json_array_append_new(parts, known_part(json_array_get(value, i), inner));
		json_object_set_new(part, key, parts);
		json_decref(inner);
	}
	return part;
}

/* The rows in order, and of each what the other list knows: more can be told today. */
static char *lines_of(json_t *rows, json_t *known)
{
	size_t n = json_array_size(rows), size = 1;
	char **lines = calloc(n + 1, sizeof(*lines)), *text;

	for (size_t i = 0; i < n; i++) {
		json_t *one = known_part(json_array_get(rows, i), known);

		lines[i] = json_dumps(one, JSON_SORT_KEYS);
		size += strlen(lines[i]) + 1;
		json_decref(one);
	}
	qsort(lines, n, sizeof(*lines), compare_lines);
	text = calloc(1, size);
	for (size_t i = 0; i < n; i++) {
		strcat(strcat(text, lines[i]), "\n");
		free(lines[i]);
	}
	free(lines);
	return text;
}

/* The lines of one text that are not in the other. */
static void print_missing(const char *text, const char *other, const char *which)
{
	char *copy = strdup(text), *rest = copy, *line;

	while ((line = strsep(&rest, "\n")))
		if (!strstr(other, line))
			fprintf(stderr, "%s: %s\n", which, line);
	free(copy);
}

static void expect_same(const char *file, const char *name, json_t *before, json_t *now)
{
	char *wanted = lines_of(before, before), *found = lines_of(now, before);

	if (strcmp(wanted, found) != 0) {
		print_missing(wanted, found, "only recorded");
		print_missing(found, wanted, "only now");
		check_failed(__FILE__, __LINE__, "%s: %s are not those that there were", file,
			     name);
	}
	free(wanted);
	free(found);
}

static void expect_all_there(const char *file, const json_t *recording)
{
	json_t *before = json_object_get(recording, "there"), *rows, *now = what_is_there();
	const char *name;

	check(json_object_size(before) > 0);
	json_object_foreach (before, name, rows)
		expect_same(file, name, rows, json_object_get(now, name));
	json_decref(now);
}

/* ------------------------------------------------------------------------------------------- */
/* What clients have of it                                                                     */

static void expect_content(share_client *c, const json_t *recording)
{
	const json_t *filled = json_object_get(recording, "filled");
	const char *name;
	share_buffer *b;
	int size, value;

	check(json_array_size(filled) > 0);
	for (size_t i = 0; i < json_array_size(filled); i++) {
		check(json_unpack(json_array_get(filled, i), "[s,i,i]", &name, &size, &value) == 0);
		check_ok(share_lookup(c, name, SHARE_RDONLY, 0, NULL, &b));
		check_eq(share_size(b), (uint64_t)size);
		buffer_expect(b, value);
		share_release(b, NULL);
	}
}

static void expect_tokens(share_client *c, const json_t *recording)
{
	const json_t *tokens = json_object_get(recording, "tokens");
	share_buffer *b;
	share_token token;

	for (size_t i = 0; i < json_array_size(tokens); i++) {
		const char *text = json_string_value(json_array_get(tokens, i));

		for (size_t k = 0; k < sizeof(token.bytes); k++)
			check(sscanf(text + 2 * k, "%2hhx", &token.bytes[k]) == 1);
		check_ok(share_import(c, &token, SHARE_RDONLY, NULL, &b));
		share_release(b, NULL);
	}
}

/* Of a producer that is gone; older recordings have none. */
static void expect_messages(share_client *c, const json_t *recording)
{
	json_t *left = json_object_get(recording, "left");
	share_channel *ch;
	share_message m = SHARE_MESSAGE_INIT;
	const char *name;
	int value, n;

	if (!left)
		return;
	check(json_unpack(left, "[s,i,i]", &name, &value, &n) == 0);
	ch = scenario_open(c, name, SHARE_CONSUMER);
	for (int i = 0; i < n; i++) {
		check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
		check_eq(m.deliveries, 1);
		buffer_expect(m.buffer, value + i);
		check_ok(share_ack(&m, NULL));
	}
	share_channel_close(ch);
}

static void expect_message_of_several(share_client *c, const json_t *recording)
{
	json_t *several = json_object_get(recording, "several");
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch;
	const char *name;
	int value;

	if (!several)
		return;
	check(json_unpack(several, "[s,i]", &name, &value) == 0);
	ch = scenario_open(c, name, SHARE_CONSUMER);
	check_ok(share_recv(ch, HARNESS_LIMIT_MS, NULL, &m));
	check_eq(m.deliveries, 1);
	check_eq(m.n_buffers, SCENARIO_SEVERAL);
	for (int i = 0; i < SCENARIO_SEVERAL; i++)
		buffer_expect(m.buffers[i], value + i);
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
}

/* What is allocated now is nobody else's, and is called what nothing else was called. */
static void expect_new_ones(share_client *c)
{
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, UINT64_C(1) << 20, NULL);
	json_t *rows = report(c, "buffers");
	char id[32];

	buffer_fill(b, 0xff);
	snprintf(id, sizeof(id), "0x%llx", (unsigned long long)share_id(b));
	check(row_named(rows, "buffer", id));
	json_decref(rows);
	share_release(b, NULL);
	share_pool_close(p);
}

/* One has asked for this name, and is answered now. */
static void expect_answer(share_client *c)
{
	int64_t waits = used_of(c, "waits");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, 1, NULL);

	check(waits > 0);
	check_ok(share_publish(b, "later", NULL));
	until(used_of(c, "waits") == waits - 1);
	check_ok(share_unpublish(c, "later"));
	share_release(b, NULL);
	share_pool_close(p);
}

/* ------------------------------------------------------------------------------------------- */
/* Brokers that go on                                                                          */

static int stand_ins[2]; /* see STAND_INS_VARIABLE */
static const char *program = RECORDED_BROKER;

static void begin_from(const char *file)
{
	char path[64];

	check(pipe2(stand_ins, O_CLOEXEC) == 0);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), stand_ins[0]);
	setenv(STAND_INS_VARIABLE, path, 1);
	setenv(GO_ON_FROM_VARIABLE, file, 1);
	broker_use_program(program);
	broker_begin(NULL);
	unsetenv(GO_ON_FROM_VARIABLE);
	unsetenv(STAND_INS_VARIABLE);
	until(broker_said("goes on from version") + broker_said("refused:") > 0);
}

/* All that there were die, and leave nothing. */
static void end(void)
{
	close(stand_ins[0]);
	close(stand_ins[1]);
	broker_stop();
}

static void expect_to_go_on(const char *file)
{
	json_error_t error;
	json_t *recording = json_load_file(file, 0, &error);
	share_client *c;

	check(recording);
	begin_from(file);
	if (broker_said("refused:"))
		check_failed(__FILE__, __LINE__, "%s: this version does not understand it", file);
	expect_all_there(file, recording);
	c = connect_as("new");
	expect_content(c, recording);
	expect_tokens(c, recording);
	expect_messages(c, recording);
	expect_message_of_several(c, recording);
	expect_new_ones(c);
	expect_answer(c);
	share_disconnect(c);
	end();
	json_decref(recording);
}

static void expect_to_be_refused(const char *file, const char *reason)
{
	char line[512];

	begin_from(file);
	snprintf(line, sizeof(line), "refused: %s", reason);
	if (broker_said(line) != 1)
		check_failed(__FILE__, __LINE__, "%s: the broker did not say \"%s\"", file, line);
	check(broker_wait() != 0);
	end();
}

/* ------------------------------------------------------------------------------------------- */

static char recorded[] = "/tmp/share-recording-XXXXXX";

static void fail(void)
{
	char *log = broker_log();

	fprintf(stderr, "---- the broker's log ----\n%s----\n", log);
	free(log);
	cr_assert_fail("see above");
}

static void start(void)
{
	check_on_failure = fail;
}

TestSuite(recorded, .init = start, .timeout = 300);

static void expect_as_listed(char *line)
{
	char path[512], *rest = line, *name, *what;

	line[strcspn(line, "\n")] = '\0';
	name = strsep(&rest, " ");
	what = strsep(&rest, " ");
	check(what);
	snprintf(path, sizeof(path), JOURNALS "/%s", name);
	if (strcmp(what, "loads") == 0)
		expect_to_go_on(path);
	else
		expect_to_be_refused(path, rest);
}

/* Each file is in the list. */
static void expect_all_as_listed(void)
{
	FILE *list = fopen(JOURNALS "/list", "re");
	char line[512];
	glob_t found;
	size_t n = 0;

	check(list);
	while (fgets(line, sizeof(line), list)) {
		if (line[0] == '#')
			continue;
		expect_as_listed(line);
		n++;
	}
	fclose(list);
	check(glob(JOURNALS "/*.json", 0, NULL, &found) == 0);
	check_eq(found.gl_pathc, n);
	globfree(&found);
}

Test(recorded, by_versions_before)
{
	expect_all_as_listed();
}

/* Whose records have one member more each. */
Test(recorded, by_versions_before_a_layout)
{
	program = RECORDED_BROKER_OF_NEXT_LAYOUT;
	expect_all_as_listed();
}

/* ------------------------------------------------------------------------------------------- */
/* Under lower limits                                                                           */

/* The same as @file, but that a user may have one of each; who looks has to be let in. */
static void write_with_limits(const char *file, const char *to)
{
	static const char *const one[] = {"leases", "names",  "tokens",   "watches", "waits",
					  "pools",  "events", "channels", "fences",  "segments"};
	static const char *const bytes[] = {"bytes", "metadata", "unsent"};
	json_t *recording = json_load_file(file, 0, NULL), *limits = json_object(), *config;
	char *text;

	check(recording);
	for (size_t i = 0; i < sizeof(one) / sizeof(one[0]); i++)
		json_object_set_new(limits, one[i], json_integer(1));
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		json_object_set_new(limits, bytes[i], json_string(i == 0 ? "4KiB" : "1"));
	config = json_loads(json_string_value(json_object_get(recording, "config")), 0, NULL);
	check(config && json_object_set_new(config, "limits", limits) == 0);
	text = json_dumps(config, 0);
	json_object_set_new(recording, "config", json_string(text));
	check(json_dump_file(recording, to, 0) == 0);
	free(text);
	json_decref(config);
	json_decref(recording);
}

static void hear(const share_name_event *e, void *data)
{
	(void)e, (void)data;
}

static void expect_no_more(share_client *c)
{
	share_pool_options pool = SHARE_POOL_OPTIONS_INIT;
	share_channel_options channel = SHARE_CHANNEL_OPTIONS_INIT;
	share_pool *p = open_pool(c), *made;
	share_channel *ch;
	share_buffer *b;
	share_watch *w;

	check_eq(share_alloc(p, 1, NULL, &b), SHARE_EQUOTA);
	check_eq(share_lookup(c, "named", SHARE_RDONLY, 0, NULL, &b), SHARE_EQUOTA);
	check_eq(share_lookup(c, "nothing", SHARE_RDONLY, 1000, NULL, &b), SHARE_EQUOTA);
	check_eq(share_watch_names(c, "na", hear, NULL, &w), SHARE_EQUOTA);
	pool.kind = "host";
	check_eq(share_pool_create(c, "one more", &pool, &made), SHARE_EQUOTA);
	check_eq(share_channel_open(c, "one more", SHARE_CONSUMER, &channel, &ch), SHARE_EQUOTA);
	share_pool_close(p);
}

/* As soon as there is as little as there may be. */
static void expect_one(share_client *c)
{
	share_pool *p = open_pool(c);
	share_buffer *b, *another;

	check_ok(share_alloc(p, 1, NULL, &b));
	check_ok(share_publish(b, "one", NULL));
	check_eq(share_publish(b, "two", NULL), SHARE_EQUOTA);
	check_eq(share_alloc(p, 1, NULL, &another), SHARE_EQUOTA);
	check_ok(share_unpublish(c, "one"));
	share_release(b, NULL);
	share_pool_close(p);
}

Test(recorded, by_versions_before_beyond_each_limit)
{
	static const char file[] = JOURNALS "/0.1.0-2.json";
	json_t *recording = json_load_file(file, 0, NULL);
	int fd = mkostemp(recorded, O_CLOEXEC);
	int64_t names;
	share_client *c;

	check(recording && fd >= 0);
	write_with_limits(file, recorded);
	begin_from(recorded);
	check_eq(broker_said("refused:"), 0);
	expect_all_there(file, recording);
	c = connect_as("new");
	expect_no_more(c);
	names = used_of(c, "names");
	check_ok(share_unpublish(c, "other"));
	check_eq(used_of(c, "names"), names - 1);
	close(stand_ins[0]);
	close(stand_ins[1]);
	until(used_of(c, "leases") <= 0 && used_of(c, "bytes") <= 0);
	expect_one(c);
	share_disconnect(c);
	broker_stop();
	json_decref(recording);
	close(fd);
	unlink(recorded);
}

/* ------------------------------------------------------------------------------------------- */

/* Numbers of types that there are no more. */
static bool is_without_records(int type)
{
	return type == 2 || type == 10 || type == 11 || type == 20;
}

static void expect_all_types(const json_t *recording)
{
	char type[16];

	for (int i = RECORD_NONE + 1; i < RECORD_TYPES; i++) {
		snprintf(type, sizeof(type), "%d", i);
		if (!json_object_get(json_object_get(recording, "records"), type) &&
		    !is_without_records(i))
			check_failed(__FILE__, __LINE__, "the scenario leaves no record of type %d",
				     i);
	}
}

static json_t *record(const char *path)
{
	share_client *looks_on;
	json_t *recording, *more, *there;
	json_error_t error;

	scenario_prepare();
	setenv(RECORD_TO_VARIABLE, path, 1);
	broker_use_program(RECORDED_BROKER);
	broker_start(SCENARIO_CONFIG);
	unsetenv(RECORD_TO_VARIABLE);
	looks_on = connect_as("looks on");
	more = scenario_play(looks_on);
	there = what_is_there();
	settle(looks_on,
	       s.clients ==
		   number_of(json_array_get(json_object_get(there, "status"), 0), "clients") - 1);
	scenario_end(looks_on);
	recording = json_load_file(path, 0, &error);
	check(recording && json_object_update(recording, more) == 0);
	json_object_set_new(recording, "there", there);
	check(json_dump_file(recording, path, JSON_INDENT(1)) == 0);
	json_decref(more);
	scenario_done();
	share_disconnect(looks_on);
	broker_stop();
	return recording;
}

Test(recorded, by_this_version)
{
	const char *keep = getenv("SHARE_RECORD_JOURNAL");
	int fd = keep ? -1 : mkostemp(recorded, O_CLOEXEC);
	json_t *recording = record(keep ? keep : recorded);

	expect_all_types(recording);
	expect_to_go_on(keep ? keep : recorded);
	json_decref(recording);
	if (!keep) {
		close(fd);
		unlink(recorded);
	}
}
