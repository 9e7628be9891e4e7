/* SPDX-License-Identifier: MIT */

/*
 * Where records lie. Chunks are added at the end of the file and stay what they are: one with a
 * type, with entries of one size. Free entries of a type and size are a list, which is in the
 * entries themselves; it is not trusted but made anew when a journal is opened, from the checksums,
 * which are 0 in free ones.
 */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/beat.h"
#include "broker/journal/inside.h"

/* ------------------------------------------------------------------------------------------- */
/* Sizes of entries: steps of 8 bytes up to 64, and then four to each power of two              */

uint32_t class_of(size_t entry_size)
{
	uint32_t log;

	if (entry_size <= 64)
		return (uint32_t)((entry_size + 7) / 8);
	log = 63 - (uint32_t)__builtin_clzl(entry_size - 1);
	return 8 + (log - 6) * 4 + (uint32_t)((entry_size - 1) >> (log - 2) & 3) + 1;
}

uint32_t size_of_class(uint32_t class)
{
	uint32_t log;

	if (class <= 8)
		return class * 8;
	log = 6 + (class - 9) / 4;
	return (UINT32_C(1) << log) + ((class - 9) % 4 + 1) * (UINT32_C(1) << (log - 2));
}

/* ------------------------------------------------------------------------------------------- */
/* Entries                                                                                     */

unsigned char *entry_at(const struct journal *j, uint32_t place)
{
	return j->memory + (uint64_t)place * PLACE_UNIT;
}

uint32_t entry_place(const struct journal *j, const unsigned char *entry)
{
	return (uint32_t)((uint64_t)(entry - j->memory) / PLACE_UNIT);
}

static uint32_t read_u32(const unsigned char *p)
{
	uint32_t value;

	memcpy(&value, p, sizeof(value));
	return value;
}

uint32_t entry_sum_now(const unsigned char *entry)
{
	return read_u32(entry);
}

static uint64_t entry_seed(enum record_type type, uint32_t place)
{
	return (uint64_t)type << 32 | place;
}

/* An odd one is of a record that was put, an even one of a record that is written in place. */
uint32_t entry_sum(enum record_type type, uint32_t place, const void *bytes, size_t size)
{
	return sum_of(entry_seed(type, place), bytes, size) | 1;
}

uint32_t entry_sum_in_place(enum record_type type, uint32_t place)
{
	uint32_t sum = sum_of(entry_seed(type, place), NULL, 0) & ~UINT32_C(1);

	return sum ? sum : 2;
}

void entry_file(struct journal *j, const struct chunk *chunk, unsigned char *entry)
{
	uint32_t *first = &j->free[chunk->type][class_of(chunk->entry_size)];

	memcpy(entry + 4, first, 4);
	*first = entry_place(j, entry);
}

/* ------------------------------------------------------------------------------------------- */
/* Chunks                                                                                      */

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

/* All of it is there before anybody writes to it, as a write to memory cannot fail: it kills. What
 * a copy has beyond the file is memory of its own. */
static int add_memory(struct journal *j, uint64_t size)
{
	if (!j->is_copy)
		return fallocate(j->fd, 0, (off_t)j->size, (off_t)size) < 0 ? -errno : 0;
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
static int add_chunk(struct journal *j, enum record_type type, uint32_t entry_size)
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

/* What is free by what happens in the open group is not filed yet: nobody is given it before the
 * commit, after which nobody needs any more what was there. */
uint32_t entry_take(struct journal *j, enum record_type type, size_t size)
{
	uint32_t class = class_of(size + 4), place;
	int r;

	assert(type > RECORD_NONE && type < RECORD_TYPES && size <= RECORD_SIZE_MAX);
	if (!j->free[type][class]) {
		r = add_chunk(j, type, size_of_class(class));
		if (r < 0) {
			journal_end(j, -r);
			return 0;
		}
	}
	place = j->free[type][class];
	j->free[type][class] = read_u32(entry_at(j, place) + 4);
	j->count[type]++;
	return place;
}

/* ------------------------------------------------------------------------------------------- */
/* Reading                                                                                     */

void *journal_in_place(struct journal *j, uint32_t record)
{
	/* after the checksum are four bytes for the list of free ones: so the caller's are aligned
	 */
	return entry_at(j, record) + 8;
}

int journal_read(struct journal *j, enum record_type type, size_t least, journal_reader *reader,
		 void *data)
{
	struct chunk *chunk = NULL;
	int r = 0;

	while (r >= 0 && (chunk = chunk_next(j, chunk))) {
		beat(); /* it has some thousand records at most */
		for (uint32_t i = 0; r >= 0 && chunk->type == type && i < chunk->n; i++) {
			unsigned char *entry = chunk->entries + (size_t)i * chunk->entry_size;
			uint32_t sum = entry_sum_now(entry);
			size_t head = sum & 1 ? 4 : 8;

			if (sum == 0)
				continue;
			r = chunk->entry_size < head + least
				? -EBADMSG
				: reader(data, entry_place(j, entry), entry + head,
					 chunk->entry_size - head);
		}
	}
	return r;
}

const void *journal_bytes(const struct journal *j, uint32_t record, size_t *size)
{
	*size = chunk_of(j, record)->entry_size - 4;
	return entry_at(j, record) + 4;
}

uint64_t journal_size(const struct journal *j)
{
	return j->used - FIRST_CHUNK;
}

uint32_t journal_count(const struct journal *j, enum record_type type)
{
	return j->count[type];
}
