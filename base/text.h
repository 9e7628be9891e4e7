/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Strict UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. Empty text is. */
bool text_is_utf8(const void *data, size_t size);

/** What names of pools and buffers have to be: 1 to SHARE_NAME_MAX bytes of UTF-8 without control
 * characters (C0, DEL, C1). @data needs no NUL at its end, and must not count one. */
bool text_is_valid_name(const void *data, size_t size);

/**
 * Copies @text to @out so that it can be shown in a log or a terminal: control characters become
 * \u001b, bytes that are no UTF-8 become \xff, and what does not fit becomes "..." (never half a
 * character). @size must be at least 4. Returns @out.
 */
char *text_printable(const char *text, char *out, size_t size);

/** What follows a noun of which there are @n: "%u lease%s". */
static inline const char *text_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/** The one of @names that @word is most likely a misspelling of; NULL when none is close. */
const char *text_nearest(const char *word, const char *const *names, size_t n_names);
