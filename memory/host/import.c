/* SPDX-License-Identifier: MIT */

/*
 * The importer of host memory: a mapping of a sealed memfd. Leases belong to one process, so a
 * forked child does not inherit the mapping, and faults if it touches the memory.
 *
 * Where all pages are there, the page tables are made with the mapping: that takes a fifth of what
 * the faults would take, and allocates nothing. Where they are not, it would allocate all of them.
 */

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <share/error.h>

#include "base/failure.h"
#include "base/system/mapping.h"
#include "memory/importer.h"

/* Younger than the headers of some systems. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* Maps @fd at a multiple of MEMORY_ALIGNMENT: offsets in a segment are aligned relative to its
 * start, so the start needs the largest alignment that the broker promises. Returns NULL and sets
 * errno on failure. */
static void *map_anywhere(int fd, uint64_t size, int protection)
{
	char *reserved, *start, *end;
	void *mapped;

	reserved = mmap(NULL, size + MEMORY_ALIGNMENT, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		return NULL;
	end = reserved + size + MEMORY_ALIGNMENT;
	start = reserved + (-(uintptr_t)reserved & (MEMORY_ALIGNMENT - 1));
	mapped = mapping_make(start, size, protection, MAP_SHARED | MAP_FIXED, fd);
	if (!mapped) {
		int saved = errno;

		munmap(reserved, size + MEMORY_ALIGNMENT);
		errno = saved;
		return NULL;
	}
	if (start > reserved)
		munmap(reserved, (size_t)(start - reserved));
	munmap(start + size, (size_t)(end - (start + size)));
	return mapped;
}

/* Maps @fd at @address. Returns NULL and sets errno on failure; EEXIST: something else is mapped
 * there. */
static void *map_at(uint64_t address, int fd, uint64_t size, int protection)
{
	void *wanted = (void *)(uintptr_t)address;
	void *mapped = mapping_make(wanted, size, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd);

	if (mapped && mapped != wanted) { /* a kernel before 4.17 takes the address as a hint */
		munmap(mapped, size);
		errno = EEXIST;
		return NULL;
	}
	return mapped;
}

/* Checks that @fd has @size bytes: the recipe comes from another process, and must not make us map
 * more than there is. */
static int check_size(int fd, uint64_t size, struct failure *failure)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return failure_system(failure, "looking at a segment", errno);
	if (st.st_size < 0 || (uint64_t)st.st_size < size)
		return failure_set(failure, SHARE_EPROTO,
				   "the recipe says %llu bytes, and the descriptor has %lld",
				   (unsigned long long)size, (long long)st.st_size);
	return 0;
}

static void advise(void *at, uint64_t size, uint32_t flags)
{
	madvise(at, size, MADV_DONTFORK);
	if (flags & MEMORY_HUGE_PAGES)
		madvise(at, size, MADV_HUGEPAGE);
	if (flags & MEMORY_IS_THERE)
		madvise(at, size, MADV_POPULATE_READ);
}

static int host_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
		       struct failure *failure)
{
	int protection = m->writable ? PROT_READ | PROT_WRITE : PROT_READ, r;
	void *p;

	r = check_size(fd, m->size, failure);
	if (r < 0)
		return r;
	if (recipe->address)
		p = map_at(recipe->address, fd, m->size, protection);
	else
		p = map_anywhere(fd, m->size, protection);
	if (!p && errno == EEXIST)
		return failure_set(failure, SHARE_EBUSY,
				   "the pool's memory has to lie at 0x%llx in every process, and "
				   "something else is mapped there in this one",
				   (unsigned long long)recipe->address);
	if (!p)
		return failure_system(failure, "mapping a segment", errno);
	advise(p, m->size, recipe->flags);
	m->address = p;
	m->recipe_flags = recipe->flags;
	return 0;
}

/* The new mapping replaces the old one in one step, so that no other thread finds a hole. */
static int host_make_writable(struct memory_mapping *m, int fd, struct failure *failure)
{
	int r = check_size(fd, m->size, failure);

	if (r < 0)
		return r;
	if (!mapping_make(m->address, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd))
		return failure_system(failure, "mapping a segment for writing", errno);
	advise(m->address, m->size, m->recipe_flags);
	return 0;
}

static void host_unmap(struct memory_mapping *m)
{
	munmap(m->address, m->size);
}

const struct memory_importer memory_host_importer = {
    .kind = MEMORY_HOST,
    .import = host_import,
    .make_writable = host_make_writable,
    .unmap = host_unmap,
};
