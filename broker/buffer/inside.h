/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_INSIDE_H
#define BROKER_BUFFER_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Inside of json_check.h: where the pass over a text is, and what reads its strings and numbers. */

#define DEPTH_MAX 64

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

/* Why it is not JSON; false, for the caller to return. */
static inline bool fail(struct check *c, const char *why)
{
	c->fault = why;
	return false;
}

static inline bool take(struct check *c, unsigned char byte)
{
	if (c->at == c->end || *c->at != byte)
		return false;
	c->at++;
	return true;
}

/* json_string.c: before the first one. */
void json_strings_init(void);
/* Behind the quotation mark of a key. */
void json_key_begins(struct check *c);
/* The rest of a string or key, up to the other quotation mark or where the pass pauses. */
bool json_string_read(struct check *c);

/* json_number.c: from its first character to its last one. */
bool json_number_read(struct check *c);

#endif
