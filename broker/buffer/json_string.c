/* SPDX-License-Identifier: MIT */

/*
 * The strings of a JSON text: UTF-8 with escapes, and no key of an object twice. Keys are compared
 * by a hash that nobody outside can compute, in which a character is the same however it is
 * written.
 */

#include <string.h>
#include <sys/random.h>

#include "broker/buffer/inside.h"
#include "broker/config/text.h"

static uint64_t seed[2];

void json_strings_init(void)
{
	if (!seed[0] && getrandom(seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed[0] = seed[1] = (uint64_t)(uintptr_t)&seed;
}

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

void json_key_begins(struct check *c)
{
	c->hash = seed[1];
	c->state = IN_KEY;
}

bool json_string_read(struct check *c)
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
