/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/memory/segment_cost.h"
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

struct client;
struct filling;

#define SEGMENT_PREFIX   8 /* bytes */
#define SEGMENT_GIVEN_UP 1 /* by its process: of adopted memory, which no agent has made */
struct segment {
	/* these two stay in the slab when the segment is freed */
	uint32_t generation, in_use;

	uint32_t index, record;
	struct pool *pool;
	LIST_ENTRY(segment) link; /* in the pool's list */
	struct region region;
	struct memory_segment memory;
	uint64_t handle;      /* its name at the agent that made it; 0: that keeps nothing */
	uint32_t incarnation; /* which agent that was; or SEGMENT_GIVEN_UP */
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

/* Returns the kind that whoever maps the segment takes it for. That is its pool's kind or, for a
 * device's memory that was adopted, vmm or legacy, as it is reached in that way. */
const struct memory_kind *kind_of_segment(const struct segment *s);
/* Whether the segment's memory is gone with the agent or the client that made it: nobody gets it
 * any more. */
bool segment_is_lost(const struct segment *s);
/* Whether the client may have the segment, and its memory is there; any client may have memory that
 * was no client's own. The other one says why not: SHARE_EACCES, SHARE_ENOTSUP when the client's
 * library is too old, or SHARE_EOWNERDEAD. */
bool segment_is_for(const struct segment *s, const struct client *client);
int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure);

/* Makes a segment, which no suballocator knows yet. Takes @memory and @cost over on success. 0 or
 * -ENOMEM. */
int segment_new(struct broker *b, struct pool *pool, const struct memory_segment *memory,
		struct segment_cost *cost, struct segment **out);
void segment_free(struct broker *b, struct segment *s);
/* Counts a segment of a kind that is gone with its agent: as long as there are any, the broker does
 * not end the agent for want of events. */
void segment_count_of_agent(const struct segment *s, int change);
uint64_t segment_region_size(const struct segment *s);
/* Closes them, elsewhere if they may be the last ones of a large file. */
void segment_close_descriptors(struct segment *s);
