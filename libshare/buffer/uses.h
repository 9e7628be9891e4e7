/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"

/*
 * What still uses the memory of a buffer, besides the handle's own stream: struct uses. Whoever
 * calls these functions is the only one who has the buffer, or has called buffers_lock_uses().
 */

/* Around a look at, or a change of, the uses of a buffer that several threads may have. */
void buffers_lock_uses(share_client *c);
void buffers_unlock_uses(share_client *c);

/* The block was used on @stream until now. On a stream of a GPU nothing is enqueued for that where
 * it can be done later. 0, or SHARE_EINVAL or SHARE_ENOTSUP for a stream on which nothing can be
 * enqueued; other errors are the device's. */
int uses_note(share_buffer *b, void *stream);
/* The same for whoever signals @f, which is consumed. Where there is no memory to note it, blocks
 * until it is reached. */
void uses_add(share_buffer *b, struct held_fence *f);
void uses_add_all(share_buffer *b, struct fences *f);

/* Forgets what is over by now. True when nothing is left. */
bool uses_are_over(share_buffer *b);

/* Makes up for the signal that uses_note() has put off, so that every use has a fence. 0, also when
 * the device is broken, as all work on it is over then; or another error of the device. */
int uses_signal(share_buffer *b);

/* Has @stream come after all uses, which stay noted. Returns what stream_wait() does. */
int uses_order(share_buffer *b, void *stream);

/* Adds a hold on each use to @out. Calls buffers_lock_uses() itself. 0 or an error. */
int uses_hold(share_buffer *b, struct fences *out);

void uses_drop(share_buffer *b);

/* The identifier of a stream. 0 for one whose work is over when the call returns, as that of the
 * calling thread is, and for one that cannot be told from others. */
uint64_t uses_stream(share_buffer *b, void *stream);
