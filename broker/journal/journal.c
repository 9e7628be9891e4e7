/* SPDX-License-Identifier: MIT */

/* A journal as a whole: how it is made, opened and ended, and its inbox. inside.h says what is in
 * its memory, and why it survives. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/system/descriptor.h"
#include "base/system/mapping.h"
#include "broker/journal/inside.h"

/* The number of the first group of a new journal. Nothing is in it; it is there so that one
 * group always counts. */
#define FIRST_GROUP 1u

#define CHUNKS_SIZE (JOURNAL_MAX / CHUNK_SIZE * sizeof(struct chunk_state))

static int get_memory(struct journal *j)
{
	int r;

	/* what there is of a journal that was never finished is thrown away */
	if (ftruncate(j->fd, 0) < 0 || ftruncate(j->fd, (off_t)FIRST_CHUNK) < 0)
		return -errno;
	r = journal_allocate(j, 0, HEAD_SIZE);
	for (uint64_t i = 0; r == 0 && i < 2; i++) {
		r = journal_allocate(j, HEAD_SIZE + i * GROUP_SIZE, GROUP_LEAST);
		j->reserved[i] = GROUP_LEAST;
	}
	j->size = FIRST_CHUNK;
	return r < 0 ? r : journal_grow(j, FIRST_CHUNK + GROW_BY);
}

static int make_new(struct journal *j)
{
	int r = get_memory(j);

	if (r < 0)
		return r;
	j->used = FIRST_CHUNK;
	atomic_store_explicit(&j->head->chunks, chunks_word(0), memory_order_relaxed);
	group_open(j);
	group_seal(j->open);
	atomic_store_explicit(&j->head->committed, FIRST_GROUP, memory_order_relaxed);
	j->layout = state_layout();
	j->head->version = JOURNAL_VERSION + j->layout;
	atomic_signal_fence(memory_order_seq_cst);
	j->head->magic = JOURNAL_MAGIC;
	return 0;
}

static int open_old(struct journal *j, char *why, size_t why_size)
{
	int r = journal_check(j, why, why_size);

	if (r < 0)
		return r;
	/* it is not known how much memory the groups have, so all beyond the least is given back */
	j->reserved[0] = j->reserved[1] = GROUP_SIZE;
	j->is_old = atomic_load_explicit(&j->head->committed, memory_order_relaxed) > FIRST_GROUP;
	/* without a commit there is no client whose packet this could be */
	j->has_unhandled &= j->is_old;
	return 0;
}

static bool was_made(const struct journal *j)
{
	return j->size > 0 &&
	       (j->head->magic ||
		atomic_load_explicit(&j->head->committed, memory_order_relaxed) > FIRST_GROUP);
}

static int map(struct journal *j)
{
	struct stat st;
	void *memory;

	if (fstat(j->fd, &st) < 0)
		return -errno;
	memory = mapping_make(NULL, JOURNAL_MAX, PROT_READ | PROT_WRITE,
			      MAP_NORESERVE | (j->is_copy ? MAP_PRIVATE : MAP_SHARED), j->fd);
	if (!memory)
		return -errno;
	j->memory = memory;
	j->head = memory;
	j->size = (uint64_t)st.st_size;
	return 0;
}

static int open_journal(int fd, bool copy, struct journal **out, char *why, size_t why_size)
{
	struct journal *j = calloc(1, sizeof(*j));
	char limit[FAILURE_LIMIT_TEXT];
	int r = j ? 0 : -ENOMEM;

	if (r == 0) {
		j->fd = -1;
		j->spare_empty = EMPTY_SPARE;
		TAILQ_INIT(&j->empty);
		/* Only those that are used get memory from the system. calloc() would clear all of
		 * them if memory that was freed before has room for them. */
		j->chunks = mmap(NULL, CHUNKS_SIZE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (j->chunks == MAP_FAILED) {
			j->chunks = NULL;
			r = -ENOMEM;
		}
	}
	if (r == 0) {
		j->is_copy = copy;
		j->fd = fd_dup(fd);
		r = j->fd < 0 ? j->fd : map(j);
	}
	if (r == 0)
		r = was_made(j) ? open_old(j, why, why_size) : make_new(j);
	if (r < 0) {
		if (r != -EBADMSG)
			snprintf(why, why_size, "%s%s", strerror(-r), failure_limit(-r, limit));
		journal_free(j);
		return r;
	}
	group_open(j);
	*out = j;
	return 0;
}

int journal_new(int fd, struct journal **out, char *why, size_t why_size)
{
	return open_journal(fd, false, out, why, why_size);
}

int journal_copy(int fd, struct journal **out, char *why, size_t why_size)
{
	return open_journal(fd, true, out, why, why_size);
}

void journal_free(struct journal *j)
{
	if (!j)
		return;
	if (j->memory)
		munmap(j->memory, JOURNAL_MAX);
	fd_close(j->fd);
	if (j->chunks)
		munmap(j->chunks, CHUNKS_SIZE);
	free(j);
}

bool journal_is_old(const struct journal *j)
{
	return j->is_old;
}

/* ------------------------------------------------------------------------------------------- */
/* Layouts                                                                                     */

int journal_set_layout(struct journal *j, uint64_t layout)
{
	if (layout > state_layout())
		return -EBADMSG;
	j->layout = (uint32_t)layout;
	return 0;
}

uint32_t journal_layout(const struct journal *j)
{
	return j->layout;
}

/* The version says the layout before the record does, and counts at once. If the broker is killed
 * in between, the next one finds records of the older layout, which it can read as well. */
bool journal_raise_layout(struct journal *j)
{
	bool is_older = j->layout < state_layout();

	j->layout = state_layout();
	j->head->version = JOURNAL_VERSION + j->layout;
	return is_older;
}

/* ------------------------------------------------------------------------------------------- */
/* The inbox                                                                                   */

struct inbox *journal_inbox(struct journal *j)
{
	return &j->head->inbox;
}

/* First the old packet is made none, and last, by the receiving, the new one is there. What is
 * written in between counts only with a packet. */
void journal_expect(struct journal *j, uint64_t client)
{
	struct inbox *inbox = &j->head->inbox;

	inbox->header.msg_len = 0;
	atomic_signal_fence(memory_order_seq_cst);
	inbox->number++;
	inbox->client = client;
	inbox->attempts = 0;
	inbox->check = inbox_check(inbox);
	atomic_signal_fence(memory_order_seq_cst);
}

size_t journal_take_unhandled(struct journal *j)
{
	size_t size = j->has_unhandled ? j->head->inbox.header.msg_len : 0;

	j->has_unhandled = false;
	return size;
}
