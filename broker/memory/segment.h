/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_SEGMENT_H
#define BROKER_MEMORY_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/accounts/account.h"
#include "broker/suballocator/block.h"
#include "memory/export.h"

/*
 * A piece of memory of a kind. It belongs to a pool from creation to destruction, and is mapped by
 * the clients that were sent its descriptor.
 *
 *   ACTIVE    buffers are carved out of it
 *   RETIRING  empty, its clients were asked to unmap it. Host memory went back to the system
 *             already, that of devices goes when the last has unmapped it
 */
enum segment_state { SEGMENT_ACTIVE, SEGMENT_RETIRING };

struct broker;
struct client;
struct closing;
struct filling;
struct pool;
struct wire_message;

#define SEGMENT_PREFIX 8 /* bytes */
/* What whoever has made its pool, or has brought its memory, pays before there is a segment. */
struct segment_cost {
	struct charge segment, descriptors;
	uint32_t n_nobodys; /* descriptors, if the configuration has the pool */
};

struct segment {
	/* these two stay in the slab when the segment is freed */
	uint32_t generation, in_use;

	uint32_t index, record;
	struct pool *pool;
	LIST_ENTRY(segment) link; /* in the pool's list */
	struct region region;
	struct memory_segment memory;
	uint64_t handle;      /* its name at the agent that made it; 0: that keeps nothing */
	uint32_t incarnation; /* which agent that was */
	uint32_t importers;   /* clients that have its descriptor */
	uint32_t unmapping;   /* others, which were asked to unmap it and have not answered */
	enum segment_state state;
	struct segment_cost cost;
	/* For memory that a client had already: its file may be large, or be of any kind. */
	struct closing *closing[2];
	struct filling *filling; /* prefault.h */
	uint64_t prefaulted;     /* bytes that a filling which is over has made */
	bool has_holes;          /* this broker has given pages of it back */
};

static inline struct segment *segment_of(const struct block *block)
{
	return (struct segment *)(void *)((char *)block->region - offsetof(struct segment, region));
}

static inline struct pool *block_pool(const struct block *block)
{
	return segment_of(block)->pool;
}

uint64_t segment_id(const struct segment *s);
/* Returns NULL when the identifier is stale or names no segment. */
struct segment *segment_find(struct broker *b, uint64_t id);
const char *segment_state_name(enum segment_state state);

/* Returns the recipe as @client is sent it, valid until the next call. */
const struct memory_recipe *segment_recipe(const struct segment *s, const struct client *client);
/* Returns the descriptor to use for reading or writing. Borrowed. */
int segment_descriptor(const struct segment *s, bool writable);

/* Notes that the client has unmapped it. False when it was not asked to. */
bool segment_retired(struct broker *b, struct segment *s, struct client *client);

/* Returns the descriptor to send so that @client can reach @s; -1 when it can. Borrowed. Call
 * segment_sent() once it is on its way. As client_reserve_possession(): 0 or negative errno, when
 * nothing has changed; or -EACCES (adopted.h). */
int segment_offer(struct segment *s, struct client *client, bool writable, int *borrowed);
void segment_sent(struct segment *s, struct client *client, bool writable);

/* Fills in the GRANT without a buffer that brings a segment. *fd is borrowed; -1: the client has
 * the segment already. As segment_offer(); call segment_sent() once it is on its way. */
int segment_grant(struct segment *s, struct client *client, bool writable, struct wire_message *out,
		  int *fd);
/* Sends that unasked. 0 also when the client has the segment, may not have it, or cannot pay for
 * it: it asks for it when it needs it, and is told why not then. -EAGAIN when it could not be sent
 * now, or -ENOMEM. */
int segment_supply(struct segment *s, struct client *client, bool writable);
/* The same for all that the pool has. */
int pool_supply(struct pool *p, struct client *client, bool writable);

#endif
