/* SPDX-License-Identifier: MIT */

/*
 * The importer of memory that another process had already: a mapping of the pages in which the
 * segment lies, which may begin anywhere in the first of them. A process that has given the memory
 * itself keeps using it where it is, and for it nothing is mapped.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/error.h>

#include "base/mapping.h"
#include "memory/adopt.h"
#include "memory/importer.h"

struct adopted {
	LIST_ENTRY(adopted) link;
	char *address;
	uint64_t size, offset; /* in the file */
	dev_t device;
	ino_t inode;
	void (*done)(void *data); /* NULL: nobody is told */
	void *data;
	unsigned refs;
	bool identified;
	unsigned char identity[16];
};

/* Over all of them, in this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, adopted) all = LIST_HEAD_INITIALIZER(all);

/* In a forked child nobody holds the lock, whatever it looks like; and what its parent has adopted
 * is no buffer of the child's. So a child maps such a buffer as any other process does, whatever
 * has become of the mapping that it has inherited. */
static void start_anew(void)
{
	struct adopted *a;

	pthread_mutex_init(&lock, NULL);
	LIST_FOREACH (a, &all, link)
		a->done = NULL;
	LIST_INIT(&all);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_anew);
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

static bool is_taken_locked(const struct adopted *is)
{
	const struct adopted *a;

	LIST_FOREACH (a, &all, link)
		if (overlap((uintptr_t)a->address, a->size, (uintptr_t)is->address, is->size) ||
		    (a->device == is->device && a->inode == is->inode &&
		     overlap(a->offset, a->size, is->offset, is->size)))
			return true;
	return false;
}

int memory_adopted_begin(void *address, const struct memory_segment *found, struct adopted **out,
			 struct failure *failure)
{
	struct adopted *a = calloc(1, sizeof(*a));
	struct stat st;
	bool taken;

	if (!a)
		return failure_no_memory(failure, "this process");
	if (fstat(found->fd, &st) < 0) {
		free(a);
		return failure_system(failure, "looking at a file in memory", errno);
	}
	*a = (struct adopted){.address = address,
			      .size = found->recipe.size,
			      .offset = memory_recipe_offset(&found->recipe),
			      .device = st.st_dev,
			      .inode = st.st_ino,
			      .refs = 1};
	pthread_mutex_lock(&lock);
	taken = is_taken_locked(a);
	if (!taken)
		LIST_INSERT_HEAD(&all, a, link);
	pthread_mutex_unlock(&lock);
	if (taken) {
		free(a);
		return failure_set(failure, SHARE_EEXIST,
				   "this memory, or a part of it, was adopted already, and that "
				   "buffer still has holders");
	}
	*out = a;
	return 0;
}

void memory_adopted_identify(struct adopted *a, const struct memory_recipe *recipe)
{
	pthread_mutex_lock(&lock);
	memcpy(a->identity, recipe->identity, sizeof(a->identity));
	a->identified = true;
	pthread_mutex_unlock(&lock);
}

void memory_adopted_tell(struct adopted *a, void (*done)(void *data), void *data)
{
	pthread_mutex_lock(&lock);
	a->done = done;
	a->data = data;
	pthread_mutex_unlock(&lock);
}

void memory_adopted_unref(struct adopted *a)
{
	bool last;

	if (!a)
		return;
	pthread_mutex_lock(&lock);
	last = --a->refs == 0;
	if (last)
		LIST_REMOVE(a, link);
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	if (a->done)
		a->done(a->data);
	free(a);
}

/* With a reference; NULL: it is another process's. */
static struct adopted *find_own(const struct memory_recipe *recipe)
{
	struct adopted *a;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (a, &all, link)
		if (a->identified && a->size == recipe->size &&
		    memcmp(a->identity, recipe->identity, sizeof(a->identity)) == 0)
			break;
	if (a)
		a->refs++;
	pthread_mutex_unlock(&lock);
	return a;
}

/* ------------------------------------------------------------------------------------------- */

static uint64_t in_page(uint64_t at)
{
	return at & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

/* The owner may have made the file smaller, where nothing keeps it from that. */
static int check_size(int fd, uint64_t end, struct failure *failure)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return failure_system(failure, "looking at a segment", errno);
	if (st.st_size < 0 || (uint64_t)st.st_size < end)
		return failure_set(
		    failure, SHARE_ESTALE,
		    "the file of the adopted memory has only %lld of %llu bytes left",
		    (long long)st.st_size, (unsigned long long)end);
	return 0;
}

static int map(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
	       struct failure *failure)
{
	uint64_t offset = memory_recipe_offset(recipe), before = in_page(offset);
	int protection = m->writable ? PROT_READ | PROT_WRITE : PROT_READ, r;
	char *p;

	if (offset > INT64_MAX - recipe->size)
		return failure_set(failure, SHARE_EPROTO, "no file has a byte %llu",
				   (unsigned long long)offset);
	r = check_size(fd, offset + recipe->size, failure);
	if (r != 0)
		return r;
	p = mapping_make_at(NULL, before + m->size, protection, MAP_SHARED, fd, offset - before);
	if (!p)
		return failure_system(failure, "mapping a segment", errno);
	madvise(p, before + m->size, MADV_DONTFORK);
	m->address = p + before;
	return 0;
}

static int adopted_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
			  struct failure *failure)
{
	struct adopted *own = find_own(recipe);

	if (!own)
		return map(recipe, fd, m, failure);
	m->address = own->address;
	m->writable = true;
	m->kept = own;
	return 0;
}

static void adopted_unmap(struct memory_mapping *m)
{
	uint64_t before = in_page((uintptr_t)m->address);

	if (m->kept)
		memory_adopted_unref(m->kept);
	else
		munmap((char *)m->address - before, before + m->size);
}

const struct memory_importer memory_adopted_importer = {
    .kind = MEMORY_ADOPTED,
    .import = adopted_import,
    .unmap = adopted_unmap,
};
