/* SPDX-License-Identifier: MIT */

/*
 * Is this JSON? What jansson says of a text, without a tree: that takes it 3 to 15 milliseconds for
 * the 64 KiB that metadata may have, which everybody waits for, and this some hundred microseconds.
 * A pass over the bytes, with a stack of what is open, and a table of the keys seen so far.
 *
 * What is expected next is a state, so that the pass can stop after any of its steps, and go on
 * when others have had their turn. No step is long but a number's, which has to end first: 64 KiB
 * of digits take some fifty microseconds.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/buffer/inside.h"
#include "broker/buffer/json_check.h"

/* A key takes five bytes ("":0,) and more. */
#define KEYS_MAX 32768

struct json_check {
	struct check check;
	size_t size;
	char *text; /* behind the keys */
	uint64_t keys[];
};

static void skip_space(struct check *c)
{
	while (c->at < c->stop &&
	       (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
		c->at++;
}

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
		return json_number_read(c);
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
	json_key_begins(c);
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
		return json_string_read(c);
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
	json_strings_init();
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
