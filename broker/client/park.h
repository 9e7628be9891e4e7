/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_PARK_H
#define BROKER_CLIENT_PARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/client/account.h"

struct broker;
struct client;
struct park;
struct request;

/*
 * Requests that cannot be answered yet, as an agent has to do something first. They are kept as
 * they came, in order, and handled again from the start when what they wait for may have happened.
 * Charged to their client as bytes that it has not read, and for the work of that.
 */
TAILQ_HEAD(park_list, park);

/* One of them, for as long as it is parked. */
struct park_id {
	uint64_t client; /* 0: none */
	uint32_t serial;
};

/* The handler that calls this has not answered and returns. */
void request_park(struct request *r, struct park_list *list);

/* The same for one that waits for nothing, but is long: it goes on in a later turn of the loop. */
void request_go_on_later(struct request *r);

/* All that are in the list now are handled again, the first of them at once, many over some turns
 * of the loop; they may park once more. */
void park_wake(struct broker *b, struct park_list *list);
/* The same for the first alone; it parks as the last. */
void park_wake_first(struct broker *b, struct park_list *list);
/* All are answered with an error. */
void park_fail(struct park_list *list, int error, const char *text);
/* Or only that one, if it is there. */
void park_fail_one(struct park_list *list, const struct park_id *id, int error, const char *text);

/* From the loop. */
void park_on_waker(int fd, short what, void *broker);

/* Whether a request of @client's is in the list. */
bool park_has(const struct park_list *list, const struct client *client);

/* Drops some of its requests unanswered, as it is gone; true when there are none any more. */
bool client_drop_parked(struct client *c, int *budget);

#endif
