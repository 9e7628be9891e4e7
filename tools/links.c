/* SPDX-License-Identifier: MIT */

/* The links of bridges, and what goes through them. */

#include "tools/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *show_microseconds(const json_t *row, const char *key, bool exact)
{
	json_int_t value = json_integer_value(json_object_get(row, key));

	(void)exact;
	return value > 0 ? show_format("%.1fms", (double)value / 1000) : strdup("-");
}

static void put_text(FILE *out, const json_t *row, const char *key)
{
	char *text = show_text(row, key, false);

	fputs(text ? text : "?", out);
	free(text);
}

/* "frames<5/8": a mirror, which can be sent five more messages of eight; "frames>": a source */
static void put_credits(FILE *out, const json_t *channel)
{
	const char *as = json_string_value(json_object_get(channel, "as"));

	put_text(out, channel, "channel");
	fprintf(out, "%c%lld/%lld", as && *as == 'm' ? '<' : '>',
		json_integer_value(json_object_get(channel, "credits")),
		json_integer_value(json_object_get(channel, "depth")));
}

char *show_credits(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_list(json_object_get(row, key), put_credits);
}

/* "detector<2": called here for workers over there, twice at this time */
static void put_calls(FILE *out, const json_t *service)
{
	const char *as = json_string_value(json_object_get(service, "as"));

	put_text(out, service, "service");
	fprintf(out, "%c%lld", as && *as == 'd' ? '<' : '>',
		json_integer_value(json_object_get(service, "calls")));
}

char *show_calls(const json_t *row, const char *key, bool exact)
{
	(void)exact;
	return show_list(json_object_get(row, key), put_calls);
}
