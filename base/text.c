/* SPDX-License-Identifier: MIT */
/*
 * Text that others wrote: names on the wire, keys and values of a configuration file.
 *
 * What is a name is decided here once, for pools as for buffers, so that whatever prints one (a
 * log, sharectl, a JSON reply) can do so without thinking about it. What is shown of other text
 * goes through text_printable(), for the same reason.
 *
 * Knows nothing of where a text came from or what it means.
 */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include <share/share.h>

/* Longer words get no suggestions: nobody misspells a key of ours in that many bytes. */
#define NEAREST_MAX 32

/* Reads one character. Returns its bytes, 0 if it is none. */
static size_t decode(const unsigned char *p, size_t size, uint32_t *out)
{
	/* By length: the marker of the first byte, and the first character that needs so many. */
	static const struct {
		unsigned char mask, marker;
		uint32_t least;
	} forms[] = {
	    {0x80, 0x00, 0},
	    {0xe0, 0xc0, 0x80},
	    {0xf0, 0xe0, 0x800},
	    {0xf8, 0xf0, 0x10000},
	};

	for (size_t length = 1; length <= 4; length++) {
		if ((p[0] & forms[length - 1].mask) != forms[length - 1].marker)
			continue;
		if (length > size)
			return 0;

		uint32_t c = p[0] & (unsigned char)~forms[length - 1].mask;
		for (size_t i = 1; i < length; i++) {
			if ((p[i] & 0xc0) != 0x80)
				return 0;
			c = c << 6 | (p[i] & 0x3f);
		}
		if (c < forms[length - 1].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
			return 0;
		*out = c;
		return length;
	}
	return 0;
}

/* Control characters; and those that nobody sees but that make a text look like another one: what
 * turns the direction of writing round, has no width, or ends a line or paragraph (U+202E in a name
 * shows "gnp.exe" as "exe.png"). */
static bool is_unseen(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {
	    {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},     {0x34f, 0x34f},
	    {0x61c, 0x61c},     {0x115f, 0x1160},   {0x17b4, 0x17b5}, {0x180b, 0x180f},
	    {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f}, {0x3164, 0x3164},
	    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0}, {0xfff0, 0xfffb},
	    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
	};

	/* they are in order, so most characters of most names are looked up in the first two */
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (c <= ranges[i].last)
			return c >= ranges[i].first;
	return false;
}

bool text_is_utf8(const void *data, size_t size)
{
	const unsigned char *p = data;
	uint32_t c;

	for (size_t i = 0, n; i < size; i += n) {
		n = decode(p + i, size - i, &c);
		if (n == 0)
			return false;
	}
	return true;
}

bool text_is_valid_name(const void *data, size_t size)
{
	const unsigned char *p = data;
	uint32_t c;

	if (size < 1 || size > SHARE_NAME_MAX)
		return false;
	for (size_t i = 0, n; i < size; i += n) {
		n = decode(p + i, size - i, &c);
		if (n == 0 || is_unseen(c))
			return false;
	}
	return true;
}

char *text_printable(const char *text, char *out, size_t size)
{
	static const char dots[] = "...";
	const unsigned char *p = (const unsigned char *)text;
	size_t left = strlen(text);
	size_t used = 0;
	size_t fits = 0; /* where to cut so that the dots have room */

	while (left > 0) {
		uint32_t c;
		size_t n = decode(p, left, &c);
		char shown[12];
		size_t length = n;

		if (n == 0)
			length = (size_t)snprintf(shown, sizeof(shown), "\\x%02x", p[0]);
		else if (is_unseen(c))
			length = (size_t)snprintf(shown, sizeof(shown),
						  c > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)c);
		else
			memcpy(shown, p, n);

		if (used + length >= size) {
			memcpy(out + fits, dots, sizeof(dots));
			return out;
		}
		memcpy(out + used, shown, length);
		used += length;
		if (used + sizeof(dots) <= size)
			fits = used;
		p += n ? n : 1;
		left -= n ? n : 1;
	}
	out[used] = '\0';
	return out;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many characters have to be added, dropped, changed or swapped to make @b of @a. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t rows[3][NEAREST_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= n_b; j++)
		above[j] = before[j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			row[j] = least(above[j], row[j - 1]) + 1;
			row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
		size_t *oldest = before;
		before = above;
		above = row;
		row = oldest;
	}
	return above[n_b];
}

const char *text_nearest(const char *word, const char *const *names, size_t n_names)
{
	const char *nearest = NULL;
	size_t shortest = SIZE_MAX;
	size_t length = strlen(word);

	if (length > NEAREST_MAX)
		return NULL;
	for (size_t i = 0; i < n_names; i++) {
		size_t n = strlen(names[i]);

		if (n > NEAREST_MAX)
			continue;
		/* A third of it wrong is a slip; more is another word. */
		size_t d = distance(word, length, names[i], n);
		if (d <= (length > n ? length : n) / 3 && d < shortest) {
			shortest = d;
			nearest = names[i];
		}
	}
	return nearest;
}
