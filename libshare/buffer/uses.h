/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_USES_H
#define LIBSHARE_BUFFER_USES_H

#include "libshare/buffer/buffer.h"

/*
 * What still uses the memory of a buffer, besides the handle's own stream: struct uses. The caller
 * is the only one who has the buffer, or holds the client's lock `uses`.
 */

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

/* Every use gets a fence. 0, or an error of the device; @fatal ones mean that all are over. */
int uses_signal(share_buffer *b);

/* @stream comes after all of them; they stay noted. As stream_wait(). */
int uses_order(share_buffer *b, void *stream);

/* A hold on each, added to @out. Takes the client's lock `uses` itself. 0 or an error. */
int uses_hold(share_buffer *b, struct fences *out);

void uses_drop(share_buffer *b);

/* Which stream this is: 0 when work on it is over when a call returns, or for what is not known. */
uint64_t uses_stream(share_buffer *b, void *stream);

#endif
