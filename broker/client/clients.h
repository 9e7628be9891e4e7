/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_CLIENTS_H
#define BROKER_CLIENT_CLIENTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/accounts/turns.h"
#include "broker/client/deferred.h"

struct broker;
struct client;
struct closer;
struct connection;
struct event;
struct fd_list;
struct wire_message;

/* Some of what a client has is let go, at a cost of @budget; true when that was all. */
typedef bool client_step(struct client *c, int *budget);
/* What becomes of the budget when there was no memory: trying again at once is of no use. */
#define BUDGET_NO_MEMORY INT_MIN

/* What the rooms above do with clients: a client is a connection and a process, and all else that
 * it has is theirs. */
struct client_rooms {
	/* It comes, and has nothing yet: 0 or -ENOMEM. It goes, and has nothing any more. */
	int (*begin)(struct client *c);
	void (*end)(struct client *c);
	/* A packet has arrived. What is not taken of @fds is the caller's to close. True when the
	 * client expects an answer to it, so that it probably says nothing more before it has read
	 * that. */
	bool (*handle)(struct client *c, const void *data, size_t size, struct fd_list *fds);
	/* It is made again from its record: 0 or negative errno. */
	int (*restore)(struct client *c);
	/* A request to an earlier broker, which that had not answered. */
	void (*ask_again)(struct client *c, const void *packet, size_t size, uint64_t since_ms);
	/* What was deferred, since @since_ms; @again is that it, if it has waited (request_wait()).
	 */
	void (*handle_again)(struct client *c, const struct wire_message *m, uint64_t since_ms,
			     struct deferred *again);
	/* It has read all that it was sent. */
	void (*caught_up)(struct client *c);
	/* Its state is another one. */
	void (*changed_state)(const struct client *c);
	/* Its process may still read or write shared memory. */
	bool (*may_use_memory)(const struct client *c);
	/* Its connection has ended, and its process may still use memory. */
	void (*leave)(struct client *c);
	/* It is dead, or has said goodbye. */
	void (*die)(struct client *c);
	/* in order, up to a NULL: what goes with the connection, and then with the process */
	client_step *const *at_hang_up, *const *at_death;
};

/* All clients, and what serves them. Slots are small and used again, identifiers are not. */
struct clients {
	const struct client_rooms *rooms;
	struct client **by_slot;
	uint32_t n_slots, n;
	struct table by_id;
	uint32_t n_told; /* how many clients are told of all that happens (broker/monitor) */
	uint64_t last_id;

	struct turns turns;
	struct deferred_list woken; /* requests to be handled again in later turns of the loop */
	struct event *waker;

	TAILQ_HEAD(, client) ending;
	struct event *reaper;

	TAILQ_HEAD(, queued) news; /* what was said to clients and does not count yet, in order */
	uint64_t last_waiting;
	TAILQ_HEAD(, waiting) waiting; /* requests to an earlier broker, to be handled again */
	struct queued *spare; /* for a packet when there is no memory; NULL: it is in use */
	TAILQ_HEAD(, connection) in_flight; /* connections that descriptors are under way to */
	size_t max_fds_ahead; /* how many a client may leave unread of what it has not asked for */
	struct closer *closer;
	size_t max_closing; /* sockets that wait for it: they cost descriptors */
};

int clients_init(struct broker *b, const struct client_rooms *rooms); /* 0 or -ENOMEM */
/* Whoever is still there is gone then, with all that it has; the rest is clients_deinit()'s. */
void clients_end(struct broker *b);
void clients_deinit(struct broker *b);
/* Looks at all that a timer may be missing for. */
void clients_catch_up(struct broker *b);

/* What a turn of the loop may take: @most, if nobody is told of what happens in it. */
int clients_turn(const struct clients *all, int most);

/* Gives it a slot and an identifier. 0, -ENOMEM, or -EMFILE: there is no room for more. */
int clients_add(struct clients *all, struct client *c);
void clients_remove(struct clients *all, struct client *c);

#endif
