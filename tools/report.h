/* SPDX-License-Identifier: MIT */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdio.h>

/* The reports of a broker, as share_inspect() has them, and how a terminal gets them. */

struct report;

struct report_options {
	bool exact;    /* sizes in bytes */
	bool headings; /* above columns */
};

/* A line for each, for people. */
void report_list(FILE *out);
/* NULL when there is none of that name. */
const struct report *report_find(const char *name);
/* What share_inspect() calls it. */
const char *report_name(const struct report *r);
/* Whether it is one object, rather than any number of rows. */
bool report_is_single(const struct report *r);

/* A table, filled row by row and printed when the widths of its columns are known. */
struct table;

/* NULL when memory is out. */
struct table *table_new(const struct report *r, const struct report_options *options);
/* A row in JSON. Negative errno: -EPROTO when it is none, -ENOMEM. */
int table_add(struct table *t, const char *json);
/* In front of what a single object says. 0 or -ENOMEM. */
int table_add_line(struct table *t, const char *key, const char *value);
/* To stdout, as wide as its terminal, or as wide as it gets. A table without rows prints nothing.
 * 0 or negative errno. */
int table_print(struct table *t);
/* NULL is fine. Returns NULL. */
struct table *table_free(struct table *t);

#endif
