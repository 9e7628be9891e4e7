/* SPDX-License-Identifier: MIT */
/*
 * Sizes as people write them: "64MiB", "1.5GiB", "512".
 *
 * Exact or refused. A limit that was rounded behind its author's back is one that somebody debugs
 * later, so there is no floating point here, and decimal units (MB) are not read as binary ones.
 *
 * Must not know what is measured, nor which sizes make sense for it.
 */
#include "base/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static const struct {
	const char *name;
	unsigned shift;
} units[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"", 0}};

#define N_UNITS (sizeof(units) / sizeof(units[0]))

#define DIGITS_MANY 6 /* too many to be taken in at a glance */

/* A fraction with more digits than the largest unit has bits is never a whole number of bytes:
 * each digit beyond the last zero takes one factor of two. */
#define FRACTION_MAX 40

/* 0.@digits * 2^@shift, by doubling in decimal: what is carried out are the bits of the result. */
static int scale_fraction(const char *digits, size_t n, unsigned shift, uint64_t *out)
{
	unsigned char work[FRACTION_MAX];
	uint64_t whole = 0;

	while (n > 0 && digits[n - 1] == '0')
		n--;
	if (n > sizeof(work))
		return SIZE_EINEXACT;
	for (size_t i = 0; i < n; i++)
		work[i] = (unsigned char)(digits[i] - '0');

	for (unsigned bit = 0; bit < shift; bit++) {
		unsigned carry = 0;

		for (size_t i = n; i-- > 0;) {
			unsigned doubled = work[i] * 2u + carry;
			work[i] = (unsigned char)(doubled % 10);
			carry = doubled / 10;
		}
		whole = whole << 1 | carry;
	}
	for (size_t i = 0; i < n; i++) {
		if (work[i] != 0)
			return SIZE_EINEXACT;
	}
	*out = whole;
	return 0;
}

static size_t count_digits(const char *text)
{
	size_t n = 0;

	while (isdigit((unsigned char)text[n]))
		n++;
	return n;
}

int size_parse(const char *text, uint64_t *out)
{
	size_t n_whole = count_digits(text);
	const char *whole = text, *fraction = text + n_whole;
	size_t n_fraction = 0;

	if (*fraction == '.') {
		fraction++;
		n_fraction = count_digits(fraction);
		if (n_fraction == 0)
			return SIZE_EINVALID;
	}
	if (n_whole == 0)
		return SIZE_EINVALID;

	const char *unit = fraction + n_fraction;
	size_t u = 0;
	if (unit[0] == ' ' && unit[1] != '\0')
		unit++;
	while (u < N_UNITS && strcmp(unit, units[u].name) != 0)
		u++;
	if (u == N_UNITS)
		return SIZE_EINVALID;

	uint64_t bytes = 0, rest;
	for (size_t i = 0; i < n_whole; i++) {
		if (__builtin_mul_overflow(bytes, UINT64_C(10), &bytes) ||
		    __builtin_add_overflow(bytes, (uint64_t)(whole[i] - '0'), &bytes))
			return SIZE_EOVERFLOW;
	}
	if (bytes > UINT64_MAX >> units[u].shift)
		return SIZE_EOVERFLOW;

	int r = scale_fraction(fraction, n_fraction, units[u].shift, &rest);
	if (r != 0)
		return r;
	*out = (bytes << units[u].shift) + rest; /* the rest is less than one unit */
	return 0;
}

char *size_format(uint64_t bytes, char out[static SIZE_TEXT_MAX])
{
	size_t u = 0;

	while (bytes == 0 ? units[u].shift > 0 : (bytes & ((UINT64_C(1) << units[u].shift) - 1)))
		u++;
	snprintf(out, SIZE_TEXT_MAX, "%" PRIu64 "%s", bytes >> units[u].shift, units[u].name);
	return out;
}

char *size_round(uint64_t bytes, char out[static SIZE_TEXT_MAX])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double rounded = (double)bytes;
	unsigned u = 0;

	/* up to what would be rounded to 1024.0 of the unit */
	for (; rounded >= 1023.95; rounded /= 1024)
		u++;
	if (bytes % (UINT64_C(1) << u * 10) == 0)
		snprintf(out, SIZE_TEXT_MAX, "%" PRIu64 "%s", bytes >> u * 10, names[u]);
	else
		snprintf(out, SIZE_TEXT_MAX, "%.1f%s", rounded, names[u]);
	return out;
}

char *size_exact(uint64_t bytes, char out[static SIZE_EXACT_MAX])
{
	char rounded[SIZE_TEXT_MAX];

	size_round(bytes, rounded);
	if (bytes >= KIB && !strchr(rounded, '.'))
		snprintf(out, SIZE_EXACT_MAX, "%s", rounded);
	else if (bytes < MIB)
		snprintf(out, SIZE_EXACT_MAX, "%" PRIu64 " byte%s", bytes, text_plural(bytes));
	else
		snprintf(out, SIZE_EXACT_MAX, "%" PRIu64 " bytes (%s)", bytes, rounded);
	return out;
}

char *size_tell(uint64_t bytes, char out[static SIZE_EXACT_MAX])
{
	char exact[SIZE_TEXT_MAX], rounded[SIZE_TEXT_MAX];

	size_format(bytes, exact);
	if (strspn(exact, "0123456789") < DIGITS_MANY)
		snprintf(out, SIZE_EXACT_MAX, "%s", exact);
	else
		snprintf(out, SIZE_EXACT_MAX, "%s (%s)", size_round(bytes, rounded), exact);
	return out;
}
