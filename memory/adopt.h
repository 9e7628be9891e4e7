/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "memory/export.h"

/*
 * Memory that a process has already, and others are to have as well: the kind "adopted". A segment
 * is a range of a file in memory (a memfd, or a file on a tmpfs), from any byte on; or, as of the
 * kinds of devices, an allocation of a device as a whole, in which the memory lies. Functions
 * return 0 or a SHARE_E... number and give the reason in @failure, which must not be NULL.
 */

/* Whether the descriptor of a stranger is of a file in memory, or of memory of a device: these do
 * no harm to who keeps them. Asked of the kernel alone, as whatever else it may be of may answer
 * when it likes. */
bool memory_may_be_brought(int fd);

/*
 * Whether @fd and @fd_readonly are descriptors of one such file, for reading and writing and for
 * reading only, and the segment of @recipe lies in it; its flags are set then. They come from
 * another process: nothing here waits for whatever else they may be of, and nothing that is found
 * can change any more, unless the recipe says MEMORY_MAY_SHRINK. SHARE_EINVAL, SHARE_ENOTSUP,
 * SHARE_ESYSTEM.
 */
int memory_adopted_check(int fd, int fd_readonly, struct memory_recipe *recipe,
			 struct failure *failure);

/* Whether there can be memory of a device that has this recipe, and @fd can be it; a recipe of kind
 * legacy has a handle in place of that. Only the driver could tell whether it is, and who imports
 * it asks. (A memfd is what the driver of tests has; it does no harm, and no other driver imports
 * it.) SHARE_EINVAL, SHARE_EPROTO. */
int memory_adopted_check_device(const struct memory_kind *kind, int fd,
				const struct memory_recipe *recipe, struct failure *failure);

/* Memory of this process as others can have it. */
struct memory_found {
	/* How: adopted, of host memory; or the kind of which segments of a device are that are
	 * reached so. */
	const struct memory_kind *kind;
	struct memory_segment segment; /* a recipe without identity; the descriptors, if any */
	uint64_t offset;               /* in the file, or in the segment of a device's memory */
	int ordinal;                   /* CUDA's number of the device; -1: host memory */
};

/*
 * Finds out what @size bytes at @address are, and opens them for others: the file that is mapped
 * there, twice; or the allocation of a device in which they lie, as a whole. SHARE_EINVAL,
 * SHARE_ENOTSUP, SHARE_EEXIST (memory of a device that was imported), SHARE_ESYSTEM, SHARE_EDEVICE.
 */
int memory_adopted_find(const void *address, uint64_t size, struct memory_found *out,
			struct failure *failure);
/* Its halves. False: there is no memory of a device; @r is the answer otherwise. It uses the driver
 * only where somebody has initialised it. */
bool memory_device_find(const void *address, uint64_t size, struct memory_found *out, int *r,
			struct failure *failure);
int memory_host_find(const void *address, uint64_t size, struct memory_found *out,
		     struct failure *failure);

/* A range of this process's memory that it has given others. */
struct adopted;
struct memory_mapping;

/* It does so now; @found is what was found there. The caller has a reference. SHARE_EEXIST: it has
 * given a part of it already, there or where the same file is mapped once more. */
int memory_adopted_new(void *address, uint64_t size, const struct memory_found *found,
		       struct adopted **out, struct failure *failure);
/* Segments of this identity are that range: who imports one in this process gets no mapping of its
 * own, and has a reference as long as it is not unmapped. */
void memory_adopted_identify(struct adopted *a, const struct memory_recipe *recipe);
/* Whether the segment is one that this process has given; then @out is where it has it, with a
 * reference. */
bool memory_adopted_here(const struct memory_recipe *recipe, struct memory_mapping *out);
/* The last reference that is given up calls it, with no lock held; but not in a forked child. */
void memory_adopted_tell(struct adopted *a, void (*done)(void *data), void *data);
void memory_adopted_unref(struct adopted *a); /* NULL is fine */
