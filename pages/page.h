/* SPDX-License-Identifier: MIT */
#ifndef PAGES_PAGE_H
#define PAGES_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shared memory with one writer: a memfd whose size is fixed, and which nobody can map for writing
 * any more once it is sealed. Whoever had it mapped so before goes on.
 */

/* @name is what /proc shows. All zeros; takes no memory where nothing was written. Returns a
 * descriptor or negative errno. */
int page_create(const char *name, size_t size);

/* Once its writers have mapped it: no further one, ever. 0 or negative errno. */
int page_seal(int fd);

/* -EINVAL when there are less than @size bytes behind @fd, whoever sent it. A mapping for writing
 * belongs to one process: a forked child does not inherit it. 0 or negative errno. */
int page_map(int fd, size_t size, bool writable, void **out);
void page_unmap(const void *page, size_t size); /* NULL is fine */

#endif
