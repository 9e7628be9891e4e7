/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * Objects of one size that never move, each with a small number (its index). Only one thread may
 * use a slab at a time. A slab must not be copied or moved after slab_init().
 *
 * Objects are aligned to 8 bytes. An index is valid from the allocation to the free; after that
 * another object may get it. Indices start at 0 and have no gaps but those of chunks that were
 * given back; UINT32_MAX is never one.
 */

/* Objects of a slab are at most this large, so that a chunk holds at least one. */
#define SLAB_OBJECT_MAX 65360u

struct slab_place;

struct slab {
	struct slab_place *places; /* the directory: the only thing that is ever reallocated */
	uint32_t n_places, place_room;
	uint32_t holes; /* the first place without a chunk, of a list */
	uint32_t chunk_count;
	uint32_t n_empty;   /* chunks of which no object is in use */
	uint32_t stride;    /* object size, rounded up to 8 */
	uint32_t per_chunk; /* objects in a chunk */
	uint32_t prefix;    /* leading bytes that outlive a free */
	uint32_t link;      /* where a free object keeps the pointer to the next free one */
	size_t live;
	TAILQ_HEAD(, slab_chunk) with_room;
	/* Where memory comes from, to be given back with free(). A test sets one that fails. */
	void *(*allocate)(size_t alignment, size_t size);
};

/* Objects of object_size bytes, 8 to SLAB_OBJECT_MAX. Allocates nothing and cannot fail. */
void slab_init(struct slab *slab, size_t object_size);

/*
 * The same, but the first `prefix` bytes of an object survive its free and the next allocation:
 * they are zero on first use, and then what the last user left there. The first four of them are
 * the object's generation, which must only grow. If the memory of an object was given back in
 * between, its generation is at least as high as before, and the rest of the prefix is zero.
 * object_size must be at least `prefix` rounded up to 8, plus 8.
 */
void slab_init_prefix(struct slab *slab, size_t object_size, size_t prefix);

/* Frees all chunks, also those with objects in use. The slab is then empty and can be used
 * again. */
void slab_deinit(struct slab *slab);

/* Returns a zeroed object (but for the prefix), or NULL when there is no memory; nothing is
 * changed then. */
void *slab_alloc(struct slab *slab);

/*
 * Frees an object; NULL is fine. It cannot fail, nor does it allocate. A chunk of which no object
 * is in use goes back to the system, but for a few.
 */
void slab_free(struct slab *slab, void *object);

/*
 * Returns the object with this index, or NULL when the index was never given out or its memory has
 * been given back. Of a freed object only the prefix may be read; AddressSanitizer is told so.
 */
void *slab_at(const struct slab *slab, uint32_t index);

/* All indices that were given out are below this number. */
uint32_t slab_end(const struct slab *slab);

/* Returns the index of an object of whichever slab: a subtraction and a division, no search. */
uint32_t slab_index(const void *object);

/* How many objects are in use. */
size_t slab_live(const struct slab *slab);
