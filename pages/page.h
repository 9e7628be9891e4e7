/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Pages: shared memory with one writer. A page is a memfd whose size is fixed; once it is sealed,
 * nobody can map it for writing any more, but mappings for writing from before stay.
 */

/* Creates a page of zeros; it takes memory only where somebody writes. @name is what /proc shows.
 * Returns its descriptor, which the caller owns, or a negative errno. */
int page_create(const char *name, size_t size);

/* Seals a page when its writers have mapped it: from now on nobody else can map it for writing.
 * Returns 0 or a negative errno. */
int page_seal(int fd);

/* Maps the first @size bytes of @fd, which stays the caller's, and puts the address into @out. A
 * writable mapping belongs to one process: a forked child does not inherit it. Returns 0 or a
 * negative errno; -EINVAL when @fd has fewer than @size bytes. */
int page_map(int fd, size_t size, bool writable, void **out);
void page_unmap(const void *page, size_t size); /* NULL does nothing */
