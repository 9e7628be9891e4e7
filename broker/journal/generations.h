/* SPDX-License-Identifier: MIT */
#ifndef BROKER_JOURNAL_GENERATIONS_H
#define BROKER_JOURNAL_GENERATIONS_H

#include <stdint.h>

/*
 * The generations of the slots of a slab (base/slab.h), of those that are free as well: what a slot
 * has been called is never called again, by no broker. Written in place, so a generation that was
 * written down and not used is lost, which is fine.
 */
struct journal;
struct slab;

struct generations {
	uint32_t which;   /* of the slabs that have them */
	uint32_t **parts; /* each of GENERATIONS_PART, in the journal */
	uint32_t n_parts;
};
#define GENERATIONS_PART 4096

enum { GENERATIONS_OF_SEGMENTS = 1, GENERATIONS_OF_BUFFERS, GENERATIONS_OF_TOKENS };

/* The slot was given out with this one. Without memory the journal ends. */
void generation_note(struct generations *g, struct journal *j, uint32_t index, uint32_t generation);

/* Of an empty slab: makes all slots that there were, all in use, with their generations as their
 * first four bytes; the caller frees those that it has no object for. 0, -ENOMEM, or -EBADMSG where
 * they make no sense. */
int generations_make_slots(struct generations *g, struct journal *j, struct slab *slab);
void generations_deinit(struct generations *g);

#endif
