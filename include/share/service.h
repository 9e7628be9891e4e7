/* SPDX-License-Identifier: MIT */
#ifndef SHARE_SERVICE_H
#define SHARE_SERVICE_H

#include <stddef.h>
#include <stdint.h>

#include <share/channel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/** Bytes that go with a request or an answer, besides its buffers, where nobody has said more. */
#define SHARE_REQUEST_DATA_MAX 240
/** Calls under way, answers not acknowledged, and those that were acknowledged behind work which is
 * not done, of one handle. There are fewer where answers may have several buffers or many bytes:
 * see share_service_options. */
#define SHARE_CALLS_MAX 128

/**
 * Requests and replies on channels, for servers like those of inference. There are any number of
 * callers and of workers; each request goes to one worker, and each reply to the caller who asked.
 * Both may carry buffers, ordered on streams as everywhere.
 *
 * Requests travel in a queue: a request that a worker had not answered when it died goes to another
 * one, marked by `deliveries`. When a caller dies, cancels or runs out of time, its requests that
 * no worker has taken yet are dropped, and a worker at work can find out with
 * share_request_status().
 *
 * A request or an answer carries up to SHARE_REQUEST_DATA_MAX bytes besides its buffer, or more,
 * and several buffers, where all who take part have said so (`data_max`, `buffers`). They must have
 * the right to write in the pool.
 *
 * Threads: calls of any number of threads can be under way on one handle, and requests can be taken
 * and answered in any.
 */
typedef struct share_service share_service;

/** A call that was started and is not finished. Of share_call_start(). */
typedef struct share_pending share_pending;

/** What a process is in a service. */
enum share_service_role {
	SHARE_CALLER = 1, /**< asks */
	SHARE_WORKER = 2, /**< answers */
};

/** What a service is like. Set it to SHARE_SERVICE_OPTIONS_INIT. */
typedef struct share_service_options {
	size_t size;
	const char *pool;    /**< of all buffers, of requests and of answers; NULL: "default" */
	uint32_t depth;      /**< requests of one caller that wait at one worker, or, if there is
			      * none, for one to come; a power of two up to 4096; 0: 16 */
	uint32_t callers;    /**< at a time, up to 64; 0: 64 */
	uint32_t workers;    /**< at a time, up to 64; 0: 64 */
	uint32_t deliveries; /**< a request that so many workers died with fails; 0: 3 */
	/** How many buffers a request or an answer carries at most, up to 32; 0: 1. Who takes part
	 * has to say it, else it gets SHARE_EEXIST, as its program may look at `buffer` alone. So
	 * that nobody's answers are in the way of another's, the calls that a handle may have under
	 * way are at most the power of two that is not above 8192 / (`callers` * `buffers`). */
	uint32_t buffers;
	/** Bytes with each of them, up to 65519, and at least SHARE_REQUEST_DATA_MAX, whatever is
	 * said. What is more has to be said as `buffers` has. The answers that may be under way to
	 * all callers are 64 MiB at most, and calls fewer where that takes it: with 32 buffers and
	 * 65519 bytes there is room for 31 `callers`, and what has no room is SHARE_EINVAL. */
	uint32_t data_max;
} share_service_options;
#define SHARE_SERVICE_OPTIONS_INIT                                    \
	{                                                             \
		sizeof(share_service_options), NULL, 0, 0, 0, 0, 0, 0 \
	}

