/* SPDX-License-Identifier: MIT */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/*
 * A record of an object while it is written or read. For each kind of object (object.h) one
 * function names its members, in the order in which the record has them, so that writing and
 * reading cannot differ. Each member is aligned to its size, and the whole is padded to 8; then
 * come the bytes of members that have a size of their own.
 *
 * A member that is there is never moved and never gets another size, as journals of older brokers
 * have it. A new member comes last, behind `if (record_has(r, LAYOUT))`, with STATE_LAYOUT raised
 * to that number: of an older record it stays zeros.
 */
#define STATE_LAYOUT     1u
#define RECORD_FIXED_MAX 2048u /* bytes of the members */
#define RECORD_RESTS     4u    /* as many members may have a size of their own */

struct record {
	struct broker *broker; /* the broker whose objects the members refer to */
	unsigned char *bytes;  /* of the members */
	size_t at;             /* the place of the next member in them */
	uint32_t layout;
	bool is_read;
	/* For writing: the members, and what follows them. */
	struct iovec parts[1 + RECORD_RESTS];
	size_t n_parts;
	/* For reading: what was wrong, what follows, and how much of it the object ends with. */
	int error;
	unsigned char *rest;
	size_t left, at_end;
	uint64_t order; /* of the object among those of its kind: see object.h */
};

static inline bool record_has(const struct record *r, uint32_t layout)
{
	return r->layout >= layout;
}

/* The record is read, and nothing was wrong so far. False also while it is only found out how
 * long the members of a layout are: then all of them are read as zeros. */
static inline bool record_reads(const struct record *r)
{
	return r->is_read && r->error == 0;
}

/* Says what is wrong: -EBADMSG if the record makes no sense, or -ENOMEM. The first one counts. */
static inline void record_fail(struct record *r, int error)
{
	if (r->error == 0)
		r->error = error;
}

/* Gaps are zeros, as all of a record is compared and has a checksum. */
static inline void record_bytes(struct record *r, void *member, size_t size, size_t align)
{
	size_t at = (r->at + align - 1) & ~(align - 1);

	assert(at + size <= RECORD_FIXED_MAX);
	if (r->is_read) {
		memcpy(member, r->bytes + at, size);
	} else {
		if (at > r->at)
			memset(r->bytes + r->at, 0, at - r->at);
		memcpy(r->bytes + at, member, size);
	}
	r->at = at + size;
}

static inline void record_u32(struct record *r, uint32_t *member)
{
	record_bytes(r, member, sizeof(*member), sizeof(*member));
}

static inline void record_u64(struct record *r, uint64_t *member)
{
	record_bytes(r, member, sizeof(*member), sizeof(*member));
}

void record_i32(struct record *r, int32_t *member);
void record_flag(struct record *r, bool *member);  /* 4 bytes */
void record_flag8(struct record *r, bool *member); /* 1 byte */
/* A text in @room bytes, with a NUL and zeros to the end. */
void record_text(struct record *r, char *text, size_t room);
/* The same for an allocated text; NULL is written as "", and that is read as NULL. */
void record_string(struct record *r, char **text, size_t room);
/* So many bytes, a multiple of @unit, follow the members, one of which is the number of units. When
 * it is read: returns where they are in the record. */
struct iovec record_rest(struct record *r, const void *bytes, size_t size, size_t unit);
/* The same for a text at the end of an object, which has room for it and a NUL: once for each. */
void record_rest_of(struct record *r, char *text, size_t *size);
