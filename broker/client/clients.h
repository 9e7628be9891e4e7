/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/table.h"
#include "broker/accounts/turns.h"

struct broker;
struct client;
struct fd_list;
struct wire_message;
TAILQ_HEAD(deferred_list, deferred); /* requests that wait */

/* Releases some of what a client has, at a cost of @budget; true when nothing is left. */
typedef bool client_step(struct client *c, int *budget);
/* What a step sets @budget to when there was no memory: to try again at once is of no use then. */
#define BUDGET_NO_MEMORY INT_MIN

/* What the rooms above do with clients: a client is a connection and a process, and all else that
 * it has is theirs. */
struct client_rooms {
	/* A client comes, with nothing yet: 0 or -ENOMEM. A client goes, with nothing any more. */
	int (*begin)(struct client *c);
	void (*end)(struct client *c);
	/* A packet has arrived. The caller closes what is not taken of @fds. True when the client
	 * expects an answer, before which it probably says nothing more. */
	bool (*handle)(struct client *c, const void *data, size_t size, struct fd_list *fds);
	/* The client is made again from its record: 0 or negative errno. */
	int (*restore)(struct client *c);
	/* Handles a request to an earlier broker, which that broker had not answered. */
	void (*ask_again)(struct client *c, const void *packet, size_t size, uint64_t since_ms);
	/* Handles a deferred request again, whose time to wait for others began at @since_ms.
	 * @again is what it was while it waited (request_wait()), or NULL. */
	void (*handle_again)(struct client *c, const struct wire_message *m, uint64_t since_ms,
			     struct deferred *again);
	/* What the loop calls to handle woken requests again; data is the broker. */
	void (*on_waker)(int fd, short what, void *data);
	/* All that had to wait for the client's socket has gone out. */
	void (*caught_up)(struct client *c);
	/* The client's state has changed. */
	void (*changed_state)(const struct client *c);
	/* Whether the client's process may still use shared memory; whether two share a pool. */
	bool (*may_use_memory)(const struct client *c);
	bool (*share_a_pool)(const struct client *c, const struct client *other);
	/* Its connection has ended, and its process may still use memory. */
	void (*leave)(struct client *c);
	/* The client's process is dead, or the client has said goodbye. */
	void (*die)(struct client *c);
	/* Their steps, in order up to a NULL: at the end of the connection, and of the process. */
	client_step *const *at_hang_up, *const *at_death;
};

/* All clients, and what serves them. A slot is small and used again, an identifier never is. */
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
	size_t max_closing; /* no client is accepted while more sockets wait to be closed */
};

int clients_init(struct broker *b, const struct client_rooms *rooms); /* 0 or -ENOMEM */
/* Ends all clients, and releases all that they have. clients_deinit() does the rest. */
void clients_end(struct broker *b);
void clients_deinit(struct broker *b);
/* Looks at everything for which a timer may not have been set, as there was no memory. */
void clients_catch_up(struct broker *b);

/* How much a turn may do: @most, or less if some are to be told of what happens in it. */
int clients_turn(const struct clients *all, int most);

/* Gives the client a slot and an identifier. 0, -ENOMEM, or -EMFILE: there is no room for more. */
int clients_add(struct clients *all, struct client *c);
void clients_remove(struct clients *all, struct client *c);
