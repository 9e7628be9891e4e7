/* SPDX-License-Identifier: MIT */

/*
 * Opens a journal of a broker that was killed at any instruction, or whose memory was damaged. What
 * was committed last is written to its entries once more; then each record, and all that says where
 * records are, has to agree with its checksum. Two things are left to others: what is written in
 * place is checked by who reads it, and the packet in the inbox, which is a client's, by who
 * handles it.
 */

#include <errno.h>
#include <stdio.h>

#include "base/beat.h"
#include "base/mutation.h"
#include "broker/journal/inside.h"

static int distrust(char *why, size_t size, const char *what, uint64_t where)
{
	snprintf(why, size, "%s (at byte %llu)", what, (unsigned long long)where);
	return -EBADMSG;
}

/* ------------------------------------------------------------------------------------------- */
/* What was committed last                                                                     */

/* Whether this is the place of an entry, as nothing else may be written to. That its chunk is a
 * chunk has been found out before. */
static bool is_entry(const struct journal *j, uint64_t place, uint32_t size)
{
	uint64_t offset = place * PLACE_UNIT, in_chunk;
	const struct chunk *chunk;

	if (offset < FIRST_CHUNK || offset >= j->used)
		return false;
	chunk = chunk_of(j, (uint32_t)place);
	in_chunk = (offset - FIRST_CHUNK) % CHUNK_SIZE;
	return chunk->sum == chunk_sum(j, chunk) && offset + chunk->entry_size <= j->used &&
	       in_chunk >= sizeof(*chunk) && (in_chunk - sizeof(*chunk)) % chunk->entry_size == 0 &&
	       (in_chunk - sizeof(*chunk)) / chunk->entry_size < chunk->n &&
	       (size == 0 || size == chunk->entry_size - 4);
}

static bool are_operations(const struct journal *j, const struct group *g)
{
	const unsigned char *next = g->operations, *last = next + g->size;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct operation *op = (const struct operation *)(const void *)next;

		if ((size_t)(last - next) < sizeof(*op) || op->size % 4 != 0 ||
		    (size_t)(last - next) - sizeof(*op) < op->size ||
		    !is_entry(j, op->place, op->size))
			return false;
		next += operation_room(op->size);
	}
	return true;
}

