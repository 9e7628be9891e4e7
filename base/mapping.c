/* SPDX-License-Identifier: MIT */

#include <sys/mman.h>

#include "base/mapping.h"

void *mapping_make(void *address, size_t size, int protection, int flags, int fd)
{
	void *p = mmap(address, size, protection, flags, fd, 0);

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
