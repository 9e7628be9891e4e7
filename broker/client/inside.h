/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_INSIDE_H
#define BROKER_CLIENT_INSIDE_H

#include <stddef.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "broker/client/account.h"
#include "broker/client/turns.h"

/* Inside of connections: what reading (connection.c) and sending (sending.c) know of each other. */

struct broker;
struct client;
struct closing;
struct event;
struct queued;

#define RETRY_MS 2 /* at first; then later and later */

struct connection {
	struct broker *broker;
	struct account *account; /* as long as the client has it; then a reference */
	struct client *client;   /* NULL: it has ended */
	int socket;
	struct closing *closing; /* NULL: no descriptor can come in */
	struct turn turn;        /* to read; to write, while something waits to go out */
	struct event
	    *retry; /* descriptors could not be sent; the socket may be writable all along */
	TAILQ_HEAD(, queued) queue;
	size_t fds_in_flight; /* at most: sent since the peer was last seen to have read all */
	TAILQ_ENTRY(connection) in_flight; /* in the broker, while there are any */
	int retry_ms;
	struct charge charge, charge_socket; /* once the client no longer has them */
};

/* connection.c: the end of one whose peer has received all that it was sent. */
void connection_let_go(struct connection *c);

/* sending.c */
/* What is asked of it next is awaited; or its next turn at once, which is when there is room for
 * the answer of a request that takes more than one. */
void connection_await_more(struct connection *c);
/* What the socket takes now of what waits to go out. */
void connection_flush(struct connection *c);
/* What waits to go out will not. */
void connection_drop_queue(struct connection *c);
void connection_on_retry(evutil_socket_t fd, short what, void *data);
/* The peer has received all descriptors; or nobody counts them any more. */
void connection_received_all(struct connection *c);
/* It has ended, and is let go when the peer has received all that it was sent. */
void connection_wait_until_received(struct connection *c);

#endif
