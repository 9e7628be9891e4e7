/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_INSIDE_H
#define BROKER_CLIENT_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "broker/accounts/account.h"
#include "broker/accounts/turns.h"
#include "wire/packet.h"

/* Inside of connections: what reading (connection.c) and sending (sending.c) know of each other. */

struct broker;
struct client;
struct closing;
struct event;

/*
 * A packet on its way. It is a record until it has gone out: if the broker dies meanwhile, the next
 * one sends it. So it may go out twice, and has a number at its end, by which a client tells.
 */
struct queued {
	TAILQ_ENTRY(queued) link; /* of its connection */
	TAILQ_ENTRY(queued) news; /* of the broker, until it counts */
	struct connection *connection;
	bool is_news;
	bool is_spare;
	struct charge charge, charge_descriptors;
	bool waits; /* it did not go out at once: it is paid for, and its descriptors are its own */
	uint32_t record;
	uint64_t client, number;
	struct fd_list fds;
	size_t size;
	unsigned char data[];
};

#define RETRY_MS 2 /* at first; then later and later */

struct connection {
	struct broker *broker;
	struct account *account; /* as long as the client has it; then a reference */
	struct client *client;   /* NULL: it has ended */
	int socket;
	struct closing *closing; /* NULL: no descriptor can come in */
	bool refuses_fds;        /* with @closing: those that are in the socket are the last */
	struct turn turn;        /* to read; to write, while something waits to go out */
	/* Descriptors could not be sent; the socket may be writable all along. */
	struct event *retry;
	TAILQ_HEAD(, queued) queue;
	/* some of the queue did not go out, because of the socket or of its peer */
	bool waits;
	uint64_t n_sent; /* packets */
	/* at most so many: those sent since the peer was last seen to have read all */
	size_t fds_in_flight;
	TAILQ_ENTRY(connection) in_flight; /* in the broker, while there are any */
	int retry_ms;
	struct charge charge, charge_socket; /* once the client no longer has them */
};

/* connection.c: the end of one whose peer has received all that it was sent. */
void connection_let_go(struct connection *c);

/* queue.c */
/* To be sent when what was said counts. 0 or -ENOMEM. */
int connection_enqueue(struct connection *c, const void *data, size_t size, const int *fds,
		       size_t n_fds);
void queued_free(struct connection *c, struct queued *q);
/* The journal says what it is now. */
void queued_note(struct queued *q);
struct queued *queued_spare_new(void); /* NULL without memory */
/* What cannot go out now has to be paid for, and keeps what its descriptors are of. 0 or negative
 * errno. */
int queued_let_wait(struct connection *c, struct queued *q);
/* What waits to go out will not. */
void connection_drop_queue(struct connection *c);

/* sending.c */
/* Sends as much of what waits to go out as the socket takes now. */
void connection_flush(struct connection *c);
/* Stops reading from the client for a moment. */
void connection_pause(struct connection *c);
void connection_on_retry(evutil_socket_t fd, short what, void *data);
/* The peer has received all descriptors; or nobody counts them any more. */
void connection_received_all(struct connection *c);
/* It has ended, and is let go when the peer has received all that it was sent. */
void connection_wait_until_received(struct connection *c);

#endif
