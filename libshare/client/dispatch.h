/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"

/* Something that share_dispatch() has to run, in one thread, with the client's lock not held. */
struct task {
	TAILQ_ENTRY(task) link;
	bool queued;    /* this and the next under the client's lock */
	uint64_t order; /* of being queued */
	/* Owns the task. Called and left with the lock held, which it lets go of for the callback.
	 */
	void (*run)(share_client *c, struct task *t);
	/* Drops the task unseen; NULL: it has nothing of its own. */
	void (*discard)(share_client *c, struct task *t);
};

/* All three are called with the client's lock held. */
void dispatch_queue(share_client *c, struct task *t);
void dispatch_unqueue(share_client *c, struct task *t);
/* The same as dispatch_queue() for what others wait for: a thread of the program that waits long
 * for the broker runs it as well. There is one such task of a client at most. */
void dispatch_queue_urgent(share_client *c, struct task *t);
