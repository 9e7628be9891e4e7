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
	bool asks;         /* for memory of it, or brings some; or has */
	bool has_magazine; /* of blocks that it does not use yet: WIRE_ALLOC_KEEPS */
	uint32_t record;
};

struct possession {
	uint32_t record;
	uint8_t what; /* enum segment_possession */
};

/* A client has few of all segments: where it has none of so many, in the order of their indexes,
 * nothing is written down. */
#define POSSESSION_GROUP 32

/* What a client has of memory: what it was sent of segments, and the pools that it has open. */
struct client_memory {
	struct possession **groups; /* of segments, by index; NULL: it has none of these */
	uint32_t n_groups;
	uint32_t n_unmapping; /* segments it was asked to unmap and has not yet */
	uint32_t n_overdue;   /* messages since it last did */
	LIST_HEAD(, open_pool) pools;
	struct trim trim;
};

void client_memory_deinit(struct client *c);

/* By segment index: what it has of it; who changes it says possession_note(). NULL: nothing, and
 * there is no place for it. */
struct possession *client_possession(const struct client *c, uint32_t segment);
/* There is a place for it. 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_reserve_possession(struct client *c, uint32_t segment);
uint32_t client_possessions_end(const struct client *c); /* it has none from this index on */
void client_ask_to_unmap(struct client *c, uint64_t segment);
/* It says nothing of what it was asked to unmap, and asks for more. True when that is too much. */
bool client_is_overdue(struct client *c);
/* Whether it may have a segment mapped. */
bool client_has_segments(const struct client *c);

/* Whether a fence of @owner can have come to it: so, by their user, or as both have a pool open. */
bool client_may_ask(const struct client *c, const struct client *owner);

struct open_pool *client_find_pool(const struct client *c, uint64_t id);
/* 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_open_pool(struct client *c, struct pool *pool);
void client_has_open(struct open_pool *open); /* it is among those from now on */
/* It asks for memory of it, so that its user is one of those who share it. @has_magazine: and for
 * blocks that it does not use yet. 0 or -ENOMEM. */
int client_asks_pool(struct open_pool *open, bool has_magazine);
void client_close_pool(struct open_pool *open);

/* Some of the pools that it has open; true when there are no more. */
bool client_close_pools(struct client *c, int *budget);
/* At the end: nobody else counts it among those who have a segment, or has its page. True. */
bool client_forget(struct client *c, int *budget);

#endif
