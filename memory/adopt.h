/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_ADOPT_H
#define MEMORY_ADOPT_H

#include "memory/export.h"

/*
 * Memory that a process has already, and others are to have as well: the kind "adopted". A segment
 * is a range of a file in memory (a memfd, or a file on a tmpfs), from any byte on. Functions
 * return 0 or a SHARE_E... number and give the reason in @failure, which must not be NULL.
 */

/*
 * Whether @fd and @fd_readonly are descriptors of one such file, for reading and writing and for
 * reading only, and the segment of @recipe lies in it; its flags are set then. They come from
 * another process: nothing here waits for whatever else they may be of, and nothing that is found
 * can change any more, unless the recipe says MEMORY_MAY_SHRINK. SHARE_EINVAL, SHARE_ENOTSUP,
 * SHARE_ESYSTEM.
 */
int memory_adopted_check(int fd, int fd_readonly, struct memory_recipe *recipe,
			 struct failure *failure);

/*
 * Finds the file of which this process has mapped @size bytes at @address for others to see, and
 * opens it twice. @out gets the descriptors, and a recipe without identity. SHARE_EINVAL,
 * SHARE_ENOTSUP, SHARE_ESYSTEM.
 */
int memory_adopted_find(const void *address, uint64_t size, struct memory_segment *out,
			struct failure *failure);

/* A range of this process's memory that it has given others. */
struct adopted;

/* It does so now; @found is what was found there. The caller has a reference. SHARE_EEXIST: it has
 * given a part of it already, there or where the same file is mapped once more. */
int memory_adopted_begin(void *address, const struct memory_segment *found, struct adopted **out,
			 struct failure *failure);
/* Segments of this identity are that range: who imports one in this process gets no mapping of its
 * own, and has a reference as long as it is not unmapped. */
void memory_adopted_identify(struct adopted *a, const struct memory_recipe *recipe);
/* The last reference that is given up calls it, with no lock held; but not in a forked child. */
void memory_adopted_tell(struct adopted *a, void (*done)(void *data), void *data);
void memory_adopted_unref(struct adopted *a); /* NULL is fine */

#endif
