/* SPDX-License-Identifier: MIT */

/*
 * Is this JSON? What jansson says of a text, without a tree: that takes it 3 to 15 milliseconds for
 * the 64 KiB that metadata may have, which everybody waits for, and this some hundred microseconds.
 * A pass over the bytes, with a stack of what is open, and a table of the keys seen so far. Keys
 * are compared by a hash that nobody outside can compute.
 *
 * What is expected next is a state, so that the pass can stop after any of its steps, and go on
 * when others have had their turn. No step is long but a number's, which has to end first: 64 KiB
 * of digits take some fifty microseconds.
 */

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "broker/buffer/json_check.h"
#include "broker/config/text.h"

#define DEPTH_MAX 64
/* A key takes five bytes ("":0,) and more. */
#define KEYS_MAX 32768

enum state {
	ALL, /* nothing is read yet */
	OPENED,
	VALUE,
	KEY,
	IN_KEY, /* behind its quotation mark */
	COLON,
	IN_STRING,
	AFTER_VALUE,
	DONE,
};

struct check {
	const unsigned char *at, *end;
	const unsigned char *stop; /* where it pauses, at the next step */
	enum state state;
	uint64_t hash;  /* of the key that is being read */
	uint64_t *keys; /* 0: free */
	const char *fault;
	size_t n_keys_max; /* a power of two */
	uint32_t n_objects;
	uint32_t open[DEPTH_MAX]; /* the number of an object; 0 for an array */
	unsigned depth, depth_max;
};

