/* SPDX-License-Identifier: MIT */

/* Reports of the broker, read with jansson rather than with the library's own eyes. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <share/admin.h>
#include <share/channel.h>

#include "tests/harness/status.h"

static int collect(const char *json, void *data)
{
	json_error_t error;
	json_t *row = json_loads(json, 0, &error);

	if (!row)
		check_failed(__FILE__, __LINE__, "a report has a row that is no JSON (%s): %s",
			     error.text, json);
	json_array_append_new(data, row);
	return 0;
}

json_t *report(share_client *c, const char *what)
{
	json_t *rows = json_array();

	check_ok(share_inspect(c, what, collect, rows));
	return rows;
}

int64_t number_of(const json_t *row, const char *key)
{
	const json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		check_failed(__FILE__, __LINE__, "a report lacks the number \"%s\"", key);
	return json_integer_value(value);
}

void status_read(share_client *c, struct status *out)
{
	json_t *rows = report(c, "status");
	const json_t *row = json_array_get(rows, 0);

	*out = (struct status){
	    .clients = number_of(row, "clients"),
	    .quarantined = number_of(row, "quarantined"),
	    .pools = number_of(row, "pools"),
	    .segments = number_of(row, "segments"),
	    .segment_bytes = number_of(row, "segment_bytes"),
	    .buffers = number_of(row, "buffers"),
	    .buffer_bytes = number_of(row, "buffer_bytes"),
	    .leases = number_of(row, "leases"),
	    .names = number_of(row, "names"),
	    .tokens = number_of(row, "tokens"),
	    .agents = number_of(row, "agents"),
	    .dropped = number_of(row, "dropped"),
	    .connections = number_of(row, "connections"),
	    .requests = number_of(row, "requests"),
	};
	json_decref(rows);
}

void status_show(const struct status *s)
{
	fprintf(stderr,
		"status: clients %" PRId64 ", quarantined %" PRId64 ", pools %" PRId64
		", segments %" PRId64 ", segment_bytes %" PRId64 ", buffers %" PRId64
		", buffer_bytes %" PRId64 ", leases %" PRId64 ", names %" PRId64 ", tokens %" PRId64
		", dropped %" PRId64 "\n",
		s->clients, s->quarantined, s->pools, s->segments, s->segment_bytes, s->buffers,
		s->buffer_bytes, s->leases, s->names, s->tokens, s->dropped);
}

json_t *row_where(json_t *rows, const char *key, int64_t value)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row)
		if (number_of(row, key) == value)
			return row;
	return NULL;
}

json_t *row_named(json_t *rows, const char *key, const char *value)
{
	json_t *row;
	size_t i;

	json_array_foreach (rows, i, row) {
		const char *is = json_string_value(json_object_get(row, key));

		if (is && strcmp(is, value) == 0)
			return row;
	}
	return NULL;
}

void client_state(share_client *c, const char *label, char *out, size_t size)
{
	json_t *rows = report(c, "clients");
	const json_t *row = row_named(rows, "label", label);

	snprintf(out, size, "%s", row ? json_string_value(json_object_get(row, "state")) : "");
	json_decref(rows);
}

bool client_state_is(share_client *c, const char *label, const char *state)
{
	char is[32];

	client_state(c, label, is, sizeof(is));
	return strcmp(is, state) == 0;
}

int64_t used_of(share_client *c, const char *resource)
{
	json_t *rows = report(c, "users"), *row;
	int64_t used = 0;
	size_t i;

	json_array_foreach (rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "resource")), resource) == 0)
			used += number_of(row, "used");
	json_decref(rows);
	return used;
}

int64_t used_by(share_client *c, int64_t uid, const char *resource)
{
	json_t *rows = report(c, "users"), *row;
	int64_t used = -1, before = 0;
	size_t i;

	json_array_foreach (rows, i, row) {
		check(number_of(row, "uid") >= before);
		before = number_of(row, "uid");
		if (before == uid &&
		    strcmp(json_string_value(json_object_get(row, "resource")), resource) == 0)
			used = number_of(row, "used");
	}
	json_decref(rows);
	return used;
}

static int end_channel(const char *json, void *data)
{
	json_t *row = json_loads(json, 0, NULL);

	/* most have no messages that nobody has received, and are gone by now */
	share_end_channel(data, json_string_value(json_object_get(row, "channel")));
	json_decref(row);
	return 0;
}

void end_messages(share_client *c)
{
	check_ok(share_inspect(c, "channels", end_channel, c));
}
