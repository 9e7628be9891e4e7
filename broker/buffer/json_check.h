/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_JSON_CHECK_H
#define BROKER_BUFFER_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_CHECK_MAX 65536 /* bytes */

struct json_fault {
	unsigned line, column; /* from 1; the column counts bytes */
	const char *text;      /* static */
};

/*
 * Whether a text of at most JSON_CHECK_MAX bytes is one JSON object or array, nested no deeper than
 * @depth, that every reader understands alike: UTF-8, no key twice in an object, no NUL in a
 * string, integers of 64 bits, no number beyond a double. Takes no memory. For the broker's thread
 * alone.
 */
bool json_check(const char *text, size_t size, unsigned depth, struct json_fault *fault);

/*
 * The same in pieces: each looks at some @n bytes more. @takes: its memory, with a copy of @text.
 * NULL without memory, or when the text is too long. After JSON_CHECK_MORE there is another piece.
 */
struct json_check;
enum json_check_result { JSON_CHECK_DONE, JSON_CHECK_MORE, JSON_CHECK_FAULT };
struct json_check *json_check_new(const char *text, size_t size, unsigned depth, size_t *takes);
enum json_check_result json_check_some(struct json_check *j, size_t n, struct json_fault *fault);
const char *json_check_text(const struct json_check *j, size_t *size);
void json_check_free(struct json_check *j);

#endif
