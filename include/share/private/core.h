/* SPDX-License-Identifier: MIT */
#ifndef SHARE_PRIVATE_CORE_H
#define SHARE_PRIVATE_CORE_H

#include <share/service.h>

#pragma GCC visibility push(default)

/*
 * What the Python package's own extension calls, and nobody else: this is no part of the interface,
 * is not installed, and may change with each version. The extension holds the interpreter's lock,
 * which all threads of its program need, and gives it up only for calls that may take a while.
 */

/**
 * Allocates host memory that this process has at hand: a block of that size which it has released
 * before. It takes no lock, waits for nothing and asks nobody. So it is for threads that must not
 * wait, or that hold a lock of the program at the time. A program that gets SHARE_EAGAIN calls
 * share_alloc() when it may wait.
 *
 * @param p     where from
 * @param size  bytes, at least 1
 * @param out   the buffer, to be given up with share_release() or share_try_release()
 * @retval SHARE_EAGAIN  there is nothing at hand, which is so for sizes of which nothing was
 *                       released yet, and for large ones; or the pool is not of host memory
 */
int share_try_alloc(share_pool *p, uint64_t size, share_buffer **out);

/**
 * CUDA's number of the device that a pool is for, in this process. It loads and initialises the
 * driver, so it is for who uses that device anyway.
 *
 * @param p  the pool
 * @return -1: it is of host memory, of kind "adopted", or of a device that this process does not
 * see
 */
int share_pool_ordinal(const share_pool *p);

/**
 * Whether a buffer lies in a pool, as the pool's own connection has it.
 *
 * @param p  the pool
 * @param b  the buffer
 * @return 1: it does; 0: it does not, or is another connection's; or a negative error
 */
int share_pool_has(const share_pool *p, const share_buffer *b);

/** What ends waits by a connection early. It stays as long as anything that was had by it. */
typedef struct share_waits share_waits;

/**
 * That of a connection.
 *
 * @param c  the connection
 * @return NULL: the handle was given up
 */
share_waits *share_waits_of(share_client *c);

/**
 * The waits of the calling thread for others by this connection end early, with SHARE_EINTR, once
 * the handler of a signal has run while one of them sleeps, share_wake_early() is called after
 * this, or so many milliseconds are over. A signal that comes while it is awake, or in another
 * thread, is missed. So an interpreter, which runs its handlers between two calls, has the first
 * waits end soon, and hears of signals itself while a later one lasts.
 *
 * @param w        of the connection; NULL: they do not any more
 * @param soon_ms  since the first of them sleeps; 0: however long they take
 * @return 1: that has happened since it was called last; 0: it has not
 */
int share_wait_early(share_waits *w, int soon_ms);

/**
 * Ends the waits by this connection of threads that have called share_wait_early().
 *
 * @param w  of the connection
 */
void share_wake_early(share_waits *w);

/**
 * Waits until one of the descriptors is readable, as the other calls that wait do.
 *
 * @param c           the connection
 * @param fds         the descriptors
 * @param n           how many, up to 4
 * @param timeout_ms  how long at most; -1: without limit
 * @return 1: one is; 0: the time is over; or a negative error
 */
int share_wait_for(share_client *c, const int *fds, size_t n, int timeout_ms);

/**
 * share_call_finish(), but a call whose answer does not come in time goes on.
 *
 * @param p           the call
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the answer will be worked on
 * @param out         the answer
 * @retval SHARE_ETIMEDOUT  it is not there yet, and can be waited for again
 * @see share_call_finish() for the other errors
 */
int share_call_await(share_pending *p, int timeout_ms, void *stream, share_message *out);

/**
 * share_channel_drain() for the messages with a smaller number alone.
 *
 * @param ch          the channel, as a producer
 * @param before      a number, at most that of the messages sent
 * @param timeout_ms  how long at most; -1: without limit
 * @see share_channel_drain() for the errors
 */
int share_drain_before(share_channel *ch, uint64_t before, int timeout_ms);

/**
 * share_send_many() with a time limit of its own, in place of the channel's.
 *
 * @param ch          the channel, as a producer
 * @param messages    the messages, in their order
 * @param n           how many
 * @param timeout_ms  how long it waits for room at most; 0: it does not; -1: without limit. It
 * counts only where `when_full` is SHARE_FULL_BLOCK
 * @param stream      where their buffers were worked on
 * @return as share_send_many()
 * @see share_send_many() for the errors
 */
int share_send_within(share_channel *ch, const share_outgoing *messages, size_t n, int timeout_ms,
		      void *stream);

/**
 * The descriptor of a channel tells of no call that has answered SHARE_EAGAIN before. It is for who
 * is woken by the descriptor and makes all the calls again that somebody waits for: what is told of
 * one that nobody waits for any more would wake it at once for good.
 *
 * @param ch  the channel, as a producer
 * @retval SHARE_EACCES  it was opened as a consumer
 */
int share_untell(share_channel *ch);

/**
 * The same of a caller: of calls that were refused, and of those that have ended.
 *
 * @param s  the service, as a caller
 * @retval SHARE_EINVAL  it was opened as a worker
 */
int share_untell_calls(share_service *s);

/**
 * Releases host memory that the calling thread was the last to use, if that can be done without a
 * lock, without waiting and without asking anybody: see share_try_alloc(). It can be done for the
 * last reference to a buffer that this process has allocated and that nobody else has seen, if
 * there is room to keep it at hand.
 *
 * @param b  the buffer
 * @retval SHARE_EAGAIN  it is not so: share_release(). The handle is kept
 * @retval SHARE_EINVAL  it was released already
 */
int share_try_release(share_buffer *b);

/**
 * Receives a message in host memory for the calling thread, if there is one, its data is good, and
 * it can be received without waiting and without asking anybody. It is for who holds a lock that
 * others need.
 *
 * @param ch   the channel, as a consumer
 * @param out  the message, to be given back with share_ack() or share_try_ack()
 * @retval SHARE_EAGAIN  there is no such message. Call share_recv() when the thread may wait: it
 *                       receives the same message
 * @see the errors of share_recv()
 */
int share_try_recv(share_channel *ch, share_message *out);

/**
 * Acknowledges a message in host memory that the calling thread was the last to use, if that can be
 * done without waiting and without asking anybody: it can when nobody keeps the memory beyond the
 * message, and the channel is open.
 *
 * @param m  the message
 * @retval SHARE_EAGAIN  it cannot be done in this way: call share_ack(). The program still has the
 *                       message
 * @retval SHARE_EINVAL  it was acknowledged, or a copy of it was
 */
int share_try_ack(share_message *m);

#pragma GCC visibility pop

#endif
