/* SPDX-License-Identifier: MIT */
#ifndef SHARE_FENCE_H
#define SHARE_FENCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** A connection to a broker, made by share_connect(). Everything else is made from one. */
typedef struct share_client share_client;

/**
 * A fence: a point in the work of a stream. It may be sent anywhere, and anybody may wait for it.
 *
 * Every function that takes `void *stream` orders memory against the work of that stream. What a
 * stream is depends on the kind of the memory:
 *
 *   - A `share_host_stream` of the client is a FIFO worker thread, with memory of every kind. Waits
 *     and signals are enqueued on it and the call returns at once.
 *   - Host memory: NULL is the calling thread. What it did before the call is done, so there is
 *     nothing to signal; where it has to wait for others, the call itself blocks.
 *   - GPU memory: everything else is a CUstream: NULL is the legacy default stream of the current
 *     context (of the device's primary one where none is current), as in CUDA's own functions. The
 *     library cannot tell a wrong pointer from a stream, no more than CUDA can.
 *
 * On a CUstream, the GPU signals and waits, and no call blocks the host for it, but for these:
 *
 *   - The device has no stream memory operations, or SHARE_CONNECT_HOST_FENCES is set.
 *   - As many streams of this process as half of CUDA_DEVICE_MAX_CONNECTIONS wait for other
 *     processes already, and this would be one more. (If as many as all connections waited, the
 *     hardware would run nothing else.) With SHARE_CONNECT_NEVER_BLOCK the call then answers
 *     SHARE_EAGAIN.
 *   - 191 CUDA streams of the client have signals that are not reached, and this is another stream.
 *   - The driver does not register the pages that signals are in: too little memory may be locked
 *     (ulimit -l), or the device cannot read memory that is mapped read-only.
 *   - The broker is gone, and the fence to wait for belongs to another process.
 *
 * share_fence_get_stats() counts how often that happened.
 *
 * A stream that waits still costs the other streams something (measured, H200). Streams that share
 * a hardware connection with it run late. A copy to the host that is enqueued behind a wait holds
 * up the copies to the host of all streams. And the driver makes the 36th stream of a process only
 * while no stream waits. Where waits may be long, give CUDA_DEVICE_MAX_CONNECTIONS its largest
 * value, 32, make streams beforehand, and enqueue such copies only when the fence is reached
 * (share_fence_query, share_buffer_watch).
 *
 * A stream that is being captured into a graph is refused (SHARE_ENOTSUP) wherever something has to
 * be enqueued on it, as that would happen at each launch of the graph and not now; the capture is
 * not spoilt, and a buffer that was to be released is kept. So acquire buffers before the capture
 * begins, release them after it has ended, and order launches of the graph like other work.
 *
 * Pages of timelines are registered with the driver in the primary context of the device, and the
 * library keeps that context for as long as they are registered. So a program that uses only
 * contexts of its own has one more context then. Its own contexts may come and go. But if a program
 * resets the primary context (cudaDeviceReset), or releases it more often than it was retained,
 * every stream gets SHARE_EDEVICE from then on, until the program connects again.
 *
 * CUDA does not know of this order. So a function on a host stream must not use a CUstream that
 * waits for that host stream. When the legacy default stream waits for it, so do the per-thread
 * default stream and all streams that were made without CU_STREAM_NON_BLOCKING, as CUDA makes these
 * wait for each other.
 *
 * A fence is a point on a timeline: a 64-bit counter in a page of shared memory that only one
 * process can write, enforced by the kernel. A fence is reached once the counter has got to its
 * value. Asking costs one load. When a process dies, its timelines are poisoned: everyone waiting
 * on them is released and told SHARE_EOWNERDEAD.
 *
 * The poison comes from the broker. Once that is gone, threads and host streams see for themselves
 * that a process has died, and CUDA streams are not made to wait for other processes any more: the
 * calling thread waits in their place. But a CUDA stream that was waiting already when the broker
 * was lost goes on only when its fence is reached. If the process that the fence belongs to dies
 * before that, the stream stands still for good, and so does whoever synchronizes with it, as
 * nobody else can write to the timelines of the dead process.
 */
typedef struct share_fence {
	uint64_t timeline; /**< which counter; 0: a fence that is reached already */
	uint64_t value;    /**< what the counter has to get to */
} share_fence;

/**
 * Puts a fence behind all work enqueued on a stream so far. It may be sent to other processes by
 * any means; it is valid while this process lives and may be forgotten without clean-up.
 *
 * As no memory says here what the stream is, `ordinal` does: see share_fence.
 *
 * @param c        the connection
 * @param ordinal  -1: as for host memory, so NULL is the calling thread, whose fence is reached
 *                 already. Else as for memory of the device that CUDA gives this number: NULL is
 *                 the legacy default stream. A share_host_stream is one with either
 * @param stream   the stream
 * @param out      the fence
 * @retval SHARE_EINVAL   not a stream of this client; for -1, a CUstream
 * @retval SHARE_ENODEV   there is no such device, or no driver
 * @retval SHARE_ENOTSUP  the stream is being captured
 * @retval SHARE_EDEVICE  the work on it failed
 */
