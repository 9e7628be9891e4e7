/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/kind.h"

/*
 * Importers: the halves of the kinds that map a segment which another process made. Functions
 * return 0 or a SHARE_E... number and give the reason in @failure, which must not be NULL. They are
 * thread-safe: where the driver needs calls one after the other (imports and frees of mempool
 * memory), they wait for each other in the whole process, even if it has many clients.
 *
 * For GPU memory, the CUDA driver is loaded when the first segment on a device is imported. Calls
 * use the caller's current context if there is one. Otherwise they use the device's primary
 * context, which is kept as long as something is mapped.
 */

/* Returns whether anybody has loaded the CUDA driver into this process. If not, there can be no
 * CUstream either. */
bool memory_driver_is_loaded(void);

struct memory_mapping {
	void *address;
	uint64_t size;
	const struct memory_kind *kind;
	bool writable;
	uint32_t recipe_flags; /* host memory: enum memory_recipe_flags */
	int ordinal;           /* CUDA's number of its device in this process; -1: host memory */
	void *opaque;          /* belongs to the importer */
	struct adopted *own;   /* what this process has given itself, and maps nowhere else */
};

/*
 * Maps a segment. @fd stays the caller's, and the mapping does not need it afterwards. The recipe
 * comes from another process, so it is checked.
 *
 * SHARE_ENODEV: this process cannot see the device (there is no driver, or CUDA_VISIBLE_DEVICES
 * hides it). SHARE_EBUSY: the recipe names an address at which something else is mapped.
 * SHARE_ENOTSUP: the caller's current device cannot reach that memory. SHARE_EOWNERDEAD: its maker
 * has ended, and the memory with it. Also SHARE_ENOMEM, SHARE_EDEVICE, SHARE_ESYSTEM, SHARE_EPROTO.
 */
int memory_import(const struct memory_kind *kind, const struct memory_recipe *recipe, int fd,
		  bool writable, struct memory_mapping *out, struct failure *failure);

/* Makes a read-only mapping writable without moving it, as the program may have pointers into
 * it. */
int memory_make_writable(struct memory_mapping *m, int fd, struct failure *failure);

/* Makes sure that the device of the calling thread's current context can use the mapping: gives it
 * access the first time. If this process sees only one device, this makes no CUDA call. */
int memory_reach(struct memory_mapping *m, struct failure *failure);

/* Whether what is mapped is no memory of the segment's any more, as the process that made it has
 * ended or is about to; kinds say whether that can be. What comes from memory is good if this says
 * false afterwards. */
bool memory_is_lost(const struct memory_mapping *m);
/* Why not, and SHARE_EOWNERDEAD. */
int memory_fail_lost(struct failure *failure);

/* Unmaps the segment and empties @m. Nothing in this process may use the memory any more. An empty
 * mapping is allowed. */
void memory_unmap(struct memory_mapping *m);

/*
 * Copy between host memory and a mapping on a device, in the order of @stream (a CUstream), and
 * wait for the end: the host memory can be used when they return.
 */
int memory_copy_to_host(const struct memory_mapping *m, uint64_t offset, void *to, uint64_t size,
			void *stream, struct failure *failure);
int memory_copy_from_host(const struct memory_mapping *m, uint64_t offset, const void *from,
			  uint64_t size, void *stream, struct failure *failure);

/* Enqueues a copy from one mapping on a device to another one, and waits for nothing. Both are for
 * the device of @stream, which gets access to them. SHARE_ENOTSUP: it cannot have that. */
int memory_copy_between(struct memory_mapping *to, uint64_t to_offset, struct memory_mapping *from,
			uint64_t from_offset, uint64_t size, void *stream, struct failure *failure);
/* The same through host memory, each side by its own device. It is done when this returns, and
 * comes after no stream. */
int memory_copy_staged(const struct memory_mapping *to, uint64_t to_offset,
		       const struct memory_mapping *from, uint64_t from_offset, uint64_t size,
		       struct failure *failure);

/* Blocks until all work that was enqueued on @stream is done. */
int memory_stream_synchronize(const struct memory_mapping *m, void *stream,
			      struct failure *failure);
