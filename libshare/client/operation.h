/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/dispatch.h"

/*
 * What goes on after a call has returned, and ends with a callback from share_dispatch().
 *
 *   ASKED    a request is under way
 *   QUEUED   a task is in the client's queue
 *   BLOCKED  a thread waits for something
 *   RUNNING  dispatch does what is left to do, and runs the callback
 *   OVER     nothing more will happen
 */
enum phase { ASKED, QUEUED, BLOCKED, RUNNING, OVER };

/* None of them is called with a lock held, but for those that say so. */
struct operation_kind {
	/* In dispatch: 0 or an error, for the callback, or 1: operation_block() has been called. */
	int (*proceed)(share_operation *o);
	/* In a thread, again and again: waits at most @timeout_ms. 1: it is not over; else the
	 * result. */
	int (*wait)(share_operation *o, int timeout_ms);
	void (*call)(share_operation *o, int result);
	/* Nobody will be told, so what it got is given back. */
	void (*drop)(share_operation *o);
	/* With the client's lock held, which it lets go of in between: the request is to be
	 * answered at once. NULL where there is none. */
	void (*recall_unlocking)(share_operation *o);
	/* With the client's lock held. */
	void (*free)(share_operation *o);
};

/* An operation is the first member of what it is about, for which there is so much room. */
#define OPERATION_ROOM 1792

struct share_operation {
	struct handle handle;
	const struct operation_kind *kind;
	LIST_ENTRY(share_operation) link;
	struct task task;
	share_client *client;
	enum phase phase; /* this and the next three under the lock */
	unsigned refs;    /* the handle, and whatever the phase says is going on */
	bool canceled;
	bool has_handle;
	bool waited; /* a thread has, and knows the result */
	int result;
	int64_t deadline;
	pthread_t runner;
};
HANDLES_OF(share_operation, operation, HANDLE_OPERATION);

/* Holds the client. One reference is the caller's, for operation_unref_locked(). This and the other
 * two whose names end so are called with the client's lock held. */
void operation_init_locked(share_operation *o, const struct operation_kind *kind, share_client *c,
			   bool has_handle);
/* After that, as the end of what has started it: 0, and it goes on, with a handle if there is @out;
 * or an error @r, and it is gone. Lets go of the client's lock, and returns @r. */
int operation_started_unlocking(share_operation *o, int r, share_operation **out);
void operation_unref_locked(share_operation *o);

/* What was going on is over: dispatch goes on with it. */
void operation_queue_locked(share_operation *o);

/* Starts a thread that waits. 1 when it has taken over (then the operation may be gone already),
 * or an error. */
int operation_block(share_operation *o);
