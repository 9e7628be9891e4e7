/* SPDX-License-Identifier: MIT */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * Fixed-size objects that never move, each with a small number (its index). One thread at a time;
 * a slab is used where it was initialised and must not be copied.
 *
 * Objects are aligned to 8 bytes. An index is valid from the alloc that made it to the free; after
 * that the same index may be given out again. Indices start at 0 and are dense but for what has
 * been given back; UINT32_MAX is never one.
 */

/* Objects of a slab are at most this large, so that a chunk holds at least one. */
#define SLAB_OBJECT_MAX 65360u

struct slab_chunk;
struct slab_place;

struct slab {
	struct slab_place *places; /* the directory: the only thing that is ever reallocated */
	uint32_t n_places, place_room;
	uint32_t holes; /* the first place without a chunk */
	uint32_t chunk_count;
	uint32_t n_empty;   /* of these, that nobody has anything of */
	uint32_t stride;    /* object size, rounded up to 8 */
	uint32_t per_chunk; /* objects in a chunk */
	uint32_t keep;      /* leading bytes that outlive a free */
	uint32_t link;      /* where a free object keeps the pointer to the next free one */
	size_t live;
	TAILQ_HEAD(, slab_chunk) with_room;
	/* Where memory comes from; given back with free(). A test puts in one that fails. */
	void *(*allocate)(size_t alignment, size_t size);
};

/* Objects of object_size bytes, 8 to SLAB_OBJECT_MAX. Allocates nothing and cannot fail. */
void slab_init(struct slab *slab, size_t object_size);

/*
 * The same, but the first `keep` bytes of an object survive free and the next alloc: zero on first
 * use, then whatever the last holder left. The first four of them are its generation, which must
 * only grow: an object whose memory was given back meanwhile begins with one at least as high as it
 * had, and the rest zero. object_size must be at least `keep` rounded up to 8, plus 8.
 */
void slab_init_keep(struct slab *slab, size_t object_size, size_t keep);

/* Frees all chunks, live objects included. The slab is then empty and may be used again. */
void slab_done(struct slab *slab);

/* A zeroed object (but for the kept bytes), or NULL when memory is out; nothing changed then. */
void *slab_alloc(struct slab *slab);
void *slab_alloc_indexed(struct slab *slab, uint32_t *index);

/*
 * Never fail, never allocate. NULL is accepted by slab_free. Either way to free goes with either
 * way to alloc. Chunks of which nobody has anything go back to the system, but for a few.
 */
void slab_free(struct slab *slab, void *object);
void slab_free_index(struct slab *slab, uint32_t index);

/*
 * The object with this index, or NULL when the index was never given out, or its memory has been
 * given back since. Of a freed object only the kept bytes may be looked at: AddressSanitizer is
 * told so.
 */
void *slab_at(const struct slab *slab, uint32_t index);

/* All indices are below. */
uint32_t slab_end(const struct slab *slab);

/* The index of an object of this slab. A subtraction and a division; no search. */
uint32_t slab_index(const struct slab *slab, const void *object);

/* How many objects are out. */
size_t slab_live(const struct slab *slab);
/* What the chunks take. */
size_t slab_bytes(const struct slab *slab);

#endif
