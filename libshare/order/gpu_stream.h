/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_GPU_STREAM_H
#define LIBSHARE_ORDER_GPU_STREAM_H

#include "libshare/client/client.h"
#include "libshare/order/stream.h"
#include "libshare/order/timeline.h"
#include "memory/import.h"

/*
 * Ordering on a CUstream, for memory of a device. stream_signal() and stream_wait() of
 * libshare/order/stream.h, for those that are neither host streams nor the calling thread.
 */
int gpu_stream_signal(share_client *c, const struct memory_mapping *m, void *stream,
		      share_fence *out);
int gpu_stream_wait(share_client *c, const struct memory_mapping *m, void *stream,
		    struct ordering *o);

/* Whether GPUs signal in place of the host, for streams of this device. */
bool gpu_stream_can_signal(share_client *c, int ordinal);

/* Whether gpu_stream_wait() would block the calling thread. */
bool gpu_stream_blocks(share_client *c, const struct memory_mapping *m, void *stream);

/* False when no CUstream can have this value. */
bool gpu_stream_is_possible(const void *stream);

/* As stream_synchronize(). */
int gpu_stream_synchronize(const struct memory_mapping *m, void *stream, bool *fatal);

/*
 * The client ends: waits until its GPUs have signaled all that they have to, so that nothing of
 * theirs uses its memory any more. False when that takes too long: then what is mapped has to stay.
 */
bool gpu_stream_finish(share_client *c);
/* @parked: streams of the program still wait for others on the client's pages. What GPUs know of
 * those then stays as it is, as changing that would wait for the streams. */
void gpu_stream_done(share_client *c, bool parked);

/* A page that GPUs may have been told to wait on, before it is unmapped. */
void gpu_stream_forget_page(struct peer_page *p);

#endif
