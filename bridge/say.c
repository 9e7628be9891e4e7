/* SPDX-License-Identifier: MIT */

/*
 * The bridge's log. What peers and strangers cause is in it, too, so each line of the program
 * stands there a number of times a minute at most, and what is a control character is not printed
 * as such.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/clock.h"
#include "bridge/bridge.h"

#define LINES_MAX 100 /* a minute, of each kind */
#define KINDS_MAX 64  /* one for each call of say() with a text of its own */

/* Lines with the same format, within a minute. */
struct kind {
	const char *format;
	uint64_t minute;
	unsigned n;
};

static struct kind *find_kind(const char *format)
{
	static struct kind kinds[KINDS_MAX];
	size_t i = 0;

	while (i < KINDS_MAX - 1 && kinds[i].format && kinds[i].format != format)
		i++;
	kinds[i].format = format;
	return &kinds[i];
}

/* How many lines of this kind there were within this minute, with this one. */
static unsigned count(const char *format)
{
	struct kind *k = find_kind(format);
	uint64_t minute = clock_ms() / 60000;

	if (k->minute != minute) {
		if (k->n > LINES_MAX)
			fprintf(stderr,
				"share-bridge: %u more lines like the next one were left out\n",
				k->n - LINES_MAX);
		k->n = 0;
	}
	k->minute = minute;
	return ++k->n;
}

/* Those of UTF-8 that begin with 0xc2 as well. */
static bool is_control(const char *text)
{
	unsigned char c = (unsigned char)text[0], next = (unsigned char)text[1];

	return c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0);
}

bool say_has_control(const char *text)
{
	while (*text && !is_control(text))
		text++;
	return *text;
}

void say(const char *format, ...)
{
	unsigned n = count(format);
	char text[2048];
	va_list args;

	if (n > LINES_MAX)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "share-bridge: ");
	for (const char *at = text; *at; at++) {
		if (is_control(at))
			fprintf(stderr, "\\x%02x", (unsigned char)*at);
		else
			fputc(*at, stderr);
	}
	fprintf(stderr, "%s\n", n < LINES_MAX ? "" : " (more of this within a minute is left out)");
}
