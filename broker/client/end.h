/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "broker/accounts/turns.h"

struct broker;
struct client;

/* By what a client ends, and what is known of its end. */
struct client_end {
	struct turn death;        /* the turn in which the death of its process is seen */
	struct event *timer;      /* the handshake limit; later, what is left to do */
	uint64_t ready_by_ms;     /* the handshake limit */
	bool drained;             /* its process is dead: nothing is sent to it any more */
	bool forfeits;            /* it was dropped: nothing that it gave outlives it */
	TAILQ_ENTRY(client) link; /* in the list of clients that are ENDING */
};

/* The death of a client, by its pidfd; and what its timer calls, with the client as data. */
void client_on_death(struct turn *turn, uint32_t events);
void client_on_timer(evutil_socket_t fd, short what, void *data);

/* Releases some more of what ending clients hold; data is the broker. */
void client_on_reap(evutil_socket_t fd, short what, void *data);

/* Looks at clients whose connections have ended, as some of their timers could not be set. */
void clients_look_at_ended(struct broker *b);

/* Goes on to end a client that an earlier broker had begun to end. */
void client_end_again(struct client *c);
/* Its connection has ended, and the loop is to see what becomes of it. */
void client_outlive_connection_soon(struct client *c);

/* Returns what the client was charged for when it came. */
void client_return_admission(struct client *c);
/* Frees a client that holds nothing (any more). */
void client_free(struct client *c);
