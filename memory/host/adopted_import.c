/* SPDX-License-Identifier: MIT */

/*
 * The importer of host memory that another process had already: a mapping of the pages in which the
 * segment lies, which may begin anywhere in the first of them.
 */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/error.h>

#include "base/system/mapping.h"
#include "memory/importer.h"

static uint64_t in_page(uint64_t at)
{
	return at & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

/* The owner may have made the file smaller, where nothing keeps it from that. */
static int check_reaches(int fd, uint64_t end, struct failure *failure)
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

static int adopted_import(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
			  struct failure *failure)
{
	uint64_t offset = memory_recipe_offset(recipe), before = in_page(offset);
	int protection = m->writable ? PROT_READ | PROT_WRITE : PROT_READ, r;
	char *p;

	if (offset > INT64_MAX - recipe->size)
		return failure_set(failure, SHARE_EPROTO, "no file has a byte %llu",
				   (unsigned long long)offset);
	r = check_reaches(fd, offset + recipe->size, failure);
	if (r != 0)
		return r;
	p = mapping_make_at(NULL, before + m->size, protection, MAP_SHARED, fd, offset - before);
	if (!p)
		return failure_system(failure, "mapping a segment", errno);
	madvise(p, before + m->size, MADV_DONTFORK);
	m->address = p + before;
	return 0;
}

static void adopted_unmap(struct memory_mapping *m)
{
	uint64_t before = in_page((uintptr_t)m->address);

	munmap((char *)m->address - before, before + m->size);
}

const struct memory_importer memory_adopted_importer = {
    .kind = MEMORY_ADOPTED,
    .import = adopted_import,
    .unmap = adopted_unmap,
};
