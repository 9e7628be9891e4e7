/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include <jansson.h>
#include <share/share.h>

/* Several reports of a broker together. */

struct snapshot_report {
	const char *name;
	size_t rows_max; /* the rest is left out; 0: there is no limit */
};

/* Puts all rows of a report into an array for json_decref(). Returns 0 or an error, as below. */
int snapshot_rows(share_client *client, const char *report, json_t **out);

/*
 * Asks for the @n reports @which, one after the other. Returns 0 and an object for json_decref(),
 * which has an array of rows for each report, and in "left_out" the names of the reports that have
 * more rows. Or returns an error (SHARE_E...), or a positive errno; share_error_detail() has more
 * about the former.
 */
int snapshot_take(share_client *client, const struct snapshot_report *which, size_t n,
		  json_t **out);
