/* SPDX-License-Identifier: MIT */

/*
 * Reports are taken one after the other, each as it is while it is read. So numbers of different
 * reports may not fit together exactly; what is shown of them must not depend on that.
 */

#include <errno.h>
#include <stdbool.h>

#include <share/admin.h>

#include "tools/snapshot.h"

struct reading {
	json_t *rows;
	size_t rows_max;
	bool left_out;
};

/* Ends a report that is long enough. Any positive number does that; this one is told from an errno,
 * which is small. */
#define ENOUGH 100000

static int on_row(const char *json, void *data)
{
	struct reading *reading = data;

	if (reading->rows_max > 0 && json_array_size(reading->rows) == reading->rows_max) {
		reading->left_out = true;
		return ENOUGH;
	}
	/* a broker that sends what is no JSON, or no memory */
	return json_array_append_new(reading->rows, json_loads(json, 0, NULL)) == 0 ? 0 : EPROTO;
}

int snapshot_rows(share_client *client, const char *report, json_t **out)
{
	struct reading reading = {.rows = json_array()};
	int r = share_inspect(client, report, on_row, &reading);

	*out = reading.rows;
	return r;
}

static int take_one(share_client *client, const struct snapshot_report *which, json_t *out,
		    json_t *left_out)
{
	struct reading reading = {json_array(), which->rows_max, false};
	int r = share_inspect(client, which->name, on_row, &reading);

	if (json_object_set_new(out, which->name, reading.rows) != 0)
		return ENOMEM;
	if (reading.left_out && json_array_append_new(left_out, json_string(which->name)) != 0)
		return ENOMEM;
	return r == ENOUGH ? 0 : r;
}

int snapshot_take(share_client *client, const struct snapshot_report *which, size_t n, json_t **out)
{
	json_t *all = json_object(), *left_out = json_array();
	int r = json_object_set_new(all, "left_out", left_out) == 0 ? 0 : ENOMEM;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = take_one(client, &which[i], all, left_out);
	if (r == 0)
		*out = all;
	else
		json_decref(all);
	return r;
}
