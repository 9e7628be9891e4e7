/* SPDX-License-Identifier: MIT */
/*
 * Memory for the many small objects of which the broker has up to a million: blocks, buffers,
 * leases. malloc would add 8 to 16 bytes to each and scatter them; an array that grows would move
 * them, and the broker's loop would stand still while it copies. So objects live in chunks of about
 * 64 KiB that never move, and only the directory of chunks, sixteen bytes for each, is ever
 * reallocated.
 *
 * The slab stores nothing beside an object. A free object holds the pointer to the next free one of
 * its chunk inside itself. Chunks are aligned to 64 KiB, so the address of an object with its low
 * bits cleared is the address of its chunk; and the chunk knows the index of its first object. So
 * the index of an object can be computed from its address, without a search and without a field.
 *
 * A chunk with no object in use is given back to the system, but for a few, whatever other chunks
 * contain: otherwise the memory that one user needed for a while would stay with the broker for
 * ever. The place of such a chunk in the directory stays, and is the first that is used again. If
 * the slab keeps generations, the place remembers the highest one of the chunk, and all objects of
 * the next chunk there go on from it. So an identifier (a slot and a generation) still never names
 * two objects.
 *
 * This file knows sizes and addresses. It must not know what the objects are, and does not notice
 * when one is freed twice: the generations, which a slab can keep across frees, let its callers
 * notice.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/slab.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_TELLS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SLAB_TELLS_ASAN 1
#endif
#if defined(SLAB_TELLS_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define CHUNK_ALIGNMENT 65536u

/*
 * This is a little less than the alignment, so that the alignment wastes no memory: the bytes that
 * malloc puts before a chunk fit behind the chunk below it, and chunks lie back to back. A full 64
 * KiB would leave a hole of nearly 64 KiB after each chunk; and together with its alignment it
 * would be larger than the size from which glibc maps each allocation separately, with twice the
 * address space.
 */
#define CHUNK_SIZE (CHUNK_ALIGNMENT - 128u)

/* Empty chunks that are kept, so that a caller that allocates and frees in turn does not call
 * malloc and free each time. */
#define CHUNKS_SPARE 4u

#define NO_PLACE UINT32_MAX

struct slab_chunk {
	const struct slab *slab; /* an object that is freed into another slab is found at once */
	TAILQ_ENTRY(slab_chunk) link; /* in the list of chunks with room, the empty ones last */
	void *free_list;
	uint32_t first_index;
	uint32_t fresh; /* slots from here on have never been given out */
	uint32_t live;
	uint32_t generation; /* the generation of slots that have never been given out */
	unsigned char objects[];
};

/* A place of the directory. If it has no chunk, `next` is the next such place, and `generation` is
 * the highest one of the chunk that was here. */
struct slab_place {
	struct slab_chunk *chunk;
	uint32_t generation, next;
};

static_assert(offsetof(struct slab_chunk, objects) % 8 == 0, "objects start aligned");
static_assert(CHUNK_SIZE - offsetof(struct slab_chunk, objects) == SLAB_OBJECT_MAX,
	      "the largest object fills a chunk");

