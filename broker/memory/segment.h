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
 * A piece of memory from its kind. It belongs to a pool from creation to destruction, and is
 * mapped by the clients that were sent its descriptor.
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

#define SEGMENT_PREFIX 8 /* bytes */
/* For whoever has made its pool, or has brought its memory: taken before there is one. */
struct segment_cost {
	struct charge segment, descriptors;
	uint32_t n_nobodys; /* descriptors, of a pool of the configuration */
};

struct segment {
	/* these two survive in the slab */
	uint32_t generation, in_use;

	uint32_t index, record;
	struct pool *pool;
	LIST_ENTRY(segment) link; /* in the pool */
	struct region region;
	struct memory_segment memory;
	uint64_t handle;      /* what the agent that made it calls it, 0: it keeps nothing */
	uint32_t incarnation; /* which agent that was */
	uint32_t importers;   /* clients that have its descriptor */
	uint32_t unmapping;   /* of these, that were asked to unmap and have not answered */
	enum segment_state state;
	struct segment_cost cost;
	/* Of memory that a client had already: its file may be large, or be of anything. */
	struct closing *closing[2];
	struct filling *filling; /* prefault.h */
	uint64_t prefaulted;     /* bytes, by one that is over */
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

/* What a client has of a segment. */
enum segment_possession {
	SEGMENT_READABLE = 1 << 0,
	SEGMENT_WRITABLE = 1 << 1,
	SEGMENT_UNMAPPING = 1 << 2,
};

/* One that is retired costs none any more. */
void segment_return_descriptors(struct broker *b, struct segment *s);
void segment_free(struct broker *b, struct segment *s);

uint64_t segment_id(const struct segment *s);
/* NULL when stale or foreign. */
struct segment *segment_find(struct broker *b, uint64_t id);
const char *segment_state_name(enum segment_state state);

/* As @client is sent it: until the next call. */
const struct memory_recipe *segment_recipe(const struct segment *s, const struct client *client);
/* For that mode. Borrowed. */
int segment_descriptor(const struct segment *s, bool writable);
/* The descriptor to send along so that @client can reach @s in @mode; -1 when it has it. Borrowed.
 * Call segment_sent() once the message is on its way. As client_reserve_possession(): 0 or negative
 * errno, when nothing has changed; or -EACCES (adopted.h). */
int segment_offer(struct segment *s, struct client *client, bool writable, int *borrowed);
void segment_sent(struct segment *s, struct client *client, bool writable);

/* An empty segment leaves its pool: ACTIVE to RETIRING, and away when nobody maps it. */
void segment_retire(struct broker *b, struct segment *s);
/* The client says that it has unmapped it. False when it was not asked to. */
bool segment_retired(struct broker *b, struct segment *s, struct client *client);

#endif
