/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>
#include <share/share.h>

/* What arrives object by object, on stdout: as a table, or as JSON. */

struct arguments;
struct table;

struct output {
	const struct arguments *arguments;
	struct table *table; /* NULL: print JSON */
	/* Of a command that is no report: prints an object for people. 0 or a negative errno. */
	int (*print)(const char *json, bool exact);
	size_t rows;
	json_t *sorted; /* rows that wait for all others; NULL: print each as it comes */
};

/* Prints an array, one object in each line. After an error the array is not closed, so that nobody
 * takes the part for the whole. 0 or negative errno. */
int show_json(struct output *o, const char *json);
void show_json_end(const struct output *o);

/* Shows the report that was asked for. 0, an error of libshare, or a positive errno. */
int show_report(const struct arguments *a, share_client *client);
