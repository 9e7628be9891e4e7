/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* What only reports need of each other: pages, and what is in a row. */

struct pool;
struct request;

#define REPORT_ROWS_MAX 60000 /* bytes */
/* bytes, so that a page takes no longer than other requests */
#define REPORT_ROWS_ENOUGH 512
#define REPORT_SCANNED_MAX 4096 /* objects that are looked at for a page */

struct page {
	struct request *r;
	size_t size;
	size_t enough; /* bytes, beyond which another page begins */
	char cursor[512];
	size_t cursor_size;
	struct wire_bytes passed_over; /* nothing was shown up to there, where it goes on */
	/* There was no memory for a row: no page is better than one with a hole. */
	bool failed;
	char rows[REPORT_ROWS_MAX + 1];
};

/* Makes an empty page, to answer @r with. */
void report_begin(struct page *p, struct request *r, size_t enough);
/* Answers the request with the page. False, with an error, if there was no memory for it. */
bool report_end(struct page *p);

/* Adds a row, which it consumes; NULL: there was no memory for it. False when it does not fit: the
 * page is full. */
bool report_add(struct page *p, json_t *row);
/* The same. If the page is full, the next one begins with this cursor. */
bool report_add_at(struct page *p, uint64_t cursor, json_t *row);

/* Sets where the next page goes on, and returns where this one does. */
void report_set_cursor(struct page *p, uint64_t next);
uint64_t report_cursor(const struct request *r);

/* Makes a number for JSON. Integers are signed there; only limits that mean "none" are beyond. */
json_int_t report_integer(uint64_t value);
/* Makes a hexadecimal string: identifiers have 64 bits, and many readers of JSON only 53. */
json_t *report_identifier(uint64_t id);
json_t *report_text(const char *s);

bool report_shows_pool(const struct request *r, const struct pool *p);

/* All reports, by the names that sharectl knows them by: report_NAME() adds rows to a page. */
#define REPORTS(REPORT)  \
	REPORT(status)   \
	REPORT(pools)    \
	REPORT(segments) \
	REPORT(clients)  \
	REPORT(buffers)  \
	REPORT(leases)   \
	REPORT(names)    \
	REPORT(tokens)   \
	REPORT(devices)  \
	REPORT(events)   \
	REPORT(channels) \
	REPORT(users)    \
	REPORT(requests) \
	REPORT(agents)

#define REPORT_DECLARATION(name) void report_##name(struct page *p);
REPORTS(REPORT_DECLARATION)
#undef REPORT_DECLARATION
