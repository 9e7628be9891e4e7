/* SPDX-License-Identifier: MIT */
/*
 * Where something is in a JSON text.
 *
 * jansson gives values without their places, but who wrote "10 parsecs" wants to know in which
 * line. So when something turns out to be wrong, and only then, the text is walked once more along
 * the path to the value; or, where jansson itself gave up, all through up to that place, to learn
 * the path. The walks believe that the text is JSON, since jansson has accepted it (or has accepted
 * all up to the place it complains about); they stay inside the text even if not.
 *
 * Knows JSON. Must not know what any key means, nor what is said about it.
 */
#include "broker/config/locate.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KEPT_MAX  72 /* bytes that are kept of a key on the way; messages show no more either */
#define DEPTH_MAX 32 /* no configuration is nested deeper; further down, name the outer value */

struct scanner {
	const char *at;
	const char *end;
	size_t line;
};

static int peek(const struct scanner *s)
{
	return s->at < s->end ? (unsigned char)*s->at : EOF;
}

static void skip_space(struct scanner *s)
{
	for (; s->at < s->end; s->at++) {
		if (*s->at == '\n')
			s->line++;
		else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r')
			break;
	}
}

/* Skips @c and the space around it; false if something else comes. */
static bool skip_char(struct scanner *s, char c)
{
	skip_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	skip_space(s);
	return true;
}

static uint32_t read_hex(struct scanner *s)
{
	uint32_t value = 0;

	for (int i = 0; i < 4 && s->at < s->end; i++, s->at++) {
		const char *digits = "0123456789abcdef";
		const char *digit = strchr(digits, *s->at | 0x20);
		value = value << 4 | (digit && *digit ? (uint32_t)(digit - digits) : 0);
	}
	return value;
}

static size_t encode(uint32_t c, char out[static 4])
{
	static const unsigned char markers[] = {0, 0, 0xc0, 0xe0, 0xf0};
	size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = length; i-- > 1; c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(markers[length] | c);
	return length;
}

/* Reads a byte of a string, or an escape, which can be up to four. */
static size_t read_char(struct scanner *s, char out[static 4])
{
	static const char escapes[] = "bfnrt", meant[] = "\b\f\n\r\t";

	out[0] = *s->at++;
	if (out[0] != '\\' || s->at == s->end)
		return 1;
	out[0] = *s->at++;
	if (out[0] == 'u') {
		uint32_t c = read_hex(s);
		if (c >= 0xd800 && c <= 0xdbff && s->end - s->at >= 6 && s->at[0] == '\\') {
			s->at += 2;
			c = 0x10000 + ((c & 0x3ff) << 10 | (read_hex(s) & 0x3ff));
		}
		return encode(c, out);
	}
	const char *escape = out[0] ? strchr(escapes, out[0]) : NULL;
	if (escape)
		out[0] = meant[escape - escapes];
	return 1;
}

/* Skips a string and keeps as much of its content as fits, on the whole character. */
static void read_string(struct scanner *s, char *out, size_t size)
{
	size_t used = 0;

	s->at++;
	while (s->at < s->end && *s->at != '"') {
		char bytes[4];
		size_t n = read_char(s, bytes);

		if (used + n < size) {
			memcpy(out + used, bytes, n);
			used += n;
		}
	}
	if (s->at < s->end)
		s->at++;
	out[used] = '\0';
}

/* Skips a string, and returns whether it says @key. */
static bool match_string(struct scanner *s, const char *key)
{
	size_t left = strlen(key);
	bool same = true;

	s->at++;
	while (s->at < s->end && *s->at != '"') {
		char bytes[4];
		size_t n = read_char(s, bytes);

		same = same && n <= left && memcmp(key, bytes, n) == 0;
		if (same) {
			key += n;
			left -= n;
		}
	}
	if (s->at < s->end)
		s->at++;
	return same && left == 0;
}

static void skip_value(struct scanner *s)
{
	size_t depth = 0;
	char ignored[1];

	do {
		skip_space(s);
		switch (peek(s)) {
		case EOF:
			return;
		case '"':
			read_string(s, ignored, sizeof(ignored));
			break;
		case '{':
		case '[':
			depth++;
			s->at++;
			break;
		case '}':
		case ']':
			depth -= depth > 0;
			s->at++;
			break;
		case ',':
		case ':':
			s->at++;
			break;
		default:
			while (s->at < s->end && !memchr(" \t\r\n,:[]{}\"", *s->at, 11))
				s->at++;
		}
	} while (depth > 0);
}

/* Goes from the start of an object to the value of its member @key. */
static bool enter_member(struct scanner *s, const char *key, size_t *line)
{
	if (!skip_char(s, '{'))
		return false;
	while (peek(s) == '"') {
		size_t here = s->line;
		bool found = match_string(s, key);

		if (!skip_char(s, ':'))
			return false;
		if (found) {
			*line = here;
			return true;
		}
		skip_value(s);
		if (!skip_char(s, ','))
			return false;
	}
	return false;
}

/* Goes from the start of an array to its element @index. */
static bool enter_element(struct scanner *s, size_t index, size_t *line)
{
	if (!skip_char(s, '['))
		return false;
	while (index > 0) {
		skip_value(s);
		if (!skip_char(s, ','))
			return false;
		index--;
	}
	if (peek(s) == ']')
		return false;
	*line = s->line;
	return true;
}

static bool enter(struct scanner *s, const struct config_path *path, size_t *line)
{
	if (!path) {
		skip_space(s);
		*line = s->line;
		return true;
	}
	if (!enter(s, path->parent, line))
		return false;
	return path->key ? enter_member(s, path->key, line) : enter_element(s, path->index, line);
}

size_t config_locate(const char *text, size_t size, const struct config_path *path)
{
	struct scanner s = {.at = text, .end = text + size, .line = 1};
	size_t line = 1;

	enter(&s, path, &line);
	return line;
}

/* ------------------------------------------------------------------------------------------- */
/* The way to a place                                                                          */

/* What find_ending() looks for: whatever ends at @stop, or is the first to go beyond it. */
struct ending {
	const char *stop;
	config_found *found;
	void *data;
};

/* Steps over one value, and stops short in it when it is, or contains, what is looked for. */
static bool find_ending(struct scanner *s, const struct ending *e, const struct config_path *path,
			unsigned depth)
{
	char key[KEPT_MAX];
	struct config_path child = {.parent = path};
	bool object = peek(s) == '{';

	if ((!object && peek(s) != '[') || depth == DEPTH_MAX) {
		size_t line = s->line;

		skip_value(s);
		if (s->at < e->stop)
			return false;
		e->found(e->data, line, path);
		return true;
	}
	if (!skip_char(s, object ? '{' : '['))
		return false;
	while (s->at < e->stop && peek(s) != '}' && peek(s) != ']') {
		if (object) {
			if (peek(s) != '"')
				return false;
			read_string(s, key, sizeof(key));
			child.key = key;
			if (s->at >= e->stop) {
				e->found(e->data, s->line, &child);
				return true;
			}
			if (!skip_char(s, ':'))
				return false;
		}
		if (find_ending(s, e, &child, depth + 1))
			return true;
		if (!skip_char(s, ','))
			break;
		child.index++;
	}
	skip_char(s, object ? '}' : ']');
	return false;
}

bool config_locate_ending(const char *text, size_t size, size_t end, const struct config_path *root,
			  config_found *found, void *data)
{
	struct scanner s = {.at = text, .end = text + size, .line = 1};
	const struct ending e = {.stop = text + end, .found = found, .data = data};

	skip_space(&s);
	return find_ending(&s, &e, root, 0);
}
