/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <share/share.h>

/* Who uses the memory of a broker, and how channels run, drawn again and again. */

struct top_options {
	const char *sort; /* the heading of a column of clients */
	bool reverse;
	bool exact;         /* sizes in bytes */
	bool json;          /* print what is shown as one JSON object, once */
	bool once;          /* print text, once */
	int64_t timeout_ms; /* of the connection, for another one when it was lost */
};

/* The column by which clients are sorted when nobody says another. */
#define TOP_SORT "BYTES"

/* Returns 0 when the user ends it; an error of libshare; or a positive errno: ENOTTY when it is to
 * draw and there is no terminal. */
int top_run(share_client *client, const struct top_options *options);
