/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* The reports of a broker, as share_inspect() has them, and how they are shown on a terminal. */

struct column;

struct report {
	const char *name; /* by which share_inspect() knows it */
	const char *shows;
	const struct column *columns; /* NULL: it is one object, and not a number of rows */
	size_t n_columns;
};

struct report_options {
	bool exact;    /* sizes in bytes */
	bool headings; /* shown above columns */
};

/* Prints one line about each report. */
void report_list(FILE *out);
/* Returns NULL when there is no report of that name. */
const struct report *report_find(const char *name);
/* Returns the key by which rows are put in order that are sorted by that column, in upper or lower
 * case. NULL: there is no such column, or it has no order. */
const char *report_sort_key(const struct report *r, const char *heading);
/* Prints the columns that have an order in one line, without its end. */
void report_list_sortable(const struct report *r, FILE *out);

/* A table that is filled row by row, and printed when the widths of its columns are known. */
struct table;

/* Returns NULL when there is no memory. The caller frees it with table_free(). */
struct table *table_new(const struct report *r, const struct report_options *options);
/* Adds a row, which is a JSON object. Returns 0 or a negative errno: -EPROTO when it is no object,
 * -ENOMEM. */
int table_add(struct table *t, const char *json);
/* Adds a line before those of a single object. Returns 0 or -ENOMEM. */
int table_add_line(struct table *t, const char *key, const char *value);
/* Prints the table to stdout, as wide as its terminal allows; without a terminal, as wide as it is.
 * A table without rows prints nothing. Returns 0 or a negative errno. */
int table_print(struct table *t);
/* NULL does nothing. Returns NULL. */
struct table *table_free(struct table *t);
