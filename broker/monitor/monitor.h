/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/broker.h"
#include "broker/rights/right.h"

/*
 * Connections that ask what happens at the broker (MONITOR). Whoever does something that is worth a
 * line tells it here. Nobody learns by that what a report would not show it.
 */

struct client;

struct monitors {
	LIST_HEAD(, monitor) list;
};

/* Something that has happened. A member that is 0 or NULL is not told. */
struct notice {
	const char *action;
	/* The pool, name or channel that it happened to; those are told who may read that. NULL:
	 * those are told who answer for the user. */
	const struct access_object *what;
	bool is_private; /* those who answer for the user are told, though there is a `what` */
	const struct client *client; /* who did it */
	uid_t uid;                   /* the user, if no client does it */
	uint64_t buffer;             /* the buffer's identifier */
	uint64_t size;               /* in bytes */
	uint64_t count;
	const char *detail; /* a word or two */
};
#define NOTICE_NOBODY ((uid_t)-1)

/* Whether anybody asks, which is all that this costs if nobody does. */
static inline bool monitors_any(const struct broker *b)
{
	return !LIST_EMPTY(&b->monitors->list);
}
/* Tells those who ask what has happened. If there is no memory for that, they are told later how
 * much is missing. */
void monitors_tell(struct broker *b, const struct notice *n);
/* Returns the action that is told when this client, which is ENDING, has begun to end. */
const char *monitors_word_for_end(const struct client *c);

/* Drops the monitor of a client that is gone; always true. */
bool client_drop_monitor(struct client *c, int *budget);
