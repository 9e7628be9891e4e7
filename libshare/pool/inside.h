/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"
#include "libshare/buffer/grant.h"
#include "libshare/buffer/magazine.h"
#include "libshare/client/rpc.h"
#include "libshare/program/struct.h"
#include "libshare/segment/segment.h"

/*
 * Pools, and buffers that are new: allocated in one, or of memory that the program has already.
 */

struct share_pool {
	struct handle handle;
	share_client *client;
	uint64_t id;
	const struct memory_kind *kind; /* NULL: one this library does not know */
	share_pool_info info;
	char *name, *device, *reason; /* that `info` points to */
	struct magazine *magazine;    /* NULL: the program wants none */
};
HANDLES_OF(share_pool, pool, HANDLE_POOL);

/* adopt.c. The pool, the size and the options have been looked at; the answer is a handle to
 * give. */
int buffer_adopt(share_pool *p, uint64_t size, const share_alloc_options *o, void *stream,
		 share_buffer **out);
