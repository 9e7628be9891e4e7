/* SPDX-License-Identifier: MIT */

/*
 * Values as people read them. Integers are 64 bits without a sign in the broker and with one in its
 * JSON; here they get their meaning back. Knows no report.
 */

#include <inttypes.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
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

/* As configurations have them. A fraction says that it is rounded. */
char *show_size(const json_t *row, const char *key, bool exact)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double rounded;
	uint64_t bytes;
	size_t unit = 0;

	if (exact || !get_number(row, key, &bytes))
		return show_count(row, key, exact);
	/* up to what would be rounded to 1024.0 of the unit */
	for (rounded = (double)bytes; rounded >= 1023.95; rounded /= 1024)
		unit++;
	if (bytes % (UINT64_C(1) << unit * 10) == 0)
		return show_format("%" PRIu64 "%s", bytes >> unit * 10, units[unit]);
	return show_format("%.1f%s", rounded, units[unit]);
}

char *show_user(const json_t *row, const char *key, bool exact)
{
	/* rows of one user come together, and asking can be slow */
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
