/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <share/service.h>

#include "libshare/channel/channel.h"
#include "libshare/channel/message.h"
#include "libshare/client/client.h"
#include "libshare/receiver/receiver.h"
#include "libshare/sender/sender.h"

/*
 * A service is two channels: requests, a queue from callers to workers, and replies, where each
 * worker says which caller it means. What belongs to a request or a reply besides the user's data
 * travels behind that.
 *
 * Whether a caller still waits for call `index` can be seen in its ring of requests: the word
 * channel_set_call() writes there is the number of the call, or something else.
 */
#define CALLS_MAX    SHARE_CALLS_MAX
#define REPLIES_NAME ".replies"
#define BEFORE_MAX   8

struct request_tail {
	uint64_t member; /* the caller among the consumers of replies */
	uint32_t call;   /* 0, in the worker: it was answered */
	uint16_t index;
	uint16_t slot; /* of the member */
};
_Static_assert(sizeof(struct request_tail) == CHANNEL_NOTE_SIZE, "it is the note of a request");
/* A channel of services has room for it beside the data of either. */
#define TAIL_MAX sizeof(struct request_tail)
_Static_assert(SHARE_REQUEST_DATA_MAX + TAIL_MAX == SHARE_MESSAGE_DATA_MAX,
	       "requests are messages");

enum reply_status { REPLY_ANSWER, REPLY_NONE /* acknowledged without an answer */ };
struct reply_tail {
	uint32_t call;
	uint16_t index;
	uint16_t status; /* enum reply_status */
};
_Static_assert(sizeof(struct reply_tail) <= TAIL_MAX, "replies are messages");

/* A call, and what has become of it. Between calls it waits for the next in its place. */
struct share_pending {
	struct handle handle;
	share_client *client;
	share_service *service;
	uint32_t index;
	uint32_t call; /* this and what follows under the lock */
	bool waiting;  /* for an answer */
	bool told;     /* it has ended, and was not asked for since, or could not be had then */
	bool late;     /* the same, as the work runs that it comes after: it is told soon */
	bool canceled; /* by another thread, while one asks for the answer */
	int error;     /* 0: there is an answer */
	share_message answer;
	char detail[256]; /* of the error */
};
HANDLES_OF(share_pending, pending, HANDLE_PENDING);

/* `lock` is not held while anything is sent or received. */
struct share_service {
	struct handle handle;
	share_client *client;
	int role;
	atomic_bool given_up;
	/* The one that we consume may be opened again: see again.c. */
	share_channel *requests, *replies;
	pthread_mutex_t lock;
	int epoll;  /* of an event loop; -1 until there is one */
	int others; /* of a caller, in it: readable while there are calls that are `told` */
	int less;   /* of a caller, in it: a timer that tells of calls that were refused */
	share_channel *before[BEFORE_MAX]; /* what was in the place of that one; NULL: free */
	char name[SHARE_NAME_MAX + 1];
	uint32_t sends_max, takes_max; /* bytes of data, of what goes and of what comes */

	/* of a caller */
	struct channel_target self; /* as a consumer of replies */
	struct bell arrived;
	bool reading;          /* some thread receives, for all */
	atomic_bool came_back; /* there may be requests that were delivered too often */
	uint32_t calls_max, n_free, n_waiting, n_told;
	uint16_t free[CALLS_MAX];
	uint32_t numbers[CALLS_MAX]; /* of the last call in each place */
	share_pending *calls[CALLS_MAX];
};
HANDLES_OF(share_service, service, HANDLE_SERVICE);

/* In service.c. 0, or SHARE_EINVAL, SHARE_EFORK. */
int service_check(const share_service *s, int role);
/* The same from a handle. */
int service_resolve_as(share_service **s, int role);
/* 0, or SHARE_EINVAL for what a user wants to go with "a request" or "an answer". */
int service_check_data(const share_service *s, const share_outgoing *m, const char *of);
/* This is channel_send() of one, with @tail behind its data: 0 or an error. */
int service_send(share_channel *ch, const struct channel_target *to, share_outgoing *m,
		 const void *tail, size_t tail_size, void *stream, int timeout_ms,
		 struct ring_fence *signalled);
/* A program has what it gives until its call has succeeded, whatever fails before. So the first
 * function checks that @m can be given, and has it sent without that: 0 or an error. The second
 * one gives up the program's references when all is done. */
int service_keep_given(share_channel *ch, share_outgoing *m, void *stream, bool *gives);
void service_release_given(const share_outgoing *m, void *stream);
/* Takes the tail off a message with up to @most bytes: false if it is none of a service. */
bool service_unpack(share_message *m, uint32_t most, void *tail, size_t tail_size);

/* In again.c. The channel that we consume, held: channel_let_go(). */
share_channel *service_hold_incoming(share_service *s);
/* It says that we were left behind: opens it again, unless another thread has. 0 or an error. */
int service_open_again(share_service *s, share_channel *old);
/* With the lock held: whether calls wait for answers has changed. If none does, the descriptor of
 * replies, which nobody would look into, is not watched. */
void service_watch_replies_locked(share_service *s);
/* With the lock held: so many calls are told more, or fewer. */
void service_tell_locked(share_service *s, int more);
/* Those that were opened before and of which nobody has a message any more, or @all. */
void service_drop_before(share_service *s, bool all);

/* In answers.c: requests were delivered too often. */
void service_came_back(void *service);
/* With the lock held: nobody waits for its answer any more. */
void call_stop_waiting_locked(share_pending *p);
/* With the lock held: it is asked for, or nobody will. */
void call_untell_locked(share_pending *p);
/* It has ended, and could not be had now; @late: as work runs still, and nobody says when it is
 * done.
 */
void call_tell_again(share_pending *p, bool late);
/* Until @p is not waiting any more (0), or the time is over (SHARE_ETIMEDOUT). @p NULL: takes what
 * has come, and waits for nothing. */
int call_wait(share_service *s, share_pending *p, int64_t deadline);

/* In calls.c: a call that waits for an answer. Where answers are acknowledged behind work, it waits
 * for that: nothing else is to be done for it. Of *@timeout_ms it takes what that lasts, and leaves
 * something: 0 is another thing than a time that is over. */
int call_new_in_time(share_service *s, int *timeout_ms, share_pending **out);
/* Its place is free for the next one. */
void call_put(share_pending *p);

/* In worker.c: the request is acknowledged; if it was not answered, the caller is told. */
void service_before_ack(void *service, share_message *request);
