/* SPDX-License-Identifier: MIT */

/*
 * What this process has given others of its memory. It keeps using it where it is, whatever it gets
 * it by, and for it nothing is mapped; and it gives no part of it twice.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include <share/error.h>

#include "memory/adopt.h"
#include "memory/import.h"

struct adopted {
	LIST_ENTRY(adopted) link;
	char *address, *segment; /* the memory, and where the segment begins in which it lies */
	uint64_t size, segment_size;
	int ordinal; /* CUDA's number of its device; -1: host memory */
	/* the file of host memory, which may be mapped in several places; zeros */
	dev_t device;
	ino_t inode;
	uint64_t offset;
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
		    (is->inode && a->device == is->device && a->inode == is->inode &&
		     overlap(a->offset, a->size, is->offset, is->size)))
			return true;
	return false;
}

/* A descriptor of a device's memory does not say which memory it is. */
static int set_file(struct adopted *a, const struct memory_found *found, struct failure *failure)
{
	struct stat st;

	if (found->kind->on_device)
		return 0;
	if (fstat(found->segment.fd, &st) < 0)
		return failure_system(failure, "looking at a file in memory", errno);
	a->device = st.st_dev;
	a->inode = st.st_ino;
	a->offset = found->offset;
	a->segment = a->address; /* which is all of it */
	return 0;
}

static int enter(struct adopted *a, struct failure *failure)
{
	bool taken;

	pthread_mutex_lock(&lock);
	taken = is_taken_locked(a);
	if (!taken)
		LIST_INSERT_HEAD(&all, a, link);
	pthread_mutex_unlock(&lock);
	if (!taken)
		return 0;
	return failure_set(failure, SHARE_EEXIST,
			   "this memory, or a part of it, was adopted already, and somebody has "
			   "that buffer still, or has work under way on it");
}

int memory_adopted_new(void *address, uint64_t size, const struct memory_found *found,
		       struct adopted **out, struct failure *failure)
{
	struct adopted *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return failure_no_memory(failure, "this process");
	*a = (struct adopted){.address = address,
			      .segment = (char *)address - found->offset,
			      .size = size,
			      .segment_size = found->segment.recipe.size,
			      .ordinal = found->ordinal,
			      .refs = 1};
	r = set_file(a, found, failure);
	if (r == 0)
		r = enter(a, failure);
	if (r == 0)
		*out = a;
	else
		free(a);
	return r;
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

static struct adopted *find_locked(const struct memory_recipe *recipe)
{
	struct adopted *a;

	LIST_FOREACH (a, &all, link)
		if (a->identified && a->segment_size == recipe->size &&
		    memcmp(a->identity, recipe->identity, sizeof(a->identity)) == 0)
			break;
	return a;
}

bool memory_adopted_here(const struct memory_recipe *recipe, struct memory_mapping *out)
{
	struct adopted *a;

	pthread_mutex_lock(&lock);
	a = find_locked(recipe);
	if (a)
		a->refs++;
	pthread_mutex_unlock(&lock);
	if (!a)
		return false;
	out->address = a->segment;
	out->ordinal = a->ordinal;
	out->writable = true;
	out->own = a;
	return true;
}

/* ------------------------------------------------------------------------------------------- */

int memory_adopted_find(const void *address, uint64_t size, struct memory_found *out,
			struct failure *failure)
{
	int r = 0;

	if (size == 0 || size > INT64_MAX - (uintptr_t)address)
		return failure_set(failure, SHARE_EINVAL, "no memory has %llu bytes from there on",
				   (unsigned long long)size);
	if (memory_device_find(address, size, out, &r, failure))
		return r;
	return memory_host_find(address, size, out, failure);
}
