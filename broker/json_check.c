/* SPDX-License-Identifier: MIT */

/*
 * Is this JSON? What jansson says of a text, without a tree: that takes it 3 to 15 milliseconds for
 * the 64 KiB that metadata may have, which everybody waits for, and this some hundred microseconds.
 * A pass over the bytes, with a stack of what is open, and a table of the keys seen so far. Keys
 * are compared by a hash that nobody outside can compute.
 */

#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "broker/json_check.h"
#include "broker/text.h"

#define DEPTH_MAX 64
/* A key takes five bytes ("":0,) and more: at most half of the table is ever used. */
#define KEYS_MAX 32768

struct check {
	const unsigned char *at, *end;
	const char *fault;
	size_t n_keys_max; /* a power of two */
	uint32_t n_objects;
	uint32_t open[DEPTH_MAX]; /* the number of an object; 0 for an array */
	unsigned depth, depth_max;
};

static uint64_t keys[KEYS_MAX]; /* 0: free */
static uint64_t seed[2];

static bool fail(struct check *c, const char *why)
{
	c->fault = why;
	return false;
}

static bool is_digit(const struct check *c)
{
	return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static void skip_space(struct check *c)
{
	while (c->at < c->end &&
	       (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
		c->at++;
}

static bool take(struct check *c, unsigned char byte)
{
	if (c->at == c->end || *c->at != byte)
		return false;
	c->at++;
	return true;
}

/* ------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t value)
{
	h = (h ^ value ^ seed[0]) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static bool read_hex(struct check *c, uint32_t *out)
{
	*out = 0;
	if (c->end - c->at < 4)
		return fail(c, "invalid escape");
	for (int i = 0; i < 4; i++) {
		unsigned char b = *c->at++;

		if (b >= '0' && b <= '9')
			b = (unsigned char)(b - '0');
		else if ((b | 0x20) >= 'a' && (b | 0x20) <= 'f')
			b = (unsigned char)((b | 0x20) - 'a' + 10);
		else
			return fail(c, "invalid escape");
		*out = *out << 4 | b;
	}
	return true;
}

/* After \u. Characters beyond the first 65536 are two of these. */
static bool read_unicode(struct check *c, uint32_t *out)
{
	uint32_t low;

	if (!read_hex(c, out))
		return false;
	if (*out == 0)
		return fail(c, "\\u0000 is not allowed");
	if (*out < 0xd800 || *out > 0xdfff)
		return true;
	if (*out > 0xdbff || !take(c, '\\') || !take(c, 'u') || !read_hex(c, &low) ||
	    low < 0xdc00 || low > 0xdfff)
		return fail(c, "half a character");
	*out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

/* So that a character is the same however it is written. */
static uint64_t mix_utf8(uint64_t h, uint32_t u)
{
	if (u < 0x80)
		return mix(h, u);
	if (u < 0x800)
		return mix(mix(h, 0xc0 | u >> 6), 0x80 | (u & 0x3f));
	if (u < 0x10000)
		return mix(mix(mix(h, 0xe0 | u >> 12), 0x80 | (u >> 6 & 0x3f)), 0x80 | (u & 0x3f));
	return mix(
	    mix(mix(mix(h, 0xf0 | u >> 18), 0x80 | (u >> 12 & 0x3f)), 0x80 | (u >> 6 & 0x3f)),
	    0x80 | (u & 0x3f));
}

static bool read_escape(struct check *c, uint64_t *hash)
{
	static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
	const char *which;
	uint32_t u;

	if (take(c, 'u')) {
		if (!read_unicode(c, &u))
			return false;
		*hash = mix_utf8(*hash, u);
		return true;
	}
	which = c->at < c->end && *c->at ? strchr(written, *c->at) : NULL;
	if (!which)
		return fail(c, "invalid escape");
	c->at++;
	*hash = mix(*hash, (unsigned char)meant[which - written]);
	return true;
}

static bool read_others(struct check *c, uint64_t *hash)
{
	const unsigned char *begin = c->at;

	while (c->at < c->end && *c->at >= 0x80)
		*hash = mix(*hash, *c->at++);
	if (text_is_utf8(begin, (size_t)(c->at - begin)))
		return true;
	c->at = begin;
	return fail(c, "no UTF-8");
}

/* After the quotation mark. @hash: NULL where nobody wants it, which is faster. */
static bool read_string(struct check *c, uint64_t *hash)
{
	uint64_t h = seed[1];

	while (c->at < c->end) {
		unsigned char b = *c->at;

		if (b < 0x20)
			return fail(c, "a control character in a string");
		if (b >= 0x80) {
			if (!read_others(c, &h))
				return false;
			continue;
		}
		c->at++;
		if (b == '"') {
			if (hash)
				*hash = h;
			return true;
		}
		if (b != '\\')
			h = hash ? mix(h, b) : 0;
		else if (!read_escape(c, &h))
			return false;
	}
	return fail(c, "a string does not end");
}

/* ------------------------------------------------------------------------------------------- */

/* Integers of up to 19 digits are compared as they are written. */
static bool is_in_range(const unsigned char *digits, size_t n, bool negative)
{
	return n < 19 ||
	       (n == 19 &&
		memcmp(digits, negative ? "9223372036854775808" : "9223372036854775807", 19) <= 0);
}

/* Of a number with these digits, a point after @n_whole of them, and that exponent. The largest
 * double is 1.7976931348623157e308. */
static bool is_in_double(const unsigned char *text, const unsigned char *end, long exponent)
{
	static const char most[] = "17976931348623157";
	const unsigned char *first = NULL; /* digit that is not 0 */
	long power = -1, zeros = 0;        /* of ten; before the first digit */
	bool point = false;
	size_t n = 0;

	for (const unsigned char *p = text; p < end; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (!point)
			power++;
		if (!first && *p != '0')
			first = p;
		zeros += !first;
	}
	if (!first)
		return true;
	power += exponent - zeros;
	if (power != 308)
		return power < 308;
	for (const unsigned char *p = first; n < 17 && p < end; p++) {
		if (*p == '.')
			continue;
		if (*p != (unsigned char)most[n])
			return *p < (unsigned char)most[n];
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

static bool read_number(struct check *c)
{
	bool negative = take(c, '-'), real = false;
	const unsigned char *digits = c->at, *end;
	long exponent = 0;

	if (!is_digit(c))
		return fail(c, "a value is expected");
	if (!take(c, '0'))
		while (is_digit(c))
			c->at++;
	else if (is_digit(c))
		return fail(c, "a number begins with 0");
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
	if (real ? is_in_double(digits, end, exponent)
		 : is_in_range(digits, (size_t)(end - digits), negative))
		return true;
	return fail(c, "a number is too large");
}

/* ------------------------------------------------------------------------------------------- */

static bool is_new_key(struct check *c, uint64_t hash)
{
	size_t i;

	hash = mix(mix(hash, c->open[c->depth - 1]), seed[1]);
	hash += hash == 0;
	for (i = hash >> 40 & (c->n_keys_max - 1); keys[i]; i = (i + 1) & (c->n_keys_max - 1))
		if (keys[i] == hash)
			return fail(c, "a key is there twice");
	keys[i] = hash;
	return true;
}

static bool read_key(struct check *c)
{
	uint64_t hash;

	skip_space(c);
	if (!take(c, '"'))
		return fail(c, "a key is expected");
	if (!read_string(c, &hash) || !is_new_key(c, hash))
		return false;
	skip_space(c);
	return take(c, ':') || fail(c, "':' is expected");
}

static bool read_word(struct check *c, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
		return fail(c, "a value is expected");
	c->at += n;
	return true;
}

/* One that is not an object or array. */
static bool read_plain(struct check *c)
{
	switch (c->at < c->end ? *c->at : 0) {
	case '"':
		c->at++;
		return read_string(c, NULL);
	case 't':
		return read_word(c, "true");
	case 'f':
		return read_word(c, "false");
	case 'n':
		return read_word(c, "null");
	default:
		return read_number(c);
	}
}

static unsigned char closing(const struct check *c)
{
	return c->open[c->depth - 1] ? '}' : ']';
}

/* Up to its first value; true also if it is empty, and closed again. */
static bool read_open(struct check *c, bool *empty)
{
	bool object = *c->at++ == '{';

	if (c->depth == c->depth_max)
		return fail(c, "nested too deep");
	c->open[c->depth++] = object ? ++c->n_objects : 0;
	skip_space(c);
	*empty = take(c, closing(c));
	c->depth -= *empty;
	return *empty || !object || read_key(c);
}

/* From behind a value to the next one; all of @c is read when nothing is open any more. */
static bool read_on(struct check *c)
{
	while (c->depth > 0) {
		skip_space(c);
		if (take(c, ','))
			return !c->open[c->depth - 1] || read_key(c);
		if (!take(c, closing(c)))
			return fail(c, c->open[c->depth - 1] ? "',' or '}' is expected"
							     : "',' or ']' is expected");
		c->depth--;
	}
	skip_space(c);
	return c->at == c->end || fail(c, "something follows the end");
}

static bool read_all(struct check *c)
{
	bool whole;

	skip_space(c);
	if (c->at == c->end || (*c->at != '{' && *c->at != '['))
		return fail(c, "'{' or '[' is expected");
	do {
		skip_space(c);
		if (c->at < c->end && (*c->at == '{' || *c->at == '[')) {
			if (!read_open(c, &whole))
				return false;
		} else {
			if (!read_plain(c))
				return false;
			whole = true;
		}
		if (whole && !read_on(c))
			return false;
	} while (c->depth > 0);
	return true;
}

static void locate(const char *text, const struct check *c, struct json_fault *fault)
{
	*fault = (struct json_fault){1, 1, c->fault};
	for (; text < (const char *)c->at; text++) {
		fault->column++;
		if (*text == '\n') {
			fault->line++;
			fault->column = 1;
		}
	}
}

bool json_check(const char *text, size_t size, unsigned depth, struct json_fault *fault)
{
	struct check c = {.at = (const unsigned char *)text, .n_keys_max = 16};

	c.end = c.at + size;
	c.depth_max = depth < DEPTH_MAX ? depth : DEPTH_MAX;
	if (size > JSON_CHECK_MAX) {
		fail(&c, "too long");
		locate(text, &c, fault);
		return false;
	}
	while (c.n_keys_max < KEYS_MAX && c.n_keys_max < size / 2)
		c.n_keys_max *= 2;
	memset(keys, 0, c.n_keys_max * sizeof(keys[0]));
	if (!seed[0] && getrandom(seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed[0] = seed[1] = (uint64_t)(uintptr_t)&c;
	if (read_all(&c))
		return true;
	locate(text, &c, fault);
	return false;
}