struct json_check {
	struct check check;
	size_t size;
	char *text; /* behind the keys */
	uint64_t keys[];
};

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
	while (c->at < c->stop &&
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

/* Up to where it pauses, and to the end of the character there. */
static bool read_others(struct check *c)
{
	const unsigned char *begin = c->at;

	while (c->at < c->stop && *c->at >= 0x80)
		c->hash = mix(c->hash, *c->at++);
	for (int i = 0; i < 3 && c->at < c->end && (*c->at & 0xc0) == 0x80; i++)
		c->hash = mix(c->hash, *c->at++);
	if (text_is_utf8(begin, (size_t)(c->at - begin)))
		return true;
	c->at = begin;
	return fail(c, "no UTF-8");
}

static bool is_new_key(struct check *c, uint64_t hash)
{
	size_t i;

	hash = mix(mix(hash, c->open[c->depth - 1]), seed[1]);
	hash += hash == 0;
	for (i = hash >> 40 & (c->n_keys_max - 1); c->keys[i]; i = (i + 1) & (c->n_keys_max - 1))
		if (c->keys[i] == hash)
			return fail(c, "a key is there twice");
	c->keys[i] = hash;
	return true;
}

/* After the quotation mark, up to the other one or where it pauses. */
static bool read_string(struct check *c)
{
	bool is_key = c->state == IN_KEY;

	while (c->at < c->stop) {
		unsigned char b = *c->at;

		if (b < 0x20)
			return fail(c, "a control character in a string");
		if (b >= 0x80) {
			if (!read_others(c))
				return false;
			continue;
		}
		c->at++;
		if (b == '"') {
			c->state = is_key ? COLON : AFTER_VALUE;
			return !is_key || is_new_key(c, c->hash);
		}
		if (b == '\\') {
			if (!read_escape(c, &c->hash))
				return false;
		} else if (is_key) {
			c->hash = mix(c->hash, b);
		}
	}
	return c->at < c->end || fail(c, "a string does not end");
}

/* ------------------------------------------------------------------------------------------- */

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

static bool read_number(struct check *c)
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

/* ------------------------------------------------------------------------------------------- */

static bool read_word(struct check *c, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
		return fail(c, "a value is expected");
	c->at += n;
	return true;
}

static bool read_open(struct check *c)
{
	bool object = *c->at++ == '{';

	if (c->depth == c->depth_max)
		return fail(c, "nested too deep");
	c->open[c->depth++] = object ? ++c->n_objects : 0;
	c->state = OPENED;
	return true;
}

static bool read_value(struct check *c)
{
	c->state = AFTER_VALUE;
	switch (c->at < c->end ? *c->at : 0) {
	case '{':
	case '[':
		return read_open(c);
	case '"':
		c->at++;
		c->state = IN_STRING;
		return true;
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

static bool is_in_object(const struct check *c)
{
	return c->open[c->depth - 1] != 0;
}

static bool read_closing(struct check *c)
{
	if (!take(c, is_in_object(c) ? '}' : ']'))
		return false;
	c->depth--;
	c->state = AFTER_VALUE;
	return true;
}

static bool read_key(struct check *c)
{
	if (!take(c, '"'))
		return fail(c, "a key is expected");
	c->hash = seed[1];
	c->state = IN_KEY;
	return true;
}

static bool read_on(struct check *c)
{
	if (c->depth == 0) {
		c->state = DONE;
		return c->at == c->end || fail(c, "something follows the end");
	}
	if (take(c, ',')) {
		c->state = is_in_object(c) ? KEY : VALUE;
		return true;
	}
	return read_closing(c) ||
	       fail(c, is_in_object(c) ? "',' or '}' is expected" : "',' or ']' is expected");
}

static bool read_step(struct check *c)
{
	switch (c->state) {
	case ALL:
		if (c->at == c->end || (*c->at != '{' && *c->at != '['))
			return fail(c, "'{' or '[' is expected");
		return read_open(c);
	case OPENED:
		if (!read_closing(c))
			c->state = is_in_object(c) ? KEY : VALUE;
		return true;
	case VALUE:
		return read_value(c);
	case KEY:
		return read_key(c);
	case COLON:
		c->state = VALUE;
		return take(c, ':') || fail(c, "':' is expected");
	case IN_KEY:
	case IN_STRING:
		return read_string(c);
	case AFTER_VALUE:
		return read_on(c);
	case DONE:
		break;
	}
	return true;
}

/* False at a fault. */
static bool read_some(struct check *c, size_t n)
{
	c->stop = (size_t)(c->end - c->at) > n ? c->at + n : c->end;
	while (c->state != DONE) {
		if (c->state != IN_KEY && c->state != IN_STRING)
			skip_space(c);
		if (c->at >= c->stop && c->stop < c->end)
			return true;
		if (!read_step(c))
			return false;
	}
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

/* A key is followed by a colon: at most half of the table is ever used. */
static size_t room_for_keys(const char *text, size_t size)
{
	size_t colons = 0, n = 16;

	for (size_t i = 0; i < size; i++)
		colons += text[i] == ':';
	while (n < 2 * colons)
		n *= 2;
	return n < KEYS_MAX ? n : KEYS_MAX;
}

static void begin(struct check *c, const char *text, size_t size, unsigned depth)
{
	c->at = (const unsigned char *)text;
	c->end = c->at + size;
	c->depth_max = depth < DEPTH_MAX ? depth : DEPTH_MAX;
	c->state = ALL;
	if (!seed[0] && getrandom(seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed[0] = seed[1] = (uint64_t)(uintptr_t)c;
}

bool json_check(const char *text, size_t size, unsigned depth, struct json_fault *fault)
{
	static uint64_t keys[KEYS_MAX];
	struct check c = {.keys = keys};

	begin(&c, text, size, depth);
	if (size > JSON_CHECK_MAX) {
		fail(&c, "too long");
		locate(text, &c, fault);
		return false;
	}
	c.n_keys_max = room_for_keys(text, size);
	memset(keys, 0, c.n_keys_max * sizeof(keys[0]));
	if (read_some(&c, size))
		return true;
	locate(text, &c, fault);
	return false;
}

struct json_check *json_check_new(const char *text, size_t size, unsigned depth, size_t *takes)
{
	size_t n_keys = room_for_keys(text, size);
	struct json_check *j;

	*takes = sizeof(*j) + n_keys * sizeof(j->keys[0]) + size;
	j = size <= JSON_CHECK_MAX ? calloc(1, *takes) : NULL;
	if (!j)
		return NULL;
	j->size = size;
	j->text = (char *)(j->keys + n_keys);
	j->check.keys = j->keys;
	j->check.n_keys_max = n_keys;
	memcpy(j->text, text, size);
	begin(&j->check, j->text, size, depth);
	return j;
}

enum json_check_result json_check_some(struct json_check *j, size_t n, struct json_fault *fault)
{
	if (!read_some(&j->check, n)) {
		locate(j->text, &j->check, fault);
		return JSON_CHECK_FAULT;
	}
	return j->check.state == DONE ? JSON_CHECK_DONE : JSON_CHECK_MORE;
}

const char *json_check_text(const struct json_check *j, size_t *size)
{
	*size = j->size;
	return j->text;
}

void json_check_free(struct json_check *j)
{
	free(j);
}