static void *allocate_aligned(size_t alignment, size_t size)
{
	void *memory = NULL;

	return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static uint32_t round_up_to_8(size_t size)
{
	return (uint32_t)((size + 7) & ~(size_t)7);
}

void slab_init(struct slab *slab, size_t object_size)
{
	slab_init_prefix(slab, object_size, 0);
}

void slab_init_prefix(struct slab *slab, size_t object_size, size_t prefix)
{
	assert(object_size >= sizeof(void *) && object_size <= SLAB_OBJECT_MAX);
	assert(prefix <= object_size && round_up_to_8(prefix) + sizeof(void *) <= object_size);

	*slab = (struct slab){
	    .stride = round_up_to_8(object_size),
	    .prefix = (uint32_t)prefix,
	    .link = round_up_to_8(prefix),
	    .allocate = allocate_aligned,
	};
	slab->per_chunk = SLAB_OBJECT_MAX / slab->stride;
	slab->holes = NO_PLACE;
	TAILQ_INIT(&slab->with_room);
}

void slab_deinit(struct slab *slab)
{
	for (uint32_t i = 0; i < slab->n_places; i++) {
		struct slab_chunk *chunk = slab->places[i].chunk;

		if (chunk) {
			ASAN_UNPOISON_MEMORY_REGION(chunk, CHUNK_SIZE);
			free(chunk);
		}
	}
	free(slab->places);
	slab->places = NULL;
	slab->n_places = slab->place_room = slab->chunk_count = slab->n_empty = 0;
	slab->holes = NO_PLACE;
	slab->live = 0;
	TAILQ_INIT(&slab->with_room);
}

static bool grow_directory(struct slab *slab)
{
	uint32_t room = slab->place_room ? 2 * slab->place_room : 8;
	struct slab_place *places = slab->allocate(sizeof(void *), room * sizeof(*places));

	if (!places)
		return false;
	if (slab->n_places)
		memcpy(places, slab->places, slab->n_places * sizeof(*places));
	free(slab->places);
	slab->places = places;
	slab->place_room = room;
	return true;
}

/* Of a slab that is as large as this, the pages of a chunk come at once, which takes less time than
 * one after the other: what is to be taken over is made again while everybody waits. */
#define CHUNKS_OF_A_LARGE_ONE 64u

static void populate(const struct slab *slab, void *chunk)
{
#ifdef MADV_POPULATE_WRITE
	if (slab->chunk_count >= CHUNKS_OF_A_LARGE_ONE) /* without it they come as ever */
		madvise(chunk, CHUNK_ALIGNMENT, MADV_POPULATE_WRITE);
#else
	(void)slab, (void)chunk;
#endif
}

static struct slab_chunk *add_chunk(struct slab *slab)
{
	bool again = slab->holes != NO_PLACE;
	uint32_t place = again ? slab->holes : slab->n_places;
	uint64_t first_index = (uint64_t)place * slab->per_chunk;
	struct slab_chunk *chunk;

	/* Every slot of the new chunk needs an index below UINT32_MAX. */
	if (first_index + slab->per_chunk > UINT32_MAX)
		return NULL;
	if (place == slab->place_room && !grow_directory(slab))
		return NULL;
	chunk = slab->allocate(CHUNK_ALIGNMENT, CHUNK_SIZE);
	if (!chunk)
		return NULL;
	assert(((uintptr_t)chunk & (CHUNK_ALIGNMENT - 1)) == 0);
	populate(slab, chunk);
	if (again)
		slab->holes = slab->places[place].next;
	else
		slab->places[slab->n_places++] = (struct slab_place){NULL, 0, NO_PLACE};
	chunk->slab = slab;
	chunk->free_list = NULL;
	chunk->first_index = (uint32_t)first_index;
	chunk->fresh = chunk->live = 0;
	chunk->generation = slab->places[place].generation;
	slab->places[place].chunk = chunk;
	slab->chunk_count++;
	slab->n_empty++;
	TAILQ_INSERT_TAIL(&slab->with_room, chunk, link);
	return chunk;
}

static unsigned char *slot_at(const struct slab_chunk *chunk, uint32_t i)
{
	return (unsigned char *)(uintptr_t)chunk->objects + (size_t)i * chunk->slab->stride;
}

/* free() alone may leave the pages with malloc, which keeps them for later: madvise() gives them
 * back to the system in any case. */
static void release_chunk(struct slab *slab, struct slab_chunk *chunk)
{
	uint32_t place = chunk->first_index / slab->per_chunk, generation = chunk->generation;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (uint32_t i = 0; slab->prefix >= sizeof(generation) && i < chunk->fresh; i++) {
		uint32_t one;

		memcpy(&one, slot_at(chunk, i), sizeof(one));
		generation = one > generation ? one : generation;
	}
	slab->places[place] = (struct slab_place){NULL, generation, slab->holes};
	slab->holes = place;
	slab->chunk_count--;
	TAILQ_REMOVE(&slab->with_room, chunk, link);
	ASAN_UNPOISON_MEMORY_REGION(chunk, CHUNK_SIZE);
	if (page < CHUNK_SIZE)
		madvise(chunk, CHUNK_SIZE / page * page, MADV_DONTNEED);
	free(chunk);
}

static void *read_link(const struct slab *slab, const unsigned char *object)
{
	void *next;

	memcpy(&next, object + slab->link, sizeof(next));
	return next;
}

/* Zeroes the object here, and not when its chunk is made, so that the pages of a chunk are touched
 * only when they are needed. */
static unsigned char *take_fresh(struct slab *slab, struct slab_chunk *chunk)
{
	unsigned char *object = slot_at(chunk, chunk->fresh++);

	ASAN_UNPOISON_MEMORY_REGION(object, slab->stride);
	memset(object, 0, slab->stride);
	if (slab->prefix >= sizeof(chunk->generation))
		memcpy(object, &chunk->generation, sizeof(chunk->generation));
	return object;
}

void *slab_alloc(struct slab *slab)
{
	struct slab_chunk *chunk = TAILQ_FIRST(&slab->with_room);
	unsigned char *object;

	if (!chunk)
		chunk = add_chunk(slab);
	if (!chunk)
		return NULL;
	object = chunk->free_list;
	if (object) {
		ASAN_UNPOISON_MEMORY_REGION(object, slab->stride);
		chunk->free_list = read_link(slab, object);
		memset(object + slab->prefix, 0, slab->stride - slab->prefix);
	} else {
		object = take_fresh(slab, chunk);
	}
	slab->n_empty -= chunk->live == 0;
	chunk->live++;
	if (chunk->live == slab->per_chunk)
		TAILQ_REMOVE(&slab->with_room, chunk, link);
	slab->live++;
	return object;
}

static struct slab_chunk *chunk_of(const void *object)
{
	return (struct slab_chunk *)((uintptr_t)object & ~(uintptr_t)(CHUNK_ALIGNMENT - 1));
}

uint32_t slab_index(const void *object)
{
	const struct slab_chunk *chunk = chunk_of(object);

	return chunk->first_index +
	       (uint32_t)((uintptr_t)object - (uintptr_t)chunk->objects) / chunk->slab->stride;
}

/* Called when no object of @chunk is in use any more. */
static void empty(struct slab *slab, struct slab_chunk *chunk)
{
	if (slab->n_empty == CHUNKS_SPARE) {
		release_chunk(slab, chunk);
		return;
	}
	slab->n_empty++;
	TAILQ_REMOVE(&slab->with_room, chunk, link);
	TAILQ_INSERT_TAIL(&slab->with_room, chunk, link);
	if (slab->prefix > 0)
		return;
	/* No generation has to be remembered, so objects are given out in the order of addresses
	 * again. */
	chunk->free_list = NULL;
	chunk->fresh = 0;
}

void slab_free(struct slab *slab, void *object)
{
	struct slab_chunk *chunk;

	if (!object)
		return;
	chunk = chunk_of(object);
	assert(slab->live > 0 && chunk->live > 0);
	assert(chunk->slab == slab && slab_index(object) - chunk->first_index < chunk->fresh);

	memcpy((unsigned char *)object + slab->link, &chunk->free_list, sizeof(void *));
	chunk->free_list = object;
	ASAN_POISON_MEMORY_REGION((unsigned char *)object + slab->prefix,
				  slab->stride - slab->prefix);
	slab->live--;
	if (chunk->live == slab->per_chunk)
		TAILQ_INSERT_HEAD(&slab->with_room, chunk, link);
	if (--chunk->live == 0)
		empty(slab, chunk);
}

void *slab_at(const struct slab *slab, uint32_t index)
{
	const uint32_t place = index / slab->per_chunk;
	const struct slab_chunk *chunk = place < slab->n_places ? slab->places[place].chunk : NULL;
	const uint32_t i = index % slab->per_chunk;

	return chunk && i < chunk->fresh ? slot_at(chunk, i) : NULL;
}

uint32_t slab_end(const struct slab *slab)
{
	return slab->n_places * slab->per_chunk;
}

size_t slab_live(const struct slab *slab)
{
	return slab->live;
}