/**
 * Takes part in a service, and makes it if there is none of that name. The first process to open a
 * service says what it is like; a member that others leave at 0 stands for what the service has. A
 * service N has the channels N and "N.replies".
 *
 * @param c        the connection
 * @param name     up to 247 bytes
 * @param role     enum share_service_role
 * @param options  NULL: as it is, or the defaults
 * @param out      the handle, to be given up with share_service_close()
 * @retval SHARE_EBUSY   the service has as many members of that role as it may have
 * @retval SHARE_EEXIST  there is a service of that name, and it is not what was asked for; or there
 *                       is a channel of that name that belongs to no service
 * @retval SHARE_EINVAL  one answer to each of so many `callers`, with so many `buffers` and bytes
 *                       (`data_max`), is more than there is room for; or more `callers` or
 *                       `workers` than a service may have; or `depth` is no power of two
 * @retval SHARE_EACCES  this user may not write in the pool
 * @retval SHARE_ENOENT  there is no such pool, or this user may not use it
 * @retval SHARE_EQUOTA  this user has as many channels as it may
 * @retval SHARE_ENOTSUP more than one of `buffers`, or a `data_max` of more than
 *                       SHARE_REQUEST_DATA_MAX, with a broker of an older version
 * @see share_channel_open()
 *
 * @par Example
 * @code
 * share_message m = SHARE_MESSAGE_INIT;
 *
 * share_service_open(c, "detector", SHARE_CALLER, &options, &s);
 * if (share_call(s, b, &question, sizeof question, 1000, stream, &m) == 0) {
 *         use(m.buffer, m.data);
 *         share_ack(&m, stream);
 * }
 * @endcode
 *
 * A worker, of which there may be any number:
 * @code
 * share_message m = SHARE_MESSAGE_INIT;
 *
 * share_service_open(c, "detector", SHARE_WORKER, &options, &s);
 * while (share_next_request(s, -1, stream, &m) == 0) {
 *         infer(share_ptr(m.buffer), m.data, share_ptr(answer), stream);
 *         share_reply(&m, answer, NULL, 0, stream);
 * }
 * @endcode
 */
int share_service_open(share_client *c, const char *name, int role,
		       const share_service_options *options, share_service **out);

/**
 * Leaves a service. The calls that were started and not finished go with it. The callers of
 * requests that a worker still has are told that there is no answer (SHARE_ECANCELED); nothing is
 * left to do with these requests but share_ack(). Answers may be kept. Who waits in the service in
 * another thread gets SHARE_ECANCELED.
 *
 * @param s  the handle; NULL is fine
 */
void share_service_close(share_service *s);

/**
 * Asks, and waits for the answer. The worker gets the buffer for reading. Work enqueued on `stream`
 * afterwards comes after the worker's.
 *
 * @param s           the service, as a caller
 * @param b           what the request is about; NULL: the data alone
 * @param data        what goes with it; may be NULL when there is none
 * @param data_size   its bytes, up to `data_max` of the service
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the buffer was worked on, and the answer will be
 * @param out         the answer, which was set to SHARE_MESSAGE_INIT, to be given back with
 *                    share_ack()
 * @retval SHARE_ETIMEDOUT  no worker has answered (or was there) in time. If the time limit is 0,
 *                          no worker can have answered: SHARE_EAGAIN
 * @retval SHARE_EOWNERDEAD the request was delivered to as many workers as the service allows, and
 *                          all of them died with it; or the worker that answered died before its
 *                          work was done
 * @retval SHARE_ECANCELED  the worker has acknowledged it without an answer, or has closed the
 *                          service with it; or another thread has given the service up
 * @retval SHARE_EDISCONNECTED  no worker is there, and the broker is gone, so that none can come
 * @retval SHARE_EAGAIN     there are SHARE_CALLS_MAX already (of work alone, the end is
 *                          waited for)
 * @retval SHARE_ESTALE     this caller was left behind, as it owes too many workers that are gone
 *                          something, and has missed the answer
 * @retval SHARE_EQUOTA     as share_send()
 * @retval SHARE_EBUSY      as for share_alloc()
 * @retval SHARE_ENODEV     as for share_alloc()
 * @retval SHARE_EDEVICE    as for share_alloc()
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_call(share_service *s, share_buffer *b, const void *data, size_t data_size,
	       int timeout_ms, void *stream, share_message *out);

/**
 * Does what share_call() does, with a request that may have several buffers, or give those that it
 * has. They are given when there is an answer: when it fails, the caller still has the references
 * that were to be given, whatever the error is, and a request that was sent has its own.
 *
 * @param s           the service, as a caller
 * @param request     what is asked, as for share_send_many(), with up to `buffers` of the service
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the buffers were worked on, and the answer will be
 * @param out         the answer, which was set to SHARE_MESSAGE_INIT, to be given back with
 *                    share_ack()
 * @retval SHARE_EINVAL     the request has more buffers or data than the service lets it have
 * @retval SHARE_ETIMEDOUT  as share_call()
 * @retval SHARE_EOWNERDEAD as share_call()
 * @retval SHARE_ECANCELED  as share_call()
 * @retval SHARE_EDISCONNECTED  as share_call()
 * @retval SHARE_EAGAIN     as share_call()
 * @retval SHARE_ESTALE     as share_call()
 * @retval SHARE_EQUOTA     as share_call()
 * @retval SHARE_EBUSY      as for share_alloc()
 * @retval SHARE_ENODEV     as for share_alloc()
 * @retval SHARE_EDEVICE    as for share_alloc()
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 *
 * @par Example
 * @code
 * share_outgoing request = SHARE_OUTGOING_INIT;
 *
 * request.buffers = images;
 * request.n_buffers = 2;
 * if (share_call_with(s, &request, 1000, stream, &m) == 0) {
 *         use(m.buffers, m.n_buffers);
 *         share_ack(&m, stream);
 * }
 * @endcode
 */
