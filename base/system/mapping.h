/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Mappings of memory that other processes have as well. A core dump of one process leaves them out
 * (MADV_DONTDUMP): it would write the data of others to the disk, and it would read whatever nobody
 * has touched yet, for which the system takes pages that all pay for. Whoever maps such memory does
 * it through this file; tests/rooms_test.py looks for others.
 */

/* Maps as mmap() does, from the start of @fd. @flags has MAP_FIXED for a mapping that replaces
 * another one, which loses all that madvise() said of it. Returns NULL and sets errno on failure.
 */
void *mapping_make(void *address, size_t size, int protection, int flags, int fd);

/* The same from @offset bytes on, a multiple of the page size. */
void *mapping_make_at(void *address, size_t size, int protection, int flags, int fd,
		      uint64_t offset);

/* Whether a core dump has this part of a mapping; it consists of whole pages. */
void mapping_set_dumped(void *address, size_t size, bool dumped);
