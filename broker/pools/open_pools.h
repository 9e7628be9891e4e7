/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct client;
struct object_kind;
struct pool;
struct request;

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

void open_pool_note(struct open_pool *open);
/* The pool of that number, for a request about it. NULL when answered: the client has none open. */
struct open_pool *request_open_pool(struct request *r, uint64_t id);
bool clients_share_a_pool(const struct client *c, const struct client *other);
/* Opens the pool once more. 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_open_pool(struct client *c, struct pool *pool);
/* Notes that the client asks for memory of the pool, so that its user is one of those who share it.
 * @has_magazine: it also asks for blocks that it does not use yet. 0 or -ENOMEM. */
int client_asks_pool(struct open_pool *open, bool has_magazine);
void client_close_pool(struct open_pool *open);
extern const struct object_kind open_pool_kind;

/* Closes some of the pools that the client has open; true when there are no more. */
bool client_close_pools(struct client *c, int *budget);
/* Gives up, when the connection has ended and perhaps not the process, what goes with either. */
void client_give_up(struct client *c);
/* Forgets at the end what the client has: nobody counts it any more among those who have a segment,
 * or have its page. True when that is done, as far as the budget goes. */
bool client_forget(struct client *c, int *budget);
