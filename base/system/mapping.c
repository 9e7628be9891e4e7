/* SPDX-License-Identifier: MIT */

#include <sys/mman.h>

#include "base/system/mapping.h"

void *mapping_make(void *address, size_t size, int protection, int flags, int fd)
{
	return mapping_make_at(address, size, protection, flags, fd, 0);
}

void *mapping_make_at(void *address, size_t size, int protection, int flags, int fd,
		      uint64_t offset)
{
	void *p = mmap(address, size, protection, flags, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return NULL;
	mapping_set_dumped(p, size, false);
	return p;
}

/* This fails where the process has as many mappings as the system lets it have. Then a core dump
 * has more or less than it should, and the program itself goes on. */
void mapping_set_dumped(void *address, size_t size, bool dumped)
{
	madvise(address, size, dumped ? MADV_DODUMP : MADV_DONTDUMP);
}
