/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <argp.h>
#include <share/admin.h>
#include <share/share.h>

/* What happens at a broker, a line each, as it happens. */

struct watch_options {
	share_monitor_options only;
	uint64_t count; /* lines; 0: no limit */
	double seconds; /* 0: no limit */
	bool any;       /* one of these was given, but for the time */
};

/* Reads the options that only this command has into a struct watch_options. */
extern const struct argp watch_argp;

/* Prints until that many lines are printed, that much time has passed, or an error: one of libshare
 * or a positive errno. Else 0. */
int watch_run(share_client *client, const struct watch_options *options, bool headings, bool exact,
	      bool json);
