/* SPDX-License-Identifier: MIT */

/* Chunks of entries. They are added at the end of the file and stay what they are: one with a type,
 * with entries of one size. */

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "broker/journal/inside.h"

/* An entry that has a chunk alone begins within the first CHUNK_SIZE bytes of it, like all others.
 */
struct chunk *chunk_of(const struct journal *j, uint32_t place)
{
	uint64_t offset = (uint64_t)place * PLACE_UNIT - FIRST_CHUNK;

	return (struct chunk *)(void *)(j->memory + FIRST_CHUNK + offset / CHUNK_SIZE * CHUNK_SIZE);
}

struct chunk *chunk_next(const struct journal *j, struct chunk *chunk)
{
	unsigned char *next =
	    chunk ? (unsigned char *)chunk + chunk->span * CHUNK_SIZE : j->memory + FIRST_CHUNK;

	return next < j->memory + j->used ? (struct chunk *)(void *)next : NULL;
}

uint32_t chunk_sum(const struct journal *j, const struct chunk *chunk)
{
	return sum_of((uint64_t)((const unsigned char *)chunk - j->memory), chunk,
		      offsetof(struct chunk, sum));
}

uint16_t chunk_span(uint32_t entry_size)
{
	return (uint16_t)((sizeof(struct chunk) + entry_size + CHUNK_SIZE - 1) / CHUNK_SIZE);
}

uint32_t chunk_entries(uint32_t entry_size)
{
	if (chunk_span(entry_size) > 1)
		return 1;
	return (uint32_t)((CHUNK_SIZE - sizeof(struct chunk)) / entry_size);
}

uint64_t chunks_word(uint32_t n)
{
	return (uint64_t)sum_of(FIRST_CHUNK, &n, sizeof(n)) << 32 | n;
}

/* A signal ends fallocate() of memory with EINTR, and so do a stop and a freeze of the cgroup. */
int journal_allocate(const struct journal *j, uint64_t offset, uint64_t size)
{
	int r;

	do
		r = fallocate(j->fd, 0, (off_t)offset, (off_t)size);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* All of it is there before anybody writes to it, as a write to memory cannot fail: it kills. What
 * a copy has beyond the file is memory of its own. */
static int add_memory(struct journal *j, uint64_t size)
{
	if (!j->is_copy)
		return journal_allocate(j, j->size, size);
	return mmap(j->memory + j->size, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
		   ? -errno
		   : 0;
}

int journal_grow(struct journal *j, uint64_t size)
{
	uint64_t wanted = (size + GROW_BY - 1) / GROW_BY * GROW_BY;
	int r;

	if (size <= j->size)
		return 0;
	if (wanted > JOURNAL_MAX)
		return -EFBIG;
	r = add_memory(j, wanted - j->size);
	if (r < 0)
		return r;
	j->size = wanted;
	return 0;
}

/* It is there when it is counted. Until then who opens the journal does not look at it, and all its
 * entries are zeros, as nothing else was ever written here. */
int chunk_add(struct journal *j, enum record_type type, uint32_t entry_size)
{
	struct chunk *chunk = (struct chunk *)(void *)(j->memory + j->used);
	uint64_t used = j->used + chunk_span(entry_size) * CHUNK_SIZE;
	int r = journal_grow(j, used);

	if (r < 0)
		return r;
	chunk->type = (uint16_t)type;
	chunk->span = chunk_span(entry_size);
	chunk->entry_size = entry_size;
	chunk->n = chunk_entries(entry_size);
	chunk->sum = chunk_sum(j, chunk);
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&j->head->chunks,
			      chunks_word((uint32_t)((used - FIRST_CHUNK) / CHUNK_SIZE)),
			      memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	j->used = used;
	for (uint32_t i = chunk->n; i-- > 0;)
		entry_file(j, chunk, chunk->entries + (size_t)i * entry_size);
	return 0;
}
