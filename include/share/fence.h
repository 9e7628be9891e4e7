/* SPDX-License-Identifier: MIT */
#ifndef SHARE_FENCE_H
#define SHARE_FENCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct share_client share_client;

/*
 * Streams, fences, timelines.
 *
 * Every function that takes `void *stream` orders memory against the work of that stream, without
 * blocking the caller:
 *
 *   - NULL with host memory is the calling thread. What it did before the call is done, so there
 *     is nothing to signal; where it has to wait for others, the call itself blocks.
 *   - A `share_host_stream` with host memory is a FIFO worker thread; waits and signals are
 *     enqueued on it and the call returns at once.
 *
 * A fence is a point on a timeline: a 64-bit counter in a page of shared memory that only one
 * process can write, enforced by the kernel. A fence is reached once the counter has got to its
 * value. Asking costs one load. When a process dies, its timelines are poisoned: everyone waiting
 * on them is released and told SHARE_EOWNERDEAD.
 */
typedef struct share_fence {
	uint64_t timeline; /* 0: a fence that is reached already */
	uint64_t value;
} share_fence;

/**
 * Puts a fence behind all work enqueued on @stream so far.
 *
 * @out may be sent to other processes by any means; it is valid while this process lives and may
 * be forgotten without clean-up. With @stream NULL the fence is already reached.
 *
 * Thread-safe. SHARE_EINVAL: @stream is not a stream of this client.
 */
int share_fence_record(share_client *c, void *stream, share_fence *out);

/**
 * Makes @stream wait for @fence (of any process of the same broker). With @stream NULL the calling
 * thread waits. Waiting for a fence of a process that dies ends with the poison; a host stream
 * then goes on, and share_fence_query tells.
 *
 * SHARE_EOWNERDEAD: the owner died before it got there (known now, or while the caller waited), or
 * before this process first asked; nothing is enqueued. SHARE_ESTALE: no such timeline, or its
 * owner ended too long ago to know how.
 */
int share_fence_wait(share_client *c, const share_fence *fence, void *stream);

/** 0: reached; SHARE_EAGAIN: not yet; SHARE_EOWNERDEAD: never will be. Never blocks for the owner.
 */
int share_fence_query(share_client *c, const share_fence *fence);

/**
 * Blocks the calling thread until @fence is reached, at most @timeout_ms milliseconds (-1: no
 * limit). 0, SHARE_ETIMEDOUT, or SHARE_EOWNERDEAD.
 */
int share_fence_synchronize(share_client *c, const share_fence *fence, int timeout_ms);

/*
 * Host streams: a FIFO of functions run by one thread of the library's. They are to host memory
 * what a CUDA stream is to GPU memory, so a program on a machine without a GPU, and every ordering
 * test, can be written against the same rules.
 */
typedef struct share_host_stream share_host_stream;

/**
 * Starts a stream. It belongs to @c and must be destroyed before the client's last handle goes.
 * A client can have 255 streams at a time: SHARE_EQUOTA beyond.
 */
int share_host_stream_create(share_client *c, share_host_stream **out);

/** Enqueues @function(@data). Returns at once. Thread-safe; order is the order of the calls. */
int share_host_stream_launch(share_host_stream *s, void (*function)(void *data), void *data);

/** Blocks until everything enqueued before the call has run. Not from a function on the stream. */
int share_host_stream_synchronize(share_host_stream *s);

/** Runs what is enqueued, ends the thread, frees the handle. NULL is fine. */
void share_host_stream_destroy(share_host_stream *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
