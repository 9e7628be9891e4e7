/* SPDX-License-Identifier: MIT */

/*
 * Values of reports as people read them. The broker has integers of 64 bits without a sign, and
 * JSON has them with a sign; they are converted back here. This file must not know any table.
 */

#include <inttypes.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tools/value.h"

char *show_format(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	return n < 0 ? NULL : text;
}

static char *unknown(void)
{
	return strdup("-");
}

static bool get_number(const json_t *row, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(row, key);

	*out = (uint64_t)json_integer_value(value);
	return json_is_integer(value);
}

char *show_text(const json_t *row, const char *key, bool exact)
{
	const char *text = json_string_value(json_object_get(row, key));

	(void)exact;
	return text ? strdup(text) : unknown();
}

char *show_list(const json_t *list, void (*put)(FILE *out, const json_t *each))
{
	char *text = NULL;
	json_t *each;
	size_t size, i;
	FILE *out;

	if (json_array_size(list) == 0)
		return strdup("-");
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	json_array_foreach (list, i, each) {
		fputs(i ? " " : "", out);
		put(out, each);
	}
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

char *show_count(const json_t *row, const char *key, bool exact)
{
	uint64_t n;

	(void)exact;
	return get_number(row, key, &n) ? show_format("%" PRIu64, n) : unknown();
}

char *show_hex(const json_t *row, const char *key, bool exact)
{
	uint64_t n;

	(void)exact;
	return get_number(row, key, &n) ? show_format("0x%" PRIx64, n) : unknown();
}

char *show_yes_no(const json_t *row, const char *key, bool exact)
{
	const json_t *value = json_object_get(row, key);

	(void)exact;
	return json_is_boolean(value) ? strdup(json_is_true(value) ? "yes" : "no") : unknown();
}

/* Shows a size as configurations write it. If it has a fraction, it is rounded. */
char *show_size(const json_t *row, const char *key, bool exact)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double rounded;
	uint64_t bytes;
	size_t unit = 0;

	if (exact || !get_number(row, key, &bytes))
		return show_count(row, key, exact);
	/* A value from 1023.95 on would be rounded to 1024.0, so it is shown in the next unit. */
	for (rounded = (double)bytes; rounded >= 1023.95; rounded /= 1024)
		unit++;
	if (bytes % (UINT64_C(1) << unit * 10) == 0)
		return show_format("%" PRIu64 "%s", bytes >> unit * 10, units[unit]);
	return show_format("%.1f%s", rounded, units[unit]);
}

char *show_user(const json_t *row, const char *key, bool exact)
{
	/* The last user is remembered, because rows of the same user follow each other and
	 * getpwuid() can be slow. */
	static struct {
		bool known;
		uint64_t uid;
		char name[64];
	} last;
	const struct passwd *user;
	uint64_t uid;

	if (!get_number(row, key, &uid))
		return unknown();
	if (!last.known || last.uid != uid) {
		user = getpwuid((uid_t)uid);
		if (!user || strlen(user->pw_name) >= sizeof(last.name))
			return show_count(row, key, exact);
		strcpy(last.name, user->pw_name);
		last.uid = uid;
		last.known = true;
	}
	return strdup(last.name);
}

char *show_time(const json_t *row, const char *key, bool exact)
{
	uint64_t ms, seconds;

	(void)exact;
	if (!get_number(row, key, &ms))
		return unknown();
	seconds = ms / 1000;
	return show_format("%" PRIu64 "d %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64, seconds / 86400,
			   seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
}

char *show_any(const json_t *row, const char *key, bool exact)
{
	const json_t *value = json_object_get(row, key);

	if (!value || json_is_string(value))
		return show_text(row, key, exact);
	return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* ------------------------------------------------------------------------------------------- */
/* Values that only one column has                                                             */

char *show_pool_state(const json_t *row, const char *key, bool exact)
{
	(void)key, (void)exact;
	if (json_is_true(json_object_get(row, "destroyed")))
		return strdup("destroyed");
	return strdup(json_is_true(json_object_get(row, "persistent")) ? "persistent"
								       : "temporary");
}

static void put_holder(FILE *out, const json_t *holder)
{
	char *pid = show_count(holder, "pid", true);
	char *mode = show_text(holder, "mode", true);

	fprintf(out, "%s:%s", pid ? pid : "-", mode ? mode : "-");
	free(pid);
	free(mode);
}

/* Shows processes and what they may do: "4711:rw 4712:ro". The broker lists only some, but counts
 * all. */
char *show_holders(const json_t *row, const char *key, bool exact)
{
	const json_t *list = json_object_get(row, key);
	json_int_t all = json_integer_value(json_object_get(row, "leases"));
	json_int_t listed = (json_int_t)json_array_size(list);
	char *some = show_list(list, put_holder), *text;

	(void)exact;
	if (!some || listed == 0 || all <= listed)
		return some;
	text = show_format("%s +%" JSON_INTEGER_FORMAT, some, all - listed);
	free(some);
	return text;
}

/* Of the messages in flight: those that somebody has yet to do something with, and who most. */
static void show_awaited(FILE *out, const json_t *producer)
{
	json_int_t n = json_integer_value(json_object_get(producer, "awaited"));
	const json_t *pid = json_object_get(producer, "awaits");

	if (n == 0)
		return;
	fprintf(out, ", %" JSON_INTEGER_FORMAT " awaited", n);
	if (pid)
		fprintf(out, " from %" JSON_INTEGER_FORMAT, json_integer_value(pid));
}

/* Shows the counts that are not zero: "(6 in flight, 2 dropped)"; nothing if the broker sends no
 * counts. */
static void show_progress(FILE *out, const json_t *member, bool producer)
{
	static const struct {
		const char *key, *text;
	} counts[] = {
	    {"in_flight", "in flight"}, {"waiting", "waiting"},   {"held", "held"},
	    {"lost", "lost"},           {"dropped", "dropped"},   {"redelivered", "redelivered"},
	    {"set_aside", "set aside"}, {"rejected", "rejected"},
	};
	json_int_t left_behind = json_integer_value(json_object_get(member, "left_behind"));
	const char *before = "(";

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		json_int_t n = json_integer_value(json_object_get(member, counts[i].key));

		if (n == 0)
			continue;
		fprintf(out, "%s%" JSON_INTEGER_FORMAT " %s", before, n, counts[i].text);
		before = ", ";
		if (i == 0)
			show_awaited(out, member);
	}
	if (left_behind != 0 && producer)
		fprintf(out, "%s%" JSON_INTEGER_FORMAT " left behind", before, left_behind);
	else if (left_behind != 0)
		fprintf(out, "%sleft behind", before);
	if (left_behind != 0 || *before == ',')
		fputc(')', out);
}

static void put_member(FILE *out, const json_t *member)
{
	const char *role = json_string_value(json_object_get(member, "role"));
	const char *state = json_string_value(json_object_get(member, "state"));
	bool producer = role && *role == 'p';
	char *pid = show_count(member, "pid", true);

	fprintf(out, producer ? "%s>" : ">%s", pid ? pid : "-");
	show_progress(out, member, producer);
	if (!state || strcmp(state, "here") != 0)
		fprintf(out, ":%s", state ? state : "?");
	free(pid);
}

/* Shows who sends, who receives, and who has left: "4711>(3 in flight, 2 awaited from 4712)
 * >4712(2 waiting, 1 held) >4713:left". */
char *show_members(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_list(json_object_get(row, key), put_member);
}
