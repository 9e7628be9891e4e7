/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "broker/accounts/account.h"
#include "broker/accounts/turns.h"
#include "wire/packet.h"

/*
 * How the files of this room know each other. From below to above: clients as they are found
 * (client), their records (records), packets on their way out (queue), sockets (connection), how
 * connections end (hang_up), what goes out (sending) and comes in (reading), how clients go (end)
 * and come (come), and what serves all of them (clients, listener, restore). None calls one that is
 * above it.
 */

struct broker;
struct client;
struct clients;
struct closing;

/*
 * A packet on its way. It is a record until it has gone out: if the broker dies meanwhile, the next
 * one sends it. So it may go out twice; the client sees that by the number at its end.
 */
struct queued {
	TAILQ_ENTRY(queued) link; /* in the queue of its connection */
	TAILQ_ENTRY(queued) news; /* in the broker's list, until it counts */
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

#define RETRY_MS      2 /* at first; after each failure it is twice as long */
#define RETRY_LAST_MS 64

struct connection {
	struct broker *broker;
	struct account *account; /* the client's; once that is gone, a reference */
	struct client *client;   /* NULL: it has ended */
	int socket;
	struct closing *closing; /* NULL: no descriptor can come in */
	bool refuses_fds; /* with @closing: descriptors that are in the socket are the last */
	struct turn turn; /* a turn to read, or to write while something waits to go out */
	/* Tries again after descriptors could not be sent, as the socket may be writable all
	 * along. */
	struct event *retry;
	TAILQ_HEAD(, queued) queue;
	/* some of the queue did not go out, because of the socket or of its peer */
	bool waits;
	uint64_t n_sent; /* packets */
	/* at most so many: those sent since the peer was last seen to have read all */
	size_t fds_in_flight;
	TAILQ_ENTRY(connection) in_flight; /* in the broker's list, while some are in flight */
	int retry_ms;
	struct charge charge, charge_socket; /* what it is charged for once the client is gone */
};

/* connection.c */
/* Frees a connection that has ended, as soon as the peer has received all that it was sent. */
void connection_wait_until_received(struct connection *c);
/* Whether the peer has received all descriptors; then they are counted no more. */
bool connection_look_whether_received(struct connection *c);
/* Whether @n more descriptors may be sent. @most: so many may be in flight on the connection.
 * @part: what the user may have in flight is divided by it; 1 for what the user has asked for. */
bool connection_may_send_fds(struct connection *c, size_t n, size_t most, size_t part);

/* queue.c */
/* Queues a packet, to be sent when what was said counts. 0 or -ENOMEM. */
int connection_enqueue(struct connection *c, const void *data, size_t size, const int *fds,
		       size_t n_fds);
void queued_free(struct connection *c, struct queued *q);
/* Tells the journal what the packet is now. */
void queued_note(struct queued *q);
/* Has a packet wait that cannot go out now: charges the client for it, and duplicates its
 * descriptors, so that what they are of stays. 0 or negative errno. */
int queued_let_wait(struct connection *c, struct queued *q);
/* Sends of the queue what the socket takes now, and drops the rest. */
void connection_drop_queue(struct connection *c);

/* Puts a packet behind all others; charges the client for it; gives it descriptors of its own. */
void queued_add_last(struct connection *c, struct queued *q);
bool queued_pay(struct client *c, struct queued *q);
int queued_own_fds(struct fd_list *fds);

/* reading.c: a turn to read, or to write while something waits to go out. */
void connection_on_turn(struct turn *turn, uint32_t events);

/* sending.c */
/* Sends as much of what waits to go out as the socket takes now. */
void connection_flush(struct connection *c);
/* Stops reading from the client for a moment. */
void connection_pause(struct connection *c);
void connection_on_retry(evutil_socket_t fd, short what, void *data);

/* client.c */
void clients_table_init(struct clients *all);

/* hang_up.c: ends the connection. The log is to name all that the client held, so that is kept
 * before: some of it ends with the connection. */
void client_close_connection(struct client *c);

/* restore.c: make a client, and a packet to one, of what was read. 0 or negative errno. */
int client_attach(struct broker *b, void *object);
int queued_attach(struct broker *b, void *object);
