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

/*
 * Request and reply on channels, for servers like those of inference: any number of callers and of
 * workers, each request to one worker, each reply to who asked. Buffers both ways, ordered on
 * streams as everywhere.
 *
 * Requests travel in a queue: what a dead worker had not answered goes to another one, marked by
 * `deliveries`. When a caller dies, cancels or runs out of time, its requests that no worker has
 * taken yet are dropped, and a worker at work can find out with share_request_status().
 *
 * A request or an answer carries up to SHARE_REQUEST_DATA_MAX bytes besides its buffer; what is
 * behind these in a share_message's `data` is the library's. Who takes part may write in the pool.
 *
 * Threads: calls of any number of threads can be under way on one handle, and requests can be taken
 * and answered in any.
 */
#define SHARE_REQUEST_DATA_MAX 240
/* Calls under way and answers not acknowledged, of one handle. */
#define SHARE_CALLS_MAX 128

typedef struct share_service share_service;
typedef struct share_pending share_pending;

enum share_service_role {
	SHARE_CALLER = 1,
	SHARE_WORKER = 2,
};

typedef struct share_service_options {
	size_t size;
	const char *pool;    /* NULL: "default" */
	uint32_t depth;      /* requests that wait at one worker, of one caller; 0: 16 */
	uint32_t callers;    /* at a time, up to 64; 0: 64 */
	uint32_t workers;    /* at a time, up to 64; 0: 64 */
	uint32_t deliveries; /* a request that so many workers died of fails; 0: 3 */
} share_service_options;
#define SHARE_SERVICE_OPTIONS_INIT                              \
	{                                                       \
		sizeof(share_service_options), NULL, 0, 0, 0, 0 \
	}

/**
 * As share_channel_open(). A service of name N, of up to 247 bytes, has the channels N and
 * "N.replies". Whoever comes first says what it is like; what others leave at 0 is as it is.
 */
int share_service_open(share_client *c, const char *name, int role,
		       const share_service_options *options, share_service **out);

/** Pending calls must have been given up, requests acknowledged; answers may be held on to. NULL is
 * fine. */
void share_service_close(share_service *s);

/**
 * Asks, and waits up to @timeout_ms for the answer: a message, to be acknowledged. @b may be NULL;
 * the worker gets it for reading. Work enqueued on @stream afterwards comes after the worker's.
 *
 * SHARE_ETIMEDOUT: no worker has answered (or was there) in time. SHARE_EOWNERDEAD: the request was
 * delivered to as many workers as it may be, and all died with it; or the one that answered died
 * before its work was done. SHARE_ECANCELED: the worker has acknowledged it without an answer.
 * SHARE_EAGAIN: there are SHARE_CALLS_MAX already.
 */
int share_call(share_service *s, share_buffer *b, const void *data, size_t data_size,
	       int timeout_ms, void *stream, share_message *out);

/** The same in two steps, so that several may be under way: start, then finish each one, in any
 * order. @timeout_ms is for both together; with 0 (for an event loop) there is no limit in time,
 * and SHARE_EAGAIN when there is no room for a request. */
int share_call_start(share_service *s, share_buffer *b, const void *data, size_t data_size,
		     int timeout_ms, void *stream, share_pending **out);

/** Waits for the answer; @out->channel is NULL when there is none. SHARE_EAGAIN: not there yet, and
 * @timeout_ms was 0; with it, and with SHARE_EINVAL and SHARE_EFORK, @p stays; otherwise it is
 * given up, and with any other error the call is over. */
int share_call_finish(share_pending *p, int timeout_ms, void *stream, share_message *out);

/** Gives a call up. NULL is fine. */
void share_call_cancel(share_pending *p);

/** Workers: the next request, as share_recv(). SHARE_EPIPE: all callers have left or died; it is
 * said once, the next call waits for new ones. */
int share_next_request(share_service *s, int timeout_ms, void *stream, share_message *out);

/** Whether somebody waits for the answer: 0, SHARE_ECANCELED or SHARE_EOWNERDEAD. A load or two. */
int share_request_status(const share_message *request);

/**
 * Answers with @b (or NULL) and data, and acknowledges the request: @stream is where the work on
 * both was enqueued. The request is given up even when nobody waits for the answer any more, which
 * is SHARE_ECANCELED or SHARE_EOWNERDEAD. A request that is acknowledged without an answer fails
 * with SHARE_ECANCELED at the caller's.
 */
int share_reply(share_message *request, share_buffer *b, const void *data, size_t data_size,
		void *stream);

/** As share_channel_get_fd(): of the requests for a worker, to be armed by share_next_request(); of
 * the answers for a caller, to be armed by share_call_finish(), each with time limit 0. A caller is
 * not told by it that all workers have died with a request, so it should ask now and then. */
int share_service_get_fd(share_service *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
