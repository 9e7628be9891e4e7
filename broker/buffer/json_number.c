/* SPDX-License-Identifier: MIT */

/*
 * The numbers of a JSON text: those that fit into 64 bits, or into a double if they have a fraction
 * or an exponent. Nothing is computed from the digits: they are compared as they are written.
 */

#include <string.h>

#include "broker/buffer/inside.h"

static bool is_digit(const struct check *c)
{
	return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

/* Integers of up to 19 digits are compared as they are written. */
static bool is_in_range(const unsigned char *digits, size_t n, bool negative)
{
	return n < 19 ||
	       (n == 19 &&
		memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", 19) <= 0);
}

/* Of a number with these digits, a point after the whole ones, and that exponent. The largest
 * double is 1.7976931348623157e308. */
static bool is_in_double(const unsigned char *text, const unsigned char *point,
			 const unsigned char *end, long exponent)
{
	static const char most[] = "17976931348623157";
	const unsigned char *first = text; /* digit that is not 0 */
	long power;                        /* of ten */

	while (first < end && (*first == '0' || *first == '.'))
		first++;
	if (first == end)
		return true;
	power = exponent + (first < point ? point - first - 1 : point - first);
	if (power != 308)
		return power < 308;
	for (size_t n = 0; n < 17 && first < end; first++) {
		if (*first == '.')
			continue;
		if (*first != (unsigned char)most[n])
			return *first < (unsigned char)most[n];
		n++;
	}
	return true;
}

static bool read_exponent(struct check *c, long *out)
{
	bool negative = false;

	*out = 0;
	c->at++;
	if (take(c, '-'))
		negative = true;
	else
		take(c, '+');
	if (!is_digit(c))
		return fail(c, "invalid number");
	for (; is_digit(c); c->at++)
		if (*out < 1000000)
			*out = *out * 10 + (*c->at - '0');
	if (negative)
		*out = -*out;
	return true;
}

bool json_number_read(struct check *c)
{
	bool negative = take(c, '-'), real = false;
	const unsigned char *digits = c->at, *point, *end;
	long exponent = 0;

	if (!is_digit(c))
		return fail(c, "a value is expected");
	if (!take(c, '0'))
		while (is_digit(c))
			c->at++;
	else if (is_digit(c))
		return fail(c, "a number begins with 0");
	point = c->at;
	if (take(c, '.')) {
		real = true;
		if (!is_digit(c))
			return fail(c, "invalid number");
		while (is_digit(c))
			c->at++;
	}
	end = c->at;
	if (c->at < c->end && (*c->at | 0x20) == 'e') {
		real = true;
		if (!read_exponent(c, &exponent))
			return false;
	}
	if (real ? is_in_double(digits, point, end, exponent)
		 : is_in_range(digits, (size_t)(end - digits), negative))
		return true;
	return fail(c, "a number is too large");
}
