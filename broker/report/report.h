/* SPDX-License-Identifier: MIT */
#ifndef BROKER_REPORT_REPORT_H
#define BROKER_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* What only reports need of each other: pages, and what stands in a row. */

struct client;
struct pool;
struct request;

#define REPORT_ROWS_MAX    60000 /* bytes */
#define REPORT_ROWS_ENOUGH 512   /* so that a page takes no longer than other requests */
#define REPORT_SCANNED_MAX 4096  /* objects a page */

struct page {
	struct request *r;
	size_t size;
	size_t enough; /* bytes, beyond which another page begins */
	char cursor[512];
	size_t cursor_size;
	struct wire_bytes passed_over; /* up to there nothing was shown: to be gone on with */
	bool failed; /* no memory for a row: better no page than one with a hole */
	char rows[REPORT_ROWS_MAX + 1];
};

/* False when it does not fit: the page is full. Consumes @row; NULL: no memory. */
bool report_add(struct page *p, json_t *row);

/* Where the next page goes on, and where this one does. */
void report_set_cursor(struct page *p, uint64_t next);
uint64_t report_cursor(const struct request *r);

/* JSON's integers here are signed; beyond are only limits that mean "none". */
json_int_t report_integer(uint64_t value);
/* Hexadecimal strings: identifiers have 64 bits, many readers of JSON only 53. */
json_t *report_identifier(uint64_t id);
json_t *report_text(const char *s);

bool report_shows_pool(const struct request *r, const struct pool *p);
bool report_shows_client(const struct request *r, const struct client *c);

/* report.c */
void report_status(struct page *p);
void report_clients(struct page *p);
void report_channels(struct page *p);
/* memory.c */
void report_pools(struct page *p);
void report_segments(struct page *p);
void report_buffers(struct page *p);
void report_names(struct page *p);
void report_tokens(struct page *p);
/* users.c */
void report_users(struct page *p);
/* devices.c */
void report_devices(struct page *p);
void report_events(struct page *p);

#endif
