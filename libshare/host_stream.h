/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_HOST_STREAM_H
#define LIBSHARE_HOST_STREAM_H

#include "libshare/client.h"
#include "libshare/timeline.h"

/*
 * Where work is ordered. For host memory: NULL, the calling thread, or one of the client's host
 * streams.
 */

/* 0, or SHARE_EINVAL when @stream is not one of @c's. */
int stream_check(share_client *c, void *stream);

/* A fence behind everything enqueued so far; timeline 0 when it is reached already. 0 or error. */
int stream_signal(share_client *c, void *stream, share_fence *out);

/* Makes the stream wait; with NULL the thread does. @f stays the caller's. 0 or an error: only with
 * NULL can it be SHARE_EOWNERDEAD or SHARE_ETIMEDOUT. */
int stream_wait(share_client *c, void *stream, const struct held_fence *f, int timeout_ms);

#endif
