/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include <jansson.h>

#include "tests/harness/check.h"

/* What the broker says of itself, through the front door. */
struct status {
	int64_t clients, quarantined, pools, segments, segment_bytes, buffers, buffer_bytes, leases,
	    names, tokens, agents, dropped, connections, requests;
};
void status_read(share_client *c, struct status *out);

/* Polls until @condition, an expression over `s`, holds. */
#define settle(client, condition)                                                               \
	do {                                                                                    \
		struct deadline settle_ = deadline_in(HARNESS_LIMIT_MS);                        \
		struct status s;                                                                \
		while (status_read((client), &s), !(condition))                                 \
			if (!deadline_pause(&settle_)) {                                        \
				status_show(&s);                                                \
				check_failed(__FILE__, __LINE__, "never settled: " #condition); \
				break;                                                          \
			}                                                                       \
	} while (0)
void status_show(const struct status *s);

/* A report as an array of objects, for json_decref(). */
json_t *report(share_client *c, const char *what);
/* The row whose @key is @value, borrowed from @rows; NULL when there is none. */
json_t *row_where(json_t *rows, const char *key, int64_t value);
json_t *row_named(json_t *rows, const char *key, const char *value);
int64_t number_of(const json_t *row, const char *key);
/* How much of this resource ("waits", ...) all users have together. */
int64_t used_of(share_client *c, const char *resource);
/* How much a user has, as @c is told; -1: nothing is said of that. Users are listed in order. */
int64_t used_by(share_client *c, int64_t uid, const char *resource);
/* Those of queues that wait for a consumer though their producers are gone, as far as they are this
 * client's to end. */
void end_messages(share_client *c);
/* State of the first client of this label, as reports have it; "" when there is none. */
void client_state(share_client *c, const char *label, char *out, size_t size);
bool client_state_is(share_client *c, const char *label, const char *state);