int share_call_with(share_service *s, const share_outgoing *request, int timeout_ms, void *stream,
		    share_message *out);

/**
 * Asks, and leaves the answer to share_call_finish(). So several calls may be under way at a time,
 * and may be finished in any order.
 *
 * @param s           the service, as a caller
 * @param b           what the request is about; NULL: the data alone
 * @param data        what goes with it; may be NULL when there is none
 * @param data_size   its bytes, up to `data_max` of the service
 * @param timeout_ms  how long to wait for room at most; 0 does not, -1: without limit. How long
 *                    the answer may take, share_call_finish() says
 * @param stream      where the buffer was worked on
 * @param out         the call, to be given up with share_call_finish() or share_call_cancel()
 * @retval SHARE_EAGAIN     there are SHARE_CALLS_MAX already, or no room and the time limit is 0
 * @retval SHARE_ETIMEDOUT  there was no room in time, or the work that answers were acknowledged
 *                          behind was not done
 * @retval SHARE_EDISCONNECTED  as share_send()
 * @retval SHARE_EQUOTA     as share_send()
 * @retval SHARE_ECANCELED  another thread has given the service up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_call_start(share_service *s, share_buffer *b, const void *data, size_t data_size,
		     int timeout_ms, void *stream, share_pending **out);

/**
 * Does what share_call_start() does, with a request as of share_call_with(). When it fails, the
 * caller still has the references that were to be given.
 *
 * @param s           the service, as a caller
 * @param request     what is asked, as for share_send_many(), with up to `buffers` of the service
 * @param timeout_ms  how long to wait for room at most; 0 does not, -1: without limit
 * @param stream      where the buffers were worked on
 * @param out         the call, to be given up with share_call_finish() or share_call_cancel()
 * @retval SHARE_EINVAL     as share_call_with()
 * @retval SHARE_EAGAIN     as share_call_start()
 * @retval SHARE_ETIMEDOUT  there was no room in time
 * @retval SHARE_EDISCONNECTED  as share_send()
 * @retval SHARE_EQUOTA     as share_send()
 * @retval SHARE_ECANCELED  another thread has given the service up
 * @retval SHARE_EINTR      interrupted (share_interrupt())
 */
int share_call_start_with(share_service *s, const share_outgoing *request, int timeout_ms,
			  void *stream, share_pending **out);

/**
 * Waits for the answer of a call that was started. The call is given up unless this returns
 * SHARE_EAGAIN, SHARE_EINVAL, SHARE_EINTR or SHARE_EFORK.
 *
 * @param p           the call
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where the answer will be worked on
 * @param out         the answer, which was set to SHARE_MESSAGE_INIT, to be given back with
 *                    share_ack(); its `channel` is NULL when there is none
 * @retval SHARE_EAGAIN      the answer is not there yet, and the time limit was 0
 * @retval SHARE_ETIMEDOUT   as share_call()
 * @retval SHARE_EOWNERDEAD  as share_call()
 * @retval SHARE_ECANCELED   as share_call()
 * @retval SHARE_EDISCONNECTED  as share_call()
 * @retval SHARE_ESTALE      as share_call()
 * @retval SHARE_EQUOTA      the answer lies in memory that this user has no room left to map
 * @retval SHARE_EBUSY       as for share_alloc()
 * @retval SHARE_ENODEV      as for share_alloc()
 * @retval SHARE_EDEVICE     as for share_alloc()
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 */
int share_call_finish(share_pending *p, int timeout_ms, void *stream, share_message *out);

/**
 * Gives a call up: its answer is not wanted any more. Who waits for it in another thread gets
 * SHARE_ECANCELED.
 *
 * @param p  the call; NULL is fine
 */
void share_call_cancel(share_pending *p);

