/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_CLIENTS_H
#define BROKER_CLIENT_CLIENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/client/park.h"
#include "broker/client/turns.h"

struct broker;
struct client;
struct closer;
struct connection;
struct event;

/* All clients, and what serves them in turn. Slots are small and used again, identifiers are not.
 */
struct clients {
	struct client **by_slot;
	uint32_t n_slots;
	uint32_t n;
	uint64_t last_id;

	struct turns turns;
	struct park_list woken; /* more requests than fit into a turn of the loop */
	struct event *waker;

	TAILQ_HEAD(, client) ending;
	struct event *reaper;

	TAILQ_HEAD(, connection) in_flight; /* that descriptors are under way to */
	size_t max_fds_ahead; /* that a client may leave unread, of what it has not asked for */
	struct closer *closer;
	size_t max_closing; /* sockets that wait for it: they cost descriptors */
};

int clients_init(struct broker *b); /* 0 or -ENOMEM */
/* Whoever is still there is gone then, with all that it has; the rest is clients_done()'s. */
void clients_end(struct broker *b);
void clients_done(struct broker *b);

/* Gives it a slot and an identifier. 0, -ENOMEM, or -EMFILE: there is no room for more. */
int clients_add(struct clients *all, struct client *c);
void clients_remove(struct clients *all, const struct client *c);

#endif
