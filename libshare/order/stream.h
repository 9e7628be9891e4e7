/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_STREAM_H
#define LIBSHARE_ORDER_STREAM_H

#include "libshare/client/client.h"
#include "libshare/order/timeline.h"
#include "memory/import.h"

/*
 * Where work is ordered: what `void *stream` means. One of the client's host streams is that, for
 * every kind of memory. Otherwise it depends on the memory: for that of the host only NULL is left,
 * the calling thread; for that of a device it is a CUstream.
 *
 * @m is the mapping of the memory in question; NULL: none, and NULL is the calling thread.
 */

/* 0, or SHARE_EINVAL when @stream cannot be a stream for memory of this kind; @kind NULL: it is
 * not known yet. */
int stream_check(share_client *c, const struct memory_kind *kind, void *stream);

/* A fence behind everything enqueued so far; timeline 0 when it is reached already. 0 or error. */
int stream_signal(share_client *c, const struct memory_mapping *m, void *stream, share_fence *out);

/* What work has to come after. */
struct ordering {
	const struct held_fence *fences; /* stay the caller's */
	size_t n;
	int timeout_ms;     /* as far as the thread has to wait */
	bool dead_is_done;  /* whoever died has no work any more: not an error */
	bool may_not_block; /* rather than waiting in a stream's place, SHARE_EAGAIN */
	uint32_t how;       /* out: enum share_ordered, the strongest that was needed */
};

/* Makes the stream wait; when it blocks, the thread does. 0 or an error: SHARE_EOWNERDEAD and
 * SHARE_ETIMEDOUT only when it blocks. */
int stream_wait(share_client *c, const struct memory_mapping *m, void *stream, struct ordering *o);

/* The calling thread waits. */
int ordering_wait_here(share_client *c, struct ordering *o);

/* Whether stream_wait() blocks the calling thread. */
bool stream_blocks(share_client *c, const struct memory_mapping *m, void *stream);

/* Blocks until everything enqueued so far is done. 0 or an error; @fatal: of the device, so that
 * nothing runs on it any more. */
int stream_synchronize(share_client *c, const struct memory_mapping *m, void *stream, bool *fatal);

#endif
