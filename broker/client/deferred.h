/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_DEFERRED_H
#define BROKER_CLIENT_DEFERRED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"

struct broker;
struct client;
struct deferred;
struct failure;
struct request;
struct wire_message;

/*
 * Requests that cannot be answered yet, as an agent or another client has to do something first.
 * They are kept as they came, in order, and handled again from the start when what they wait for
 * may have happened. Charged to their client as bytes that it has not read, and for the work of
 * that; what waits for other clients counts as one that waits.
 */
TAILQ_HEAD(deferred_list, deferred);

/* What a request waits for that has a time limit: a LOOKUP for its name to be published, a RECLAIM
 * for everybody else to give up the buffer, a MONITOR for something to tell. */
struct wait_kind {
	/* Says what has not happened in time, of what was asked: SHARE_ETIMEDOUT. */
	int (*fail_late)(const struct wire_message *request, struct failure *failure);
	/* Called after a request has left the list in another way than by being woken, as the
	 * last thing that is done with the list. NULL: the list's owner need not know. */
	void (*left)(struct broker *b, struct deferred_list *list);
};

/* One of them, for as long as it is deferred. */
struct deferred_id {
	uint64_t client; /* 0: none */
	uint32_t serial;
};

/* The handler that calls this has not answered and returns. */
void request_defer(struct request *r, struct deferred_list *list);

/* The same for @timeout milliseconds since it was asked, or until CANCEL ends it; -1: without a
 * limit. False if it was answered, as there is no room for it; one that waits again has its room.
 */
bool request_wait(struct request *r, struct deferred_list *list, const struct wait_kind *kind,
		  int timeout);

/* The same for one that waits for nothing, but is long: it goes on in a later turn of the loop. */
void request_go_on_later(struct request *r);

/* All that are in the list now are handled again, the first of them at once, many over some turns
 * of the loop; they may be deferred once more. */
void deferred_wake(struct broker *b, struct deferred_list *list);
/* The same, all over some turns of the loop, each in its user's time: none of the time of who wakes
 * them. The list is empty then. */
void deferred_wake_later(struct broker *b, struct deferred_list *list);
/* As deferred_wake() for the first alone; it is deferred as the last. */
void deferred_wake_first(struct broker *b, struct deferred_list *list);
/* All are answered with an error. */
void deferred_fail(struct deferred_list *list, int error, const char *text);
/* That one alone is, if it is in the list. */
void deferred_fail_one(struct deferred_list *list, const struct deferred_id *id, int error,
		       const char *text);
/* Those of that client alone are. */
void deferred_fail_client(struct deferred_list *list, const struct client *client, int error,
			  const char *text);
/* Ends the client's request that waits (request_wait()) with this serial. */
void deferred_cancel(struct client *client, uint32_t serial);

/* From the loop. */
void deferred_on_waker(int fd, short what, void *broker);

/* Whether a request of @client's is in the list. */
bool deferred_has(const struct deferred_list *list, const struct client *client);
/* Whether one of @client's that waits so is in a list, or has been woken and has yet to be handled
 * again. */
bool deferred_waits(const struct client *client, const struct wait_kind *kind);

/* Drops some of its requests unanswered, as it is gone; true when there are none any more. */
bool client_drop_deferred(struct client *c, int *budget);

#endif
