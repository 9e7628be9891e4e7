/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * The generations of the slots of a slab (base/slab.h), of the free ones as well: no broker gives
 * an object an identifier that another one has had. They are written in place, so a generation that
 * was written down and not used is lost, which is fine.
 */
struct journal;
struct slab;

struct generations {
	uint32_t which;   /* which slab they are of */
	uint32_t **parts; /* each has GENERATIONS_PART of them, in the journal */
	uint32_t n_parts;
};
#define GENERATIONS_PART 4096

enum { GENERATIONS_OF_SEGMENTS = 1, GENERATIONS_OF_BUFFERS, GENERATIONS_OF_TOKENS };

/* Notes that the slot was given out with this generation. Without memory for that the journal
 * ends. */
void generation_note(struct generations *g, struct journal *j, uint32_t index, uint32_t generation);

/* Makes all slots in an empty slab that there were, all of them in use, with their generations as
 * their first four bytes. The caller frees those that it has no object for. 0, -ENOMEM, or
 * -EBADMSG: the generations make no sense. */
int generations_make_slots(struct generations *g, struct journal *j, struct slab *slab);
/* Frees those slots whose next four bytes say that no object is there: they are 0. */
void generations_free_slots(struct slab *slab);
void generations_deinit(struct generations *g);
