/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the journal has of segments and blocks. Whoever changes something notes it. */
struct account;
struct block;
struct broker;
struct device;
struct fence_set;
struct object_kind;
struct pool;
struct record;
struct segment;

void segment_note(struct broker *b, struct segment *s);

/* What a block is used for, if it is a buffer. @pending are fences beside those of the block's own
 * gate. */
struct block_use {
	uint32_t index, generation;
	uint64_t size;
	const struct fence_set *pending;
};
#define BLOCK_RECORD_LEAST 28         /* bytes */
#define BLOCK_GATED        UINT32_MAX /* an index: nobody holds it, and work runs on it */
#define BLOCK_FENCES_LOST  UINT32_MAX /* a number of fences: some of them are not known any more */

/* The record of a block, which n_fences of struct fence_record follow. Most records have less: see
 * block_records.c. */
struct block_record {
	uint32_t index; /* the buffer's, or BLOCK_GATED */
	uint32_t generation;
	uint32_t segment, offset, units;
	uint32_t payer, tag, n_fences;
	uint64_t size;
};
/* Reads the record of a block. False: it is none. */
bool block_record_read(const void *bytes, size_t size, struct block_record *out);
void block_note(struct block *block, const struct block_use *use, const struct account *payer);
/* Notes a block that work still runs on and nobody holds. */
void block_note_gated(struct block *block);
/* Drops the record of a block that is about to be free, or part of another one. */
void block_forget(struct block *block);

/* Tells the device's agent which segments there are: see agent_tell_known(). 0 or -ENOMEM. */
int segments_tell_known(struct broker *b, const struct device *d);
extern const struct object_kind segment_kind; /* their slots are made before */

void record_pool(struct record *r, struct pool **p); /* a member of a record: it must exist */