static int check_group(const struct journal *j, const struct group *g, uint64_t number, char *why,
		       size_t why_size)
{
	uint64_t where = (uint64_t)((const unsigned char *)g - j->memory);

	if (number == 0 || g->number != number ||
	    g->sum != sum_of(g->number, g, offsetof(struct group, sum)) ||
	    g->size > GROUP_SIZE - sizeof(*g) ||
	    g->operations_sum != sum_of(g->number, g->operations, g->size))
		return distrust(why, why_size, "what was last committed is damaged", where);
	if (!are_operations(j, g))
		return distrust(why, why_size, "what was last committed makes no sense", where);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Chunks and records                                                                          */

static bool is_chunk(const struct journal *j, const struct chunk *chunk)
{
	uint64_t left = j->used - (uint64_t)((const unsigned char *)chunk - j->memory);

	return chunk->sum == chunk_sum(j, chunk) && chunk->type > RECORD_NONE &&
	       chunk->type < RECORD_TYPES && chunk->entry_size >= 8 &&
	       chunk->entry_size <= 2 * RECORD_SIZE_MAX &&
	       chunk->entry_size == size_of_class(class_of(chunk->entry_size)) &&
	       chunk->span == chunk_span(chunk->entry_size) && chunk->span * CHUNK_SIZE <= left &&
	       chunk->n == chunk_entries(chunk->entry_size);
}

static int check_chunks(struct journal *j, char *why, size_t why_size)
{
	uint64_t word = atomic_load_explicit(&j->head->chunks, memory_order_acquire);
	uint64_t n = (uint32_t)word;
	struct chunk *chunk = NULL;

	if (word != chunks_word((uint32_t)n))
		return distrust(why, why_size, "the number of chunks is damaged",
				offsetof(struct head, chunks));
	if (n > (j->size - FIRST_CHUNK) / CHUNK_SIZE)
		return distrust(why, why_size, "the journal is cut off", j->size);
	j->used = FIRST_CHUNK + n * CHUNK_SIZE;
	while ((chunk = chunk_next(j, chunk)))
		if (!is_chunk(j, chunk))
			return distrust(why, why_size, "a chunk of records is damaged",
					(uint64_t)((unsigned char *)chunk - j->memory));
	return 0;
}

static int read_chunk(struct journal *j, struct chunk *chunk, uint64_t *data, char *why,
		      size_t why_size)
{
	enum record_type type = (enum record_type)chunk->type;
	struct chunk_state *s = chunk_state(j, chunk);

	if (chunk_is_hole(j, chunk, data)) {
		chunk_becomes_hole(j, s);
		return 0;
	}

	for (uint32_t i = chunk->n; i-- > 0;) {
		unsigned char *entry = chunk->entries + (size_t)i * chunk->entry_size;
		uint32_t sum = entry_sum_now(entry), place = entry_place(j, entry);

		if (sum == 0) {
			entry_file(j, chunk, entry);
			continue;
		}
		if (!MUTATION(sum_not_compared) &&
		    sum != (sum & 1 ? entry_sum(type, place, entry + 4, chunk->entry_size - 4)
				    : entry_sum_in_place(type, place)))
			return distrust(why, why_size, "a record is damaged",
					(uint64_t)place * PLACE_UNIT);
		j->count[type]++;
		s->live++;
	}
	if (s->live == 0)
		chunk_is_empty(j, s);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* The whole                                                                                   */

static int check_head(const struct journal *j, char *why, size_t why_size)
{
	uint32_t last = JOURNAL_VERSION + state_layout();

	if (j->head->magic != JOURNAL_MAGIC)
		return distrust(why, why_size, "this is no journal", 0);
	if (j->size < FIRST_CHUNK)
		return distrust(why, why_size, "the journal is cut off", j->size);
	if (j->size > JOURNAL_MAX)
		return distrust(why, why_size, "the journal is too large", j->size);
	if (j->head->version < JOURNAL_VERSION || j->head->version > last) {
		snprintf(why, why_size,
			 "the journal is of version %u, which another program has written, and "
			 "this one reads %u at most",
			 j->head->version, last);
		return -EBADMSG;
	}
	if (j->head->ended) {
		snprintf(why, why_size, "the journal ended before the broker did");
		return -EBADMSG;
	}
	return 0;
}

uint64_t inbox_check(const struct inbox *inbox)
{
	return sum_of(inbox->client, &inbox->number, sizeof(inbox->number));
}

/* A packet that is larger than the inbox was not received whole, and is none. */
static int check_inbox(struct journal *j, char *why, size_t why_size)
{
	const struct inbox *inbox = &j->head->inbox;

	if (inbox->header.msg_len == 0 || inbox->header.msg_len > sizeof(inbox->packet))
		return 0;
	j->has_unhandled =
	    (inbox->number != j->handled || MUTATION(inbox_handled_twice)) && !MUTATION(inbox_lost);
	if (inbox->check != inbox_check(inbox))
		return distrust(why, why_size, "what was received is damaged",
				offsetof(struct head, inbox));
	return 0;
}

int journal_check(struct journal *j, char *why, size_t why_size)
{
	uint64_t committed = 0, data = 0;
	struct chunk *chunk = NULL;
	struct group *g = NULL;
	int r = check_head(j, why, why_size);

	if (r == 0)
		r = check_chunks(j, why, why_size);
	if (r == 0) {
		committed = atomic_load_explicit(&j->head->committed, memory_order_acquire);
		g = group_of(j, committed);
		r = check_group(j, g, committed, why, why_size);
	}
	if (r == 0) {
		if (!MUTATION(group_not_applied_again))
			group_apply(j, g, false);
		j->handled = g->handled;
	}
	while (r == 0 && (chunk = chunk_next(j, chunk))) {
		beat();
		r = read_chunk(j, chunk, &data, why, why_size);
	}
	if (r == 0)
		r = check_inbox(j, why, why_size);
	return r;
}
