/* SPDX-License-Identifier: MIT */

/*
 * The reports of share_inspect(), which arrive object by object. As JSON each object is printed
 * when it arrives, so that a million buffers need no memory; a table needs all of them first, to
 * know the widths of its columns, and so does what is sorted.
 */

#include "tools/sharectl/show.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <share/admin.h>

#include "tools/order.h"
#include "tools/report.h"
#include "tools/sharectl/arguments.h"
#include "tools/sharectl/bridges.h"

static bool is_wanted(const struct arguments *a, const char *json)
{
	const char *name;
	json_t *row;
	bool wanted = true;

	if (!a->prefix && a->older_than <= 0)
		return true;
	row = json_loads(json, 0, NULL);
	name = json_string_value(json_object_get(row, "name"));
	if (a->prefix)
		wanted = name && strncmp(name, a->prefix, strlen(a->prefix)) == 0;
	if (a->older_than > 0)
		wanted &= json_number_value(json_object_get(row, "age_ms")) > a->older_than * 1000;
	json_decref(row);
	return wanted;
}

int show_json(struct output *o, const char *json)
{
	if (!o->arguments->report || o->arguments->report->columns)
		fputs(o->rows == 0 ? "[\n" : ",\n", stdout);
	return fputs(json, stdout) < 0 ? -errno : 0;
}

void show_json_end(const struct output *o)
{
	if (o->arguments->report && !o->arguments->report->columns)
		fputs("\n", stdout);
	else
		fputs(o->rows == 0 ? "[]\n" : "\n]\n", stdout);
}

static int show_row(struct output *o, const char *json)
{
	int r = o->table ? table_add(o->table, json) : show_json(o, json);

	o->rows++;
	return r;
}

static int show_sorted(struct output *o)
{
	const struct arguments *a = o->arguments;
	int r = order_rows(o->sorted, report_sort_key(a->report, a->sort), a->reverse);
	json_t *row;
	char *json;
	size_t i;

	json_array_foreach (o->sorted, i, row) {
		json = json_dumps(row, JSON_COMPACT);
		if (r == 0)
			r = json ? -show_row(o, json) : ENOMEM;
		free(json);
	}
	return r;
}

/* Returns a positive errno to end a report, since the errors of libshare are negative. */
static int on_row(const char *json, void *data)
{
	struct output *o = data;

	if (!is_wanted(o->arguments, json))
		return 0;
	if (o->sorted) /* a row that is no JSON is one that is missing, and not to be sorted */
		return json_array_append_new(o->sorted, json_loads(json, 0, NULL)) ? EPROTO : 0;
	return -show_row(o, json);
}

/* On stderr, as a program that reads the table is told by its exit code that nothing is missing. */
static void tell_of_nothing(const struct arguments *a)
{
	fprintf(stderr, "no %s", a->report->name);
	if (a->prefix)
		fprintf(stderr, " that start with '%s'", a->prefix);
	fputs(a->older_than > 0 ? " that are older\n" : "\n", stderr);
}

int show_report(const struct arguments *a, share_client *client)
{
	struct output o = {.arguments = a};
	int r = 0;

	if (!a->json) {
		o.table = table_new(a->report, &a->options);
		if (!o.table)
			return ENOMEM;
		if (!a->report->columns)
			r = -table_add_line(o.table, "address", share_address(client));
	}
	if (a->sort)
		o.sorted = json_array();
	if (r == 0 && strcmp(a->report->name, "bridges") == 0)
		r = bridges_each(client, on_row, &o);
	else if (r == 0)
		r = share_inspect(client, a->report->name, on_row, &o);
	if (r == 0 && o.sorted)
		r = show_sorted(&o);
	json_decref(o.sorted);
	if (r == 0 && o.table)
		r = -table_print(o.table);
	else if (r == 0)
		show_json_end(&o);
	if (r == 0 && o.table && o.rows == 0 && a->options.headings)
		tell_of_nothing(a);
	table_free(o.table);
	return r;
}
