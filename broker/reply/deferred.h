/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "broker/accounts/account.h"
#include "broker/client/clients.h"

struct request;

/*
 * Requests that cannot be answered yet, as an agent or another client has to do something first.
 * They are kept as they came, in order, and handled again from the start when what they wait for
 * may have happened. A request is charged to its client as bytes that the client has not read, and
 * some more for the work of handling it again; one that waits for other clients is charged as one
 * of those that wait (LIMIT_WAITS).
 */

/* What a request waits for that has a time limit: a LOOKUP for its name to be published, a RECLAIM
 * for everybody else to give up the buffer, a MONITOR for something to tell. */
struct wait_kind {
	/* Says in @failure what has not happened in time of what was asked for: SHARE_ETIMEDOUT. */
	int (*fail_late)(const struct wire_message *request, struct failure *failure);
	/* Called after a request has left the list in another way than by being woken, as the
	 * last thing that is done with the list. NULL: the list's owner need not know. */
	void (*left)(struct broker *b, struct deferred_list *list);
};

/* Identifies one deferred request, for as long as it is deferred. */
struct deferred_id {
	uint64_t client; /* 0: none */
	uint32_t serial;
};

/* Puts the request into @list. The handler that calls this has not answered it, and returns what
 * this does next: false if it was answered with an error, as there is no room for it. */
bool request_defer(struct request *r, struct deferred_list *list);

/* The same until @timeout milliseconds have passed since the request came (-1: without a limit), or
 * until CANCEL ends it. A request that waits again has its room already. */
bool request_wait(struct request *r, struct deferred_list *list, const struct wait_kind *kind,
		  int timeout);

/* The same for a request that waits for nothing, but has much to do: it goes on in a later turn of
 * the loop. */
bool request_go_on_later(struct request *r);

/* Handles all that are in the list now again: the first of them at once, and the rest, if there are
 * many, in later turns of the loop. They may be deferred once more. */
void deferred_wake(struct broker *b, struct deferred_list *list);
/* The same, but all of them in later turns of the loop, each in its user's time, so that the user
 * who wakes them does not pay for them. The list is empty when this returns. */
void deferred_wake_later(struct broker *b, struct deferred_list *list);
/* Handles the first one alone again. If it is deferred once more, it becomes the last. */
void deferred_wake_first(struct broker *b, struct deferred_list *list);
/* Answers all requests in the list with an error. */
void deferred_fail(struct deferred_list *list, int error, const char *text);
/* Answers that one alone with an error, if it is in the list. */
void deferred_fail_one(struct deferred_list *list, const struct deferred_id *id, int error,
		       const char *text);
/* Answers those of that client alone with an error; NULL: those of all. */
void deferred_fail_client(struct deferred_list *list, const struct client *client, int error,
			  const char *text);
/* Ends the client's request that waits (request_wait()) with this serial. */
void deferred_cancel(struct client *client, uint32_t serial);

/* One of struct client_rooms. */
void deferred_on_waker(int fd, short what, void *broker);

/* Whether a request of @client's is in the list. */
bool deferred_has(const struct deferred_list *list, const struct client *client);
/* Whether a request of @client's that waits for this kind of thing is in a list, or has been woken
 * and has yet to be handled again. */
bool deferred_waits(const struct client *client, const struct wait_kind *kind);

/* Drops some of the client's requests unanswered, as the client is gone. True when there are none
 * any more. */
bool client_drop_deferred(struct client *c, int *budget);
