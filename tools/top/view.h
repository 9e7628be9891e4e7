/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

#include "tools/snapshot.h"

/* What sharectl top shows, as lines of text. */

#define VIEW_WIDTH_MIN 80

/* The reports that it is made of: one after the other, so that they may not fit exactly. */
extern const struct snapshot_report view_reports[];
extern const size_t view_n_reports;

struct view_options {
	const char *sort_key; /* of clients */
	bool reverse;
	bool exact; /* sizes in bytes */
	int width;  /* of the terminal, at least VIEW_WIDTH_MIN */
};

/*
 * Prints the lines, each no wider than the terminal. A line that begins with a tab, which is not to
 * be shown, is a heading. @before: the snapshot of @seconds ago, for rates; NULL: there is none.
 * Puts the clients of @now in order. Returns 0 or a positive errno.
 */
int view_print(FILE *out, const json_t *now, const json_t *before, double seconds,
	       const struct view_options *options);
