/* SPDX-License-Identifier: MIT */

/* Reports, a page at a time, handed on object by object; and what an operator has the broker do. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/channel.h>

#include "libshare/client/inspect.h"
#include "libshare/client/rpc.h"
#include "libshare/program/struct.h"

/* Each row ends with a line feed, which becomes its NUL. */
static int each_row(const struct wire_bytes *rows, int (*each)(const char *json, void *data),
		    void *data)
{
	char *copy, *row, *end;
	int r = 0;

	if (rows->size == 0)
		return 0;
	copy = malloc(rows->size + 1);
	if (!copy)
		return fail_system(-ENOMEM, "reading a report");
	memcpy(copy, rows->data, rows->size);
	copy[rows->size] = '\0';
	for (row = copy; r == 0 && (end = strchr(row, '\n')); row = end + 1) {
		*end = '\0';
		r = each(row, data);
	}
	free(copy);
	return r;
}

int inspect(share_client *c, const char *what, const char *prefix,
	    int (*each)(const char *json, void *data), void *data)
{
	struct wire_message m = {.type = WIRE_QUERY};
	char cursor[512];
	uint32_t cursor_size = 0;
	int r;

	if (strlen(what) > 31 || strlen(prefix) > SHARE_NAME_MAX)
		return fail(SHARE_EINVAL, "no report or name is called that");
	m.query.what = wire_text(what);
	m.query.prefix = wire_text(prefix);
	do {
		_cleanup_reply_ struct reply reply = {.packet = NULL};

		m.query.cursor = (struct wire_bytes){cursor, cursor_size};
		r = rpc(c, &m, &reply);
		if (r != 0)
			return r;
		cursor_size = reply.m.report.cursor.size;
		if (cursor_size)
			memcpy(cursor, reply.m.report.cursor.data, cursor_size);
		r = each_row(&reply.m.report.rows, each, data);
	} while (r == 0 && cursor_size > 0);
	return r;
}

int share_inspect(share_client *c, const char *what, int (*each)(const char *json, void *data),
		  void *data)
{
	HAZARDS;
	int r = client_resolve(&c);

	if (r == 0 && (!what || !each))
		r = fail(SHARE_EINVAL, "report or callback is NULL");
	return r != 0 ? r : inspect(c, what, "", each, data);
}

/* "" in the place of NULL. */
static int read_text(const char *text, struct wire_bytes *out)
{
	*out = (struct wire_bytes){text, text ? (uint32_t)strnlen(text, SHARE_NAME_MAX + 1) : 0};
	if (out->size <= SHARE_NAME_MAX)
		return 0;
	return fail(SHARE_EINVAL, "a name has at most %d bytes", SHARE_NAME_MAX);
}

/* @c is a handle. */
static int drop(share_client *c, enum wire_dropped what, uint64_t id, const char *channel)
{
	struct wire_message m = {.type = WIRE_DROP};
	int r = client_resolve(&c);

	if (r == 0)
		r = read_text(channel, &m.drop.channel);
	if (r != 0)
		return r;
	m.drop.what = what;
	m.drop.id = id;
	return rpc(c, &m, NULL);
}

int share_revoke_id(share_client *c, uint64_t token)
{
	HAZARDS;
	return drop(c, WIRE_DROP_TOKEN, token, NULL);
}

int share_drop_client(share_client *c, uint64_t client)
{
	HAZARDS;
	return drop(c, WIRE_DROP_CLIENT, client, NULL);
}

int share_end_channel(share_client *c, const char *name)
{
	HAZARDS;
	return drop(c, WIRE_DROP_MESSAGES, 0, name);
}

int share_monitor(share_client *c, const share_monitor_options *options, int timeout_ms,
		  int (*each)(const char *json, void *data), void *data)
{
	HAZARDS;
	share_monitor_options o;
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	struct wire_message m = {.type = WIRE_MONITOR};
	int r = client_resolve(&c);

	if (r == 0)
		r = struct_in(share_monitor_options, &o, options);
	if (r == 0 && (!each || timeout_ms < -1))
		r = fail(SHARE_EINVAL, "the callback is NULL, or %d is no time limit", timeout_ms);
	if (r == 0)
		r = read_text(o.pool, &m.monitor.pool);
	if (r == 0)
		r = read_text(o.prefix, &m.monitor.prefix);
	if (r != 0)
		return r;
	m.monitor.timeout = timeout_ms;
	m.monitor.flags = o.flags;
	m.monitor.uid = o.uid;
	client_ref(c);
	r = rpc(c, &m, &reply);
	if (r == SHARE_ETIMEDOUT && !client_is_lost(c))
		r = 0;
	else if (r == 0)
		r = each_row(&reply.m.report.rows, each, data);
	client_unref(c);
	return r;
}

/* @c is a handle. */
static int ask_for_rows(share_client *c, enum wire_type type,
			int (*each)(const char *json, void *data), void *data)
{
	_cleanup_reply_ struct reply reply = {.packet = NULL};
	struct wire_message m = {.type = type};
	int r = client_resolve(&c);

	if (r == 0)
		r = rpc(c, &m, &reply);
	return r != 0 || !each ? r : each_row(&reply.m.report.rows, each, data);
}

int share_upgrade(share_client *c, int (*each)(const char *json, void *data), void *data)
{
	HAZARDS;
	return ask_for_rows(c, WIRE_UPGRADE, each, data);
}

int share_reload(share_client *c, int (*each)(const char *json, void *data), void *data)
{
	HAZARDS;
	return ask_for_rows(c, WIRE_RELOAD, each, data);
}
