/* SPDX-License-Identifier: MIT */

/*
 * sharectl watch: what the broker tells as it happens. Each line is written out at once, so that it
 * can be read through a pipe. A line says what has happened, by whom, and then what is known of it
 * as KEY=VALUE; it knows no list of what can happen, as the broker may be newer.
 */

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "tools/clock.h"
#include "tools/sharectl/watch.h"
#include "tools/value.h"

enum { OPTION_COUNT = 512, OPTION_NAME, OPTION_POOL, OPTION_USER };

static const struct argp_option all[] = {
    {NULL, 0, NULL, 0, "What watch shows, and for how long:", 1},
    {"count", OPTION_COUNT, "N", 0, "End after N lines", 0},
    {"name", OPTION_NAME, "PREFIX", 0, "Only names and channels that start so", 0},
    {"pool", OPTION_POOL, "POOL", 0, "Only what happens in POOL", 0},
    {"user", OPTION_USER, "USER", 0, "Only what USER does, a name or a number", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

/* A number that is not 0; else it says so and does not return. */
static uint64_t want_number(const char *text, uint64_t most, struct argp_state *state)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || number > most)
		argp_error(state, "'%s' is no number that can be meant", text);
	return number;
}

static uint32_t read_user(const char *text, struct argp_state *state)
{
	const struct passwd *user = getpwnam(text);

	if (user)
		return user->pw_uid;
	if (*text < '0' || *text > '9')
		argp_error(state, "there is no user '%s'", text);
	return (uint32_t)want_number(text, UINT32_MAX - 1, state);
}

static error_t parse_watch(int key, char *value, struct argp_state *state)
{
	struct watch_options *o = state->input;

	switch (key) {
	case OPTION_COUNT:
		o->count = want_number(value, UINT64_MAX, state);
		if (o->count == 0)
			argp_error(state, "no lines are none to wait for");
		break;
	case OPTION_NAME:
		o->only.prefix = value;
		break;
	case OPTION_POOL:
		o->only.pool = value;
		break;
	case OPTION_USER:
		o->only.flags |= SHARE_MONITOR_USER;
		o->only.uid = read_user(value, state);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	o->any = true;
	return 0;
}

const struct argp watch_argp = {all, parse_watch, NULL, NULL, NULL, NULL, NULL};

/* ------------------------------------------------------------------------------------------- */

/* So long is waited at a time, so that a broker which does not answer any more is noticed. */
#define SLICE_MS 5000

struct watched {
	uint64_t lines_left; /* 0: no limit */
	bool ended;
	bool headings, exact, json;
};

/* What users have written is in quotation marks, as JSON has it, where it could be taken for more
 * than one value. */
static char *show_one(const json_t *row, const char *key, bool exact)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_string(value) && strpbrk(json_string_value(value), " =\""))
		return json_dumps(value, JSON_ENCODE_ANY);
	return show_any(row, key, exact);
}

/* A text that is NULL is for want of memory. */
static void print_value(const json_t *row, const char *key, value_show *show, bool exact)
{
	char *text = show(row, key, exact);

	printf(" %s=%s", key, text ? text : "?");
	free(text);
}

static void print_column(const json_t *row, const char *key, int width, value_show *show)
{
	char *text = show(row, key, false);

	printf(" %-*s", width, text ? text : "?");
	free(text);
}

static void print_time(const json_t *row)
{
	json_int_t ms = json_integer_value(json_object_get(row, "time_ms"));
	time_t seconds = (time_t)(ms / 1000);
	struct tm local;
	char text[16] = "";

	if (localtime_r(&seconds, &local))
		strftime(text, sizeof(text), "%H:%M:%S", &local);
	printf("%s.%03d", text, (int)(ms % 1000));
}

static bool has_column(const char *key)
{
	static const char *const columns[] = {"action", "time_ms", "uid", "pid"};

	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		if (strcmp(columns[i], key) == 0)
			return true;
	return false;
}

static void print_text(const json_t *row, bool exact)
{
	const char *key;
	const json_t *value;

	print_time(row);
	print_column(row, "action", 12, show_text);
	print_column(row, "uid", 10, show_user);
	print_column(row, "pid", 7, show_count);
	json_object_foreach ((json_t *)(uintptr_t)row, key, value)
		if (!has_column(key))
			print_value(row, key,
				    strcmp(key, "size") == 0 ? show_size
				    : json_is_integer(value) ? show_count
							     : show_one,
				    exact);
	putchar('\n');
}

/* A positive errno ends what libshare does. */
static int on_watched_row(const char *json, void *data)
{
	struct watched *o = data;
	json_t *row = o->json ? NULL : json_loads(json, 0, NULL);

	if (o->headings)
		printf("%-12s %-12s %-10s %-7s %s\n", "TIME", "ACTION", "USER", "PID", "WHAT");
	o->headings = false;
	if (o->json)
		puts(json);
	else if (row)
		print_text(row, o->exact);
	json_decref(row);
	if (ferror(stdout))
		return errno ? errno : EIO;
	o->ended = o->lines_left == 1;
	o->lines_left -= o->lines_left > 0;
	return o->ended ? ECANCELED : 0;
}

/* In milliseconds, for share_monitor(), which may be asked again: 0 when it has passed. */
static int left_of(double end)
{
	double left = (end - clock_seconds()) * 1000;

	return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

int watch_run(share_client *client, const struct watch_options *options, bool headings, bool exact,
	      bool json)
{
	struct watched o = {.lines_left = options->count,
			    .headings = headings && !json,
			    .exact = exact,
			    .json = json};
	double end = options->seconds > 0 ? clock_seconds() + options->seconds : 0;
	share_monitor_options only = options->only;
	int left, r;

	only.size = sizeof(only);
	setvbuf(stdout, NULL, _IOLBF, 0);
	do {
		left = end > 0 ? left_of(end) : SLICE_MS;
		if (left > SLICE_MS)
			left = SLICE_MS;
		r = share_monitor(client, &only, left, on_watched_row, &o);
	} while (r == 0 && left != 0);
	return o.ended ? 0 : r;
}
