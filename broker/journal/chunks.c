/* SPDX-License-Identifier: MIT */

/*
 * Chunks of entries. They are added at the end of the file and keep their type and the size of
 * their entries. When all entries of a chunk are free, its memory can be given back, but for the
 * first page, which says what the chunk is. Such a hole reads as free entries do. Nobody writes
 * down that it is one, as the file itself says that it has no data there.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/journal/inside.h"
#include "broker/log/log.h"

/* An entry that is alone in its chunk begins within the chunk's first CHUNK_SIZE bytes, like all
 * others. */
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

struct chunk_state *chunk_state(const struct journal *j, const struct chunk *chunk)
{
	return &j->chunks[((uint64_t)((const unsigned char *)chunk - j->memory) - FIRST_CHUNK) /
			  CHUNK_SIZE];
}

static struct chunk *chunk_with(const struct journal *j, const struct chunk_state *s)
{
	return (struct chunk *)(void *)(j->memory + FIRST_CHUNK +
					(uint64_t)(s - j->chunks) * CHUNK_SIZE);
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

uint64_t journal_taken_by(size_t size)
{
	uint32_t entry_size = size_of_class(class_of(sizeof(uint32_t) + size));

	return chunk_span(entry_size) * CHUNK_SIZE / chunk_entries(entry_size);
}

uint64_t chunks_word(uint32_t n)
{
	return (uint64_t)sum_of(FIRST_CHUNK, &n, sizeof(n)) << 32 | n;
}

void journal_end(struct journal *j, int error)
{
	if (j->has_ended)
		return;
	j->has_ended = true;
	j->head->ended = 1;
	log_error(
	    "the journal ends here (%s): if the broker dies, what its clients have ends with it",
	    strerror(error));
}

/* A signal ends fallocate() of memory with EINTR, and so does a stop or a freeze of the cgroup. */
int journal_allocate(const struct journal *j, uint64_t offset, uint64_t size)
{
	int r;

	do
		r = fallocate(j->fd, 0, (off_t)offset, (off_t)size);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

/* Gets all memory before anybody writes to it, as a write without memory does not fail but kills.
 * What a copy has beyond the file is memory of its own. */
static int add_memory(struct journal *j, uint64_t offset, uint64_t size)
{
	if (!j->is_copy)
		return journal_allocate(j, offset, size);
	return mmap(j->memory + offset, size, PROT_READ | PROT_WRITE,
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
	r = add_memory(j, j->size, wanted - j->size);
	if (r < 0)
		return r;
	j->size = wanted;
	return 0;
}

void entry_file(struct journal *j, const struct chunk *chunk, unsigned char *entry)
{
	struct chunk_state *s = chunk_state(j, chunk);

	if (!s->free)
		LIST_INSERT_HEAD(&j->with_free[chunk->type][class_of(chunk->entry_size)], s, link);
	memcpy(entry + 4, &s->free, 4);
	s->free = entry_place(j, entry);
}

static void file_all(struct journal *j, struct chunk *chunk)
{
	for (uint32_t i = chunk->n; i-- > 0;)
		entry_file(j, chunk, chunk->entries + (size_t)i * chunk->entry_size);
	chunk_is_empty(j, chunk_state(j, chunk));
}

/* Adds a chunk, which is there when it is counted. Until then whoever opens the journal does not
 * look at it, and all its entries are zeros, as nothing else was ever written here. */
static int chunk_add(struct journal *j, enum record_type type, uint32_t entry_size)
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
	file_all(j, chunk);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Holes                                                                                       */

struct range {
	uint64_t offset, size; /* `size` 0: a page is as large as the chunk */
};

static struct range hole_in(const struct journal *j, const struct chunk *chunk)
{
	uint64_t offset = (uint64_t)((const unsigned char *)chunk - j->memory);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), size = chunk->span * CHUNK_SIZE;

	return (struct range){offset + page, size > page ? size - page : 0};
}

void chunk_becomes_hole(struct journal *j, struct chunk_state *s)
{
	const struct chunk *chunk = chunk_with(j, s);

	j->given_back += hole_in(j, chunk).size;
	LIST_INSERT_HEAD(&j->holes[chunk->type][class_of(chunk->entry_size)], s, link);
}

static bool give_back(struct journal *j, struct chunk_state *s)
{
	struct range hole = hole_in(j, chunk_with(j, s));

	if (hole.size == 0 || fallocate(j->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)hole.offset, (off_t)hole.size) < 0)
		return false;
	LIST_REMOVE(s, link);
	s->free = 0;
	chunk_is_used(j, s);
	chunk_becomes_hole(j, s);
	return true;
}

void chunk_is_empty(struct journal *j, struct chunk_state *s)
{
	TAILQ_INSERT_TAIL(&j->empty, s, of_empty);
	j->n_empty++;
}

void chunk_is_used(struct journal *j, struct chunk_state *s)
{
	TAILQ_REMOVE(&j->empty, s, of_empty);
	j->n_empty--;
}

/* In a copy nothing is given back, as the file is another process's. */
void chunks_empty(struct journal *j)
{
	while (j->n_empty > j->spare_empty && !j->is_copy && give_back(j, TAILQ_FIRST(&j->empty)))
		;
}

/* Whether an entry is in use that begins in the first page: such entries may be all that was
 * written. */
static bool has_live_entry(const struct chunk *chunk, uint64_t size)
{
	for (uint32_t i = 0; i < chunk->n; i++) {
		uint64_t at = sizeof(*chunk) + (uint64_t)i * chunk->entry_size;

		if (at + 4 > size)
			return false;
		if (entry_sum_now((const unsigned char *)chunk + at))
			return true;
	}
	return false;
}

bool chunk_is_hole(const struct journal *j, const struct chunk *chunk, uint64_t *data)
{
	struct range hole = hole_in(j, chunk);
	off_t found;

	if (*data < hole.offset) {
		found = lseek(j->fd, (off_t)hole.offset, SEEK_DATA);
		*data = found >= 0 ? (uint64_t)found : errno == ENXIO ? UINT64_MAX : hole.offset;
	}
	return hole.size > 0 && *data >= hole.offset + hole.size &&
	       !has_live_entry(chunk, chunk->span * CHUNK_SIZE - hole.size);
}

static int fill(struct journal *j, struct chunk_state *s)
{
	struct chunk *chunk = chunk_with(j, s);
	struct range hole = hole_in(j, chunk);
	int r = add_memory(j, hole.offset, hole.size);

	if (r < 0)
		return r;
	LIST_REMOVE(s, link);
	j->given_back -= hole.size;
	file_all(j, chunk);
	return 0;
}

int chunk_get(struct journal *j, enum record_type type, uint32_t class)
{
	struct chunk_state *hole = LIST_FIRST(&j->holes[type][class]);

	return hole ? fill(j, hole) : chunk_add(j, type, size_of_class(class));
}
