/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MONITOR_MONITOR_H
#define BROKER_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "broker/broker.h"
#include "broker/rights/right.h"

/*
 * Connections that ask what happens at the broker (MONITOR). Whoever does something that is worth a
 * line tells it here, and nobody is the wiser for it who would not see the same in a report.
 */

struct client;
struct monitor;

struct monitors {
	LIST_HEAD(, monitor) list;
};

/* Something that has happened. What is 0 or NULL is not told. */
struct notice {
	const char *action;
	/* The pool, name or channel that it happened to: told to who may read that. NULL: to who
	 * answers for the user. */
	const struct access_object *what;
	bool is_private;             /* to the latter, though there is a `what` */
	const struct client *client; /* who did it */
	uid_t uid;                   /* of whom it is that, if no client does it */
	uint64_t buffer;             /* identifier */
	uint64_t size;               /* bytes */
	uint64_t count;
	const char *detail; /* of a word or two */
};
#define NOTICE_NOBODY ((uid_t)-1)

/* Whether anybody asks: all that it costs if nobody does. */
static inline bool monitors_any(const struct broker *b)
{
	return !LIST_EMPTY(&b->monitors->list);
}
/* Takes no memory that has to be there: who cannot be told is told later how much is missing. */
void monitors_tell(struct broker *b, const struct notice *n);
/* The action when this client, which is ENDING, has begun to. */
const char *monitors_word_for_end(const struct client *c);

/* The client is gone; always true. */
bool client_drop_monitor(struct client *c, int *budget);

#endif