/**
 * Takes the next request. The worker gives it up with share_reply(), or with share_ack() when there
 * is no answer.
 *
 * @param s           the service, as a worker
 * @param timeout_ms  how long to wait at most; -1: without limit
 * @param stream      where it will be worked on
 * @param out         the request, which was set to SHARE_MESSAGE_INIT
 * @retval SHARE_EPIPE       all callers have left or died. This is said once: the next call waits
 *                           for new callers
 * @retval SHARE_EAGAIN      there is no request, and the time limit was 0
 * @retval SHARE_ETIMEDOUT   no request came in time
 * @retval SHARE_EDISCONNECTED  there is no request and no caller, and the broker is gone, so that
 *                              none can come
 * @retval SHARE_ESTALE      this worker was left behind several times, and has messages of each
 *                           time: it has to give some up
 * @retval SHARE_EQUOTA      as share_recv()
 * @retval SHARE_ECANCELED   another thread has given the service up
 * @retval SHARE_EINTR       interrupted (share_interrupt())
 * @see share_recv()
 */
int share_next_request(share_service *s, int timeout_ms, void *stream, share_message *out);

/**
 * Tells whether the caller still waits for the answer. It takes a load or two.
 *
 * @param request  the request, as a worker has it
 * @retval 0  the caller waits
 * @retval SHARE_ECANCELED   the caller has given it up, or ran out of time
 * @retval SHARE_EOWNERDEAD  the caller is dead
 */
int share_request_status(const share_message *request);

/**
 * Answers a request, and acknowledges it. The request is given up even when the caller does not
 * wait for the answer any more. (If a worker acknowledges a request without an answer, the caller's
 * call fails with SHARE_ECANCELED.)
 *
 * @param request    the request
 * @param b          the answer; NULL: the data alone
 * @param data       what goes with it; may be NULL when there is none
 * @param data_size  its bytes, up to `data_max` of the service
 * @param stream     where the work on both was enqueued
 * @retval SHARE_ECANCELED   nobody waits for the answer any more; or the caller has no room for it,
 *                           as it has asked for more than it may have under way
 * @retval SHARE_EOWNERDEAD  the caller is dead
 * @retval SHARE_EQUOTA      as share_send()
 * @retval SHARE_ETIMEDOUT   the broker has not said who takes part, within half a second
 */
int share_reply(share_message *request, share_buffer *b, const void *data, size_t data_size,
		void *stream);

/**
 * Does what share_reply() does, with an answer that may have several buffers, or give those that it
 * has. They are given when it returns 0: when it fails, the worker still has the references that
 * were to be given, whatever the error is. If it fails and the request is still there (its
 * `channel` is not NULL), it may be called again.
 *
 * @param request  the request
 * @param answer   the answer, as for share_send_many(), with up to `buffers` of the service
 * @param stream   where the work on both was enqueued
 * @retval SHARE_EINVAL      the answer has more buffers or data than the service lets it have
 * @retval SHARE_ECANCELED   as share_reply()
 * @retval SHARE_EOWNERDEAD  the caller is dead
 * @retval SHARE_EQUOTA      as share_send()
 * @retval SHARE_EDISCONNECTED  the broker is gone, which had to lease what is kept of the request
 * @retval SHARE_ETIMEDOUT   the broker has not said who takes part, within half a second
 */
int share_reply_with(share_message *request, const share_outgoing *answer, void *stream);

/**
 * A descriptor for event loops. It polls readable as long as a call that had to wait may have
 * something to do:
 *
 * - of a worker: share_next_request(), until it answers SHARE_EAGAIN
 * - of a caller: share_call_finish(), as a call was answered, or has failed because all workers
 *   that had it have died, until it answers SHARE_EAGAIN (time limit 0) or the call is over, so
 *   that it is never readable without a call; and share_call_start(), if that has answered
 *   SHARE_EAGAIN to a time limit of 0, for want of room or because there were SHARE_CALLS_MAX,
 *   until it does so again, or has started a call
 *
 * It tells every millisecond of an answer that cannot be had yet, as the worker's work on its
 * memory still runs, and of a call that was refused, as work runs that you have acknowledged
 * answers behind. An event loop receives those on a share_host_stream, which waits by itself.
 *
 * So when it is readable, ask for each call that you wait for, start those that were refused, and
 * poll then. One thread at a time polls. Do not read, write or close it.
 *
 * @param s  the service
 * @return The descriptor, which belongs to the service; or a negative error.
 */
int share_service_get_fd(share_service *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