int share_fence_record(share_client *c, int ordinal, void *stream, share_fence *out);

/**
 * Makes a stream wait for a fence, of any process of the same broker. When the owner of the fence
 * dies, the wait ends with the poison: a host stream then goes on, and share_fence_query() tells
 * whether the fence was reached.
 *
 * @param c        the connection
 * @param fence    what to wait for
 * @param ordinal  as for share_fence_record(): which device a CUstream is of; -1: there is none
 * @param stream   what waits: for -1, NULL is the calling thread
 * @retval SHARE_EINVAL      not a stream of this client; or a function on a host stream has called
 *                           it, and would wait for what is behind it there
 * @retval SHARE_EOWNERDEAD  the owner died before the fence was reached (this is known now, or came
 *                           out while the caller waited), or before this process first asked;
 *                           nothing is enqueued
 * @retval SHARE_ESTALE      there is no such timeline; or its owner ended so long ago that nobody
 *                           knows how far it had got; or the fence did not come from the broker,
 *                           and belongs to a process of another user that has no pool open which
 *                           this process has open, too
 */
int share_fence_wait(share_client *c, const share_fence *fence, int ordinal, void *stream);

/**
 * Whether a fence is reached. Never blocks for the owner.
 *
 * A fence that another process's GPU signals counts as reached once the signal was seen while that
 * process had not begun to exit. Where /proc does not show the process, because it is in another
 * PID namespace, this is known a little later (150 ms).
 *
 * @param c      the connection
 * @param fence  what is asked about
 * @retval 0                 it is reached
 * @retval SHARE_EAGAIN      not yet
 * @retval SHARE_EOWNERDEAD  it never will be
 * @retval SHARE_ESTALE      as share_fence_wait()
 */
int share_fence_query(const share_client *c, const share_fence *fence);

/**
 * Blocks the calling thread until a fence is reached.
 *
 * @param c           the connection
 * @param fence       what to wait for
 * @param timeout_ms  how long at most; -1: without limit
 * @retval SHARE_ETIMEDOUT   not reached in time
 * @retval SHARE_EINVAL      a function on a host stream has called it, and would wait for what is
 *                           behind it there
 * @retval SHARE_EOWNERDEAD  it never will be
 * @retval SHARE_ESTALE      as share_fence_wait()
 * @retval SHARE_ECANCELED   another thread has given the connection up
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 */
int share_fence_synchronize(share_client *c, const share_fence *fence, int timeout_ms);

/** What ordering has cost a client so far. Set it to SHARE_FENCE_STATS_INIT. */
typedef struct share_fence_stats {
	size_t size;
	uint64_t signals;      /**< enqueued on CUDA streams */
	uint64_t waits;        /**< enqueued on CUDA streams */
	uint64_t waits_saved;  /**< not needed: the fence was reached, or of the same stream */
	uint64_t host_signals; /**< the calling thread waited until a CUDA stream was done */
	uint64_t host_waits;   /**< the calling thread waited for others in a CUDA stream's place */
	uint64_t parked;       /**< streams of this process, on all devices, that wait now */
} share_fence_stats;
#define SHARE_FENCE_STATS_INIT                              \
	{                                                   \
		sizeof(share_fence_stats), 0, 0, 0, 0, 0, 0 \
	}

/**
 * What ordering has cost this client so far.
 *
 * @param c    the connection
 * @param out  the figures, which were set to SHARE_FENCE_STATS_INIT
 */
int share_fence_get_stats(const share_client *c, share_fence_stats *out);

/**
 * A host stream: a FIFO of functions run by one thread of the library's. They are to host memory
 * what a CUDA stream is to GPU memory, so a program on a machine without a GPU, and every ordering
 * test, can be written against the same rules.
 */
typedef struct share_host_stream share_host_stream;

/**
 * Starts a host stream. It must be destroyed before the client's last handle goes.
 *
 * @param c    the connection
 * @param out  the stream, to be given up with share_host_stream_destroy()
 * @retval SHARE_EQUOTA  a client can have 255 streams at a time, of which at most 191 are CUDA
 *                       streams
 */
int share_host_stream_create(share_client *c, share_host_stream **out);

/**
 * Enqueues a function on a host stream, and returns at once. The order is that of the calls.
 *
 * The function must not use a CUDA stream on which this process waits for this host stream. That
 * can be the default one: who publishes memory of a GPU on the host stream, and looks it up on NULL
 * in the same process, has the default stream wait for the function.
 *
 * @param s         the stream
 * @param function  what is to run, in the stream's thread
 * @param data      what it is called with
 */
int share_host_stream_launch(share_host_stream *s, void (*function)(void *data), void *data);

/**
 * Blocks until everything that was enqueued before the call has run.
 *
 * @param s  the stream
 * @retval SHARE_EINVAL  a function on the stream has called it, and would wait for itself
 * @retval SHARE_EINTR  interrupted (share_interrupt())
 * @retval SHARE_ECANCELED  another thread has given the stream up
 */
int share_host_stream_synchronize(share_host_stream *s);

/**
 * Runs what is enqueued, ends the thread, and frees the handle.
 *
 * @param s  the stream; NULL is fine
 */
void share_host_stream_destroy(share_host_stream *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
