/* SPDX-License-Identifier: MIT */

/*
 * Where records lie. The free entries of a chunk are a list, which is in the entries themselves.
 * When a journal is opened, that list is not trusted but made anew from the checksums, which are 0
 * in free entries.
 */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/beat.h"
#include "broker/journal/inside.h"

void entry_free(struct journal *j, const struct chunk *chunk, unsigned char *entry)
{
	struct chunk_state *s = chunk_state(j, chunk);

	entry_file(j, chunk, entry);
	j->count[chunk->type]--;
	if (--s->live == 0)
		chunk_is_empty(j, s);
}

/* An entry that becomes free in the open group is not in the list yet. So nobody is given it before
 * the commit; after that nobody needs what was there. */
uint32_t entry_take(struct journal *j, enum record_type type, size_t size)
{
	uint32_t class = class_of(size + 4), place;
	struct chunk_state *s;
	int r;

	assert(type > RECORD_NONE && type < RECORD_TYPES && size <= RECORD_SIZE_MAX);
	if (LIST_EMPTY(&j->with_free[type][class])) {
		r = chunk_get(j, type, class);
		if (r < 0) {
			journal_end(j, -r);
			return 0;
		}
	}
	s = LIST_FIRST(&j->with_free[type][class]);
	place = s->free;
	memcpy(&s->free, entry_at(j, place) + 4, 4);
	if (!s->free)
		LIST_REMOVE(s, link);
	if (s->live++ == 0)
		chunk_is_used(j, s);
	j->count[type]++;
	return place;
}

/* ------------------------------------------------------------------------------------------- */
/* Reading                                                                                     */

void *journal_in_place(struct journal *j, uint32_t record)
{
	/* four bytes for the list of free entries follow the checksum, so that the caller's bytes
	 * are aligned */
	return entry_at(j, record) + 8;
}

int journal_read(struct journal *j, enum record_type type, size_t least, journal_reader *reader,
		 void *data)
{
	struct chunk *chunk = NULL;
	int r = 0;

	while (r >= 0 && (chunk = chunk_next(j, chunk))) {
		beat(); /* a chunk has some thousand records at most */
		if (chunk->type != type || chunk_state(j, chunk)->live == 0)
			continue;
		for (uint32_t i = 0; r >= 0 && i < chunk->n; i++) {
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
	return j->used - FIRST_CHUNK - j->given_back;
}

uint32_t journal_count(const struct journal *j, enum record_type type)
{
	return j->count[type];
}
