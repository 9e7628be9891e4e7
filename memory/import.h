/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_IMPORT_H
#define MEMORY_IMPORT_H

#include "memory/kind.h"

/*
 * The importing halves: reaching a segment that another process made. Functions return 0 or a
 * SHARE_E... number and say why in @failure, which must not be NULL. Thread-safe: what the driver
 * wants serialised (imports and frees of pool memory) is serialised here for the whole process,
 * however many clients it has.
 *
 * GPU memory: the CUDA driver is loaded when the first segment on a device is imported. Calls work
 * in the caller's current context when there is one, else in the device's primary context, which is
 * then kept as long as something is mapped.
 */

/* Whether somebody has loaded the CUDA driver into this process: where nobody has, there are no
 * CUstreams. */
bool memory_driver_is_loaded(void);

struct memory_mapping {
	void *address;
	uint64_t size;
	const struct memory_kind *kind;
	bool writable;
	int ordinal; /* of its device in this process; -1: host memory */
	void *kept;  /* the importer's own */
};

/*
 * Maps a segment. @fd stays the caller's and is not needed any more afterwards. The recipe comes
 * from another process and is checked.
 *
 * SHARE_ENODEV: this process cannot see the device (no driver, CUDA_VISIBLE_DEVICES hides it).
 * SHARE_EBUSY: the recipe names an address and something else is mapped there.
 * SHARE_ENOTSUP: the caller's current device cannot reach that memory. SHARE_ENOMEM, SHARE_EDEVICE,
 * SHARE_ESYSTEM, SHARE_EPROTO.
 */
int memory_import(const struct memory_kind *kind, const struct memory_recipe *recipe, int fd,
		  bool writable, struct memory_mapping *out, struct failure *failure);

/* Makes a read-only mapping writable in place (for those that cannot move). */
int memory_make_writable(struct memory_mapping *m, int fd, struct failure *failure);

/* Makes sure that the device of the calling thread's current context can use the mapping: sets
 * access for it the first time. No CUDA call when this process sees one device only. */
int memory_reach(struct memory_mapping *m, struct failure *failure);

/* Nothing of this process may use it any more. Empties @m; an empty one is fine. */
void memory_unmap(struct memory_mapping *m);

/*
 * Copies between host memory and a mapping on a device, ordered on @stream (a CUstream), and waits
 * for it: the host memory can be used when this returns.
 */
int memory_copy_to_host(const struct memory_mapping *m, uint64_t offset, void *to, uint64_t size,
			void *stream, struct failure *failure);
int memory_copy_from_host(const struct memory_mapping *m, uint64_t offset, const void *from,
			  uint64_t size, void *stream, struct failure *failure);

/* Blocks until everything enqueued on @stream is done. */
int memory_stream_synchronize(const struct memory_mapping *m, void *stream,
			      struct failure *failure);

#endif
