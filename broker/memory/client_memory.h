/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_CLIENT_MEMORY_H
#define BROKER_MEMORY_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/memory/trim.h"

struct client;
struct pool;

/* A pool that a client has open, perhaps several times. */
struct open_pool {
	LIST_ENTRY(open_pool) link;
	struct client *client;
	struct pool *pool;
	uint64_t count;
	bool asks;         /* it asks for memory of the pool, or brings some, or has done so */
	bool has_magazine; /* it has blocks that it does not use yet: WIRE_ALLOC_KEEPS */
	uint32_t record;
};

/* What a client has of a segment. */
enum segment_possession {
	SEGMENT_READABLE = 1 << 0,
	SEGMENT_WRITABLE = 1 << 1,
	SEGMENT_UNMAPPING = 1 << 2,
};

struct possession {
	uint32_t record;
	uint8_t what; /* enum segment_possession */
};

/* A client has few of all segments. If it has none of so many, which follow each other by their
 * indexes, nothing is written down of these. */
#define POSSESSION_GROUP 32

/* What a client has of memory: what it was sent of segments, and the pools that it has open. */
struct client_memory {
	struct possession **groups; /* groups of segments, by index; NULL: it has none of them */
	uint32_t n_groups;
	uint32_t n_unmapping; /* segments that it was asked to unmap and has not yet */
	uint32_t n_overdue;   /* its messages since it last unmapped one */
	LIST_HEAD(, open_pool) pools;
	struct trim trim;
};

void client_memory_deinit(struct client *c);

/* Returns what the client has of the segment with this index; whoever changes that calls
 * possession_note(). NULL: it has nothing, and there is no place to note it. */
struct possession *client_possession(const struct client *c, uint32_t segment);
/* Makes a place for that. 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_reserve_possession(struct client *c, uint32_t segment);
uint32_t client_possessions_end(const struct client *c); /* it has none from this index on */
void client_ask_to_unmap(struct client *c, uint64_t segment);
/* Counts a message of a client that has not unmapped all that it was asked to unmap. True when that
 * is too much. */
bool client_is_overdue(struct client *c);
/* Whether the client may have a segment mapped. */
bool client_has_segments(const struct client *c);

/* Whether a fence of @owner can have come to the client. It can if the client answers for the
 * owner's user, or was given the owner's page, or if both have a pool open. */
bool client_may_ask(const struct client *c, const struct client *owner);

struct open_pool *client_find_pool(const struct client *c, uint64_t id);
/* Opens the pool once more. 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_open_pool(struct client *c, struct pool *pool);
/* Notes that the client asks for memory of the pool, so that its user is one of those who share it.
 * @has_magazine: it also asks for blocks that it does not use yet. 0 or -ENOMEM. */
int client_asks_pool(struct open_pool *open, bool has_magazine);
void client_close_pool(struct open_pool *open);

/* Closes some of the pools that the client has open; true when there are no more. */
bool client_close_pools(struct client *c, int *budget);
/* Gives up, when the connection has ended and perhaps not the process, what goes with either. */
void client_give_up(struct client *c);
/* Forgets at the end what the client has: nobody counts it any more among those who have a segment,
 * or have its page. Returns true. */
bool client_forget(struct client *c, int *budget);

#endif
