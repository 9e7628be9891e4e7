/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/report.h"
#include "tools/sharectl/watch.h"

/* What was asked of sharectl, by its command line. */

struct act;
struct command;

struct arguments {
	const char *socket;
	const struct report *report;
	const struct act *act; /* not NULL: end something instead */
	const char **words;    /* what to end, or the objects of the command */
	size_t n_words;
	bool yes;
	int *failed;                   /* how much of the command has failed and was told */
	int connected;                 /* 0, or why there is no client */
	const struct command *command; /* not NULL: do that instead */
	const char *prefix;            /* of names; NULL: show all */
	const char *sort;              /* the heading of a column; NULL: as the broker has them */
	bool reverse;
	bool once;          /* of top */
	double older_than;  /* of leases, in seconds; 0: show all */
	double timeout;     /* in seconds; 0: none was given */
	int64_t timeout_ms; /* for an answer of the broker */
	struct report_options options;
	struct watch_options watch;
	bool json;
};

/* Ends the program if nobody could do what they say, or if they ask for help. @a has room for as
 * many words as there are arguments. */
void arguments_parse(int argc, char **argv, struct arguments *a);
/* Whether it is this one of the commands that neither are reports nor end something. */
bool arguments_are_for(const struct arguments *a, const char *command);
