/* SPDX-License-Identifier: MIT */

/*
 * What happens to records until it is committed. All is noted in the open group; the entries
 * themselves are written only after the commit, as the group says. If the process is killed
 * meanwhile, they are all written again from the group: each operation says what an entry is, and
 * not how it changes, so it does not matter how far the first time has come.
 */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>

#include "base/mutation.h"
#include "broker/journal/inside.h"

struct group *group_of(const struct journal *j, uint64_t number)
{
	return (struct group *)(void *)(j->memory + HEAD_SIZE + (number & 1) * GROUP_SIZE);
}

/* Gives so many bytes of the open group memory. */
static int reserve(struct journal *j, uint64_t size)
{
	uint64_t *reserved = &j->reserved[j->open->number & 1];
	uint64_t offset = (uint64_t)((unsigned char *)j->open - j->memory);
	uint64_t wanted = (size + GROW_BY - 1) / GROW_BY * GROW_BY;
	int r;

	if (size <= *reserved)
		return 0;
	if (wanted > GROUP_SIZE)
		return -ENOBUFS;
	if (j->is_copy)
		return -EROFS;
	r = journal_allocate(j, offset + *reserved, wanted - *reserved);
	if (r == 0)
		*reserved = wanted;
	return r;
}

/* Gives back what a group that does not count any more was larger than others. */
static void trim(struct journal *j, struct group *g, uint64_t *reserved)
{
	uint64_t offset = (uint64_t)((unsigned char *)g - j->memory) + GROUP_LEAST;

	if (*reserved <= GROUP_LEAST || j->is_copy)
		return;
	fallocate(j->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		  (off_t)(GROUP_SIZE - GROUP_LEAST));
	*reserved = GROUP_LEAST;
}

void group_open(struct journal *j)
{
	uint64_t number = atomic_load_explicit(&j->head->committed, memory_order_relaxed) + 1;

	j->open = group_of(j, number);
	trim(j, j->open, &j->reserved[number & 1]);
	j->open->number = number;
	j->open->n = 0;
	j->end = j->open->operations;
	j->last = NULL;
}

void group_seal(struct group *g)
{
	g->operations_sum = sum_of(g->number, g->operations, g->size);
	g->sum = sum_of(g->number, g, offsetof(struct group, sum));
}

/* All sizes are multiples of four bytes, so operations lie one behind the other. */
size_t operation_room(uint32_t size)
{
	return sizeof(struct operation) + size;
}

static struct operation *add_operation(struct journal *j, uint32_t place, uint32_t size)
{
	struct operation *op = (struct operation *)(void *)j->end;
	unsigned char *end = j->end + operation_room(size);
	int r = reserve(j, (uint64_t)(end - (unsigned char *)j->open));

	if (r < 0) {
		journal_end(j, -r);
		return NULL;
	}
	op->place = place;
	op->size = size;
	j->end = end;
	j->open->n++;
	j->last = op;
	return op;
}

/* Finds an entry for a record of this size, and returns how many bytes it has room for. *record may
 * have one already. 0: the journal has ended. */
static uint32_t find_room(struct journal *j, enum record_type type, uint32_t *record, size_t size)
{
	if (*record && chunk_of(j, *record)->entry_size != size_of_class(class_of(size + 4)))
		journal_drop(j, record);
	if (!*record && !j->has_ended)
		*record = entry_take(j, type, size);
	return *record ? chunk_of(j, *record)->entry_size - 4 : 0;
}

void journal_put_parts(struct journal *j, enum record_type type, uint32_t *record,
		       const struct iovec *parts, size_t n)
{
	struct operation *op = j->last;
	unsigned char *bytes;
	uint32_t room;
	size_t size = 0;

	for (size_t i = 0; i < n; i++)
		size += parts[i].iov_len;
	assert(size <= RECORD_SIZE_MAX);
	if (j->has_ended)
		return;
	room = find_room(j, type, record, size);
	if (room == 0)
		return;
	/* a record that was put just now and is put again is not noted twice */
	if (!op || op->place != *record || op->size != room)
		op = add_operation(j, *record, room);
	if (!op)
		return;
	bytes = (unsigned char *)(op + 1);
	for (size_t i = 0; i < n; i++) {
		if (parts[i].iov_len > 0)
			memcpy(bytes, parts[i].iov_base, parts[i].iov_len);
		bytes += parts[i].iov_len;
	}
	memset(bytes, 0, room - size);
	op->sum = entry_sum(type, *record, op + 1, room);
}

void journal_put(struct journal *j, enum record_type type, uint32_t *record, const void *bytes,
		 size_t size)
{
	const struct iovec part = {(void *)(uintptr_t)bytes, size};

	journal_put_parts(j, type, record, &part, 1);
}

void journal_drop(struct journal *j, uint32_t *record)
{
	struct operation *op;

	if (*record && !j->has_ended) {
		op = add_operation(j, *record, 0);
		if (op)
			op->sum = 0;
	}
	*record = 0;
}

void *journal_place(struct journal *j, enum record_type type, uint32_t *record, size_t size)
{
	struct operation *op;

	*record = j->has_ended ? 0 : entry_take(j, type, size + 4);
	op = *record ? add_operation(j, *record, 0) : NULL;
	if (!op) {
		*record = 0;
		return NULL;
	}
	op->sum = entry_sum_in_place(type, *record);
	return memset(journal_in_place(j, *record), 0, size);
}

void group_apply(struct journal *j, const struct group *g, bool filing)
{
	const unsigned char *next = g->operations;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct operation *op = (const struct operation *)(const void *)next;
		unsigned char *entry = entry_at(j, op->place);
		const struct chunk *chunk;

		if (op->size > 0)
			memcpy(entry + 4, op + 1, op->size);
		memcpy(entry, &op->sum, 4);
		next += operation_room(op->size);
		if (!filing || op->sum)
			continue;
		chunk = chunk_of(j, op->place);
		entry_free(j, chunk, entry);
	}
}

bool journal_is_committed(const struct journal *j)
{
	const struct inbox *inbox = &j->head->inbox;

	return j->has_ended ||
	       (j->open->n == 0 &&
		(j->has_unhandled || j->handled == inbox->number || inbox->header.msg_len == 0));
}

void journal_commit(struct journal *j)
{
	struct group *g = j->open;

	if (journal_is_committed(j))
		return;
	g->handled = j->has_unhandled ? j->handled : j->head->inbox.number;
	g->size = (uint64_t)(j->end - g->operations);
	if (MUTATION(applied_before_it_counts))
		group_apply(j, g, false);
	group_seal(g);
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&j->head->committed, g->number, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	/* whoever opens the journal from now on writes what this group says, and nothing else */
	if (!MUTATION(emptied_while_it_counts))
		chunks_empty(j);
	group_apply(j, g, true);
	if (MUTATION(emptied_while_it_counts))
		chunks_empty(j);
	atomic_signal_fence(memory_order_seq_cst);
	j->handled = g->handled;
	group_open(j);
}
