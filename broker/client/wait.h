/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_WAIT_H
#define BROKER_CLIENT_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/client/account.h"
#include "wire/wire.h"

struct buffer;
struct client;
struct event;
struct name;

/*
 * A request that is answered when something has happened: a LOOKUP when its name is published, a
 * RECLAIM when nobody else has its buffer any more, a MONITOR when there is something to tell.
 */
struct wait {
	const struct wait_kind *kind;
	union {
		TAILQ_ENTRY(wait) of_name;
		LIST_ENTRY(wait) of_buffer;
	};
	LIST_ENTRY(wait) of_client;
	struct client *client;
	struct name *name;     /* either this */
	struct buffer *buffer; /* or that; of a MONITOR neither */
	struct event *timer;   /* NULL: no limit */
	struct charge charge;
	uint32_t serial;
	uint32_t mode;
};

/* What it waits for. */
struct wait_kind {
	enum wire_type request;
	/* Takes it from where it waits. */
	void (*leave)(struct wait *w);
	/* Says what has not happened in time: SHARE_ETIMEDOUT. */
	int (*fail_late)(const struct wait *w, struct failure *failure);
};

/* For @timeout milliseconds, -1 without limit; the caller puts it where it waits. 0, or a
 * SHARE_E..., and then @failure says why. */
int wait_new(struct client *client, const struct wait_kind *kind, uint32_t serial, int timeout,
	     struct wait **out, struct failure *failure);
/* Without an answer. */
void wait_free(struct wait *w);
/* Some of a client's that is gone; true when there are none any more. */
bool client_drop_waits(struct client *c, int *budget);
void wait_end(struct wait *w, int error, const char *detail);
/* Ends the client's request with this serial. */
void wait_cancel(struct client *client, uint32_t serial);

#endif
