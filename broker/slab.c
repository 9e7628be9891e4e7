/* SPDX-License-Identifier: MIT */
/*
 * Memory for the many small things of which the broker has a million: block descriptors, buffers,
 * leases. malloc would add 8 to 16 bytes to each and scatter them; an array that grows would move
 * them, and stop the loop while it copies. So objects live in chunks of about 64 KiB that stay
 * where they are, and only the directory of chunks, eight bytes for each, is ever reallocated.
 *
 * There is nothing beside an object. A free one holds the pointer to the next free one inside
 * itself. Chunks are aligned to 64 KiB, so that the address of an object, with its low bits
 * cleared, is its chunk, which knows the index of its first object: that gives the index from the
 * object without a search and without a field.
 *
 * This file knows sizes and addresses. It must not know what the objects are, and does not find out
 * whether one is freed twice: generations, kept across frees, are for the callers who must.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "broker/slab.h"

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
 * A little short of the alignment, so that the alignment costs nothing: what malloc puts before a
 * chunk fits behind the chunk below, and they lie back to back. A full 64 KiB would leave a hole of
 * nearly 64 KiB after each; and with its alignment it would be above the size from which glibc maps
 * every allocation by itself, with twice the address space.
 */
#define CHUNK_SIZE (CHUNK_ALIGNMENT - 128u)

/* What an empty slab keeps, so that one that empties and fills does not go to malloc each time. */
#define CHUNKS_KEPT 4u

struct slab_chunk {
	const struct slab *slab; /* whose: an object handed to the wrong slab is found at once */
	uint32_t first_index;
	uint32_t unused;
	unsigned char objects[];
};

static_assert(offsetof(struct slab_chunk, objects) == 16, "objects start aligned");
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
	slab_init_keep(slab, object_size, 0);
}

void slab_init_keep(struct slab *slab, size_t object_size, size_t keep)
{
	assert(object_size >= sizeof(void *) && object_size <= SLAB_OBJECT_MAX);
	assert(keep <= object_size && round_up_to_8(keep) + sizeof(void *) <= object_size);

	*slab = (struct slab){
	    .stride = round_up_to_8(object_size),
	    .keep = (uint32_t)keep,
	    .link = round_up_to_8(keep),
	    .allocate = allocate_aligned,
	};
	slab->per_chunk = SLAB_OBJECT_MAX / slab->stride;
}

/* Gives back the chunks from `count` on. */
static void release_chunks(struct slab *slab, uint32_t count)
{
	while (slab->chunk_count > count) {
		struct slab_chunk *chunk = slab->chunks[--slab->chunk_count];

		ASAN_UNPOISON_MEMORY_REGION(chunk, CHUNK_SIZE);
		free(chunk);
	}
}

static void forget_objects(struct slab *slab)
{
	slab->fresh = 0;
	slab->free_list = NULL;
	slab->live = 0;
}

void slab_done(struct slab *slab)
{
	release_chunks(slab, 0);
	free(slab->chunks);
	slab->chunks = NULL;
	slab->chunk_room = 0;
	forget_objects(slab);
}

static bool grow_directory(struct slab *slab)
{
	uint32_t room = slab->chunk_room ? 2 * slab->chunk_room : 8;
	struct slab_chunk **chunks =
	    slab->allocate(sizeof(void *), room * sizeof(struct slab_chunk *));

	if (!chunks)
		return false;
	if (slab->chunk_count)
		memcpy(chunks, slab->chunks, slab->chunk_count * sizeof(struct slab_chunk *));
	free(slab->chunks);
	slab->chunks = chunks;
	slab->chunk_room = room;
	return true;
}

static bool add_chunk(struct slab *slab)
{
	uint64_t first_index = (uint64_t)slab->chunk_count * slab->per_chunk;
	struct slab_chunk *chunk;

	/* Every slot of the new chunk needs an index. */
	if (first_index + slab->per_chunk > UINT32_MAX)
		return false;
	if (slab->chunk_count == slab->chunk_room && !grow_directory(slab))
		return false;
	chunk = slab->allocate(CHUNK_ALIGNMENT, CHUNK_SIZE);
	if (!chunk)
		return false;
	assert(((uintptr_t)chunk & (CHUNK_ALIGNMENT - 1)) == 0);
	chunk->slab = slab;
	chunk->first_index = (uint32_t)first_index;
	chunk->unused = 0;
	slab->chunks[slab->chunk_count++] = chunk;
	return true;
}

static unsigned char *slot(const struct slab *slab, uint32_t index)
{
	struct slab_chunk *chunk = slab->chunks[index / slab->per_chunk];

	return chunk->objects + (size_t)(index % slab->per_chunk) * slab->stride;
}

static void *read_link(const struct slab *slab, const unsigned char *object)
{
	void *next;

	memcpy(&next, object + slab->link, sizeof(next));
	return next;
}

void *slab_alloc(struct slab *slab)
{
	unsigned char *object = slab->free_list;

	if (object) {
		ASAN_UNPOISON_MEMORY_REGION(object, slab->stride);
		slab->free_list = read_link(slab, object);
		memset(object + slab->keep, 0, slab->stride - slab->keep);
	} else {
		if (slab->fresh == slab->chunk_count * slab->per_chunk && !add_chunk(slab))
			return NULL;
		/* Zeroed only now: a chunk's pages are not touched before they are needed. */
		object = slot(slab, slab->fresh++);
		ASAN_UNPOISON_MEMORY_REGION(object, slab->stride);
		memset(object, 0, slab->stride);
	}
	slab->live++;
	return object;
}

void *slab_alloc_indexed(struct slab *slab, uint32_t *index)
{
	void *object = slab_alloc(slab);

	if (object)
		*index = slab_index(slab, object);
	return object;
}

uint32_t slab_index(const struct slab *slab, const void *object)
{
	uintptr_t address = (uintptr_t)object;
	const struct slab_chunk *chunk =
	    (const struct slab_chunk *)(address & ~(uintptr_t)(CHUNK_ALIGNMENT - 1));

	assert(chunk->slab == slab);
	return chunk->first_index + (uint32_t)(address - (uintptr_t)chunk->objects) / slab->stride;
}

void slab_free(struct slab *slab, void *object)
{
	if (!object)
		return;
	assert(slab->live > 0);
	assert(slab_index(slab, object) < slab->fresh);

	if (--slab->live == 0 && slab->keep == 0) {
		/* Nothing to remember: start over, in the order of addresses again. */
		ASAN_POISON_MEMORY_REGION(object, slab->stride);
		forget_objects(slab);
		release_chunks(slab, CHUNKS_KEPT);
		return;
	}
	memcpy((unsigned char *)object + slab->link, &slab->free_list, sizeof(void *));
	slab->free_list = object;
	ASAN_POISON_MEMORY_REGION((unsigned char *)object + slab->keep, slab->stride - slab->keep);
}

void slab_free_index(struct slab *slab, uint32_t index)
{
	void *object = slab_at(slab, index);

	assert(object);
	slab_free(slab, object);
}

void *slab_at(const struct slab *slab, uint32_t index)
{
	return index < slab->fresh ? slot(slab, index) : NULL;
}

size_t slab_live(const struct slab *slab)
{
	return slab->live;
}
