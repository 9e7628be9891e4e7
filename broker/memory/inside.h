/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_INSIDE_H
#define BROKER_MEMORY_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/memory/pool.h"
#include "broker/memory/pools.h"
#include "broker/memory/segment.h"

/* How pools and segments know each other; other rooms only see pool.h, pools.h and segment.h. */

struct account;
struct allocation;
struct block;
struct broker;
struct client;
struct closing;
struct failure;
struct memory_segment;

/* segment.c */
/* Charges what a segment costs. Whoever has made the pool pays, or @account, which has @brought the
 * memory; both are NULL for all other memory. 0, or SHARE_EQUOTA with a sentence (with @failure
 * NULL there is none, and none in the log either): a limit is reached, or the descriptors for what
 * is nobody's are used up. */
int segment_cost_take(struct pool *pool, struct account *account,
		      const struct memory_segment *brought, struct segment_cost *out,
		      struct failure *failure);
void segment_cost_return(struct broker *b, struct segment_cost *cost);
/* Makes what it takes to close the descriptors of memory that a client had already. 0 or
 * -ENOMEM. */
int segment_closing_new(struct broker *b, uid_t owner, struct closing *out[static 2]);

/* Makes a segment, which no suballocator knows yet. Takes @memory and @cost over on success. 0 or
 * -ENOMEM. */
int segment_new(struct broker *b, struct pool *pool, const struct memory_segment *memory,
		struct segment_cost *cost, struct segment **out);

/* Counts a segment of a kind that is gone with its agent: as long as there are any, the broker does
 * not end the agent for want of events. */
void segment_count_of_agent(const struct segment *s, int change);

uint64_t segment_region_size(const struct segment *s);

/* Finds an address at which a segment can lie in every process: 0 when there is no room left. */
uint64_t segment_find_address(struct broker *b, uint64_t size);

/* Notes that the client is gone, and has the segment no more. */
void segment_forget_client(struct broker *b, struct segment *s, struct client *client);

/* pool.c */
/* Puts the pool among the others. 0, or -ENOMEM when nothing has changed. */
int pool_init(struct broker *b, struct pool *p);
/* Which limit and which segment size a pool has that was asked for these, once it is chosen, on the
 * device that it is on. */
uint64_t pool_chosen_limit(const struct pool *p, uint64_t limit);
uint64_t pool_chosen_segment_size(const struct pool *p, uint64_t size);
/* How many bytes of segments the pool may have beside those that it has. */
static inline uint64_t pool_room(const struct pool *p)
{
	return p->sizes.limit > p->extent.reserved ? p->sizes.limit - p->extent.reserved : 0;
}

/* Notes that so much more of the pool is in use, which may be more than ever. */
void pool_count_used(struct pool *p, uint64_t bytes);
/* Notes the same of a block, which somebody has taken. */
void pool_count_block(struct pool *p, const struct block *block);
/* Takes a segment out of the pool before it is destroyed: nobody maps it any more. */
void pool_remove_segment(struct pool *p, struct segment *s);

/* pool_grow.c: segments come and go. */
/* Makes one more segment, in which @size bytes fit. Returns what pool_alloc() does. */
int pool_grow(struct broker *b, struct pool *p, uint64_t size, struct failure *failure);
/* Adds a segment of memory that is there: takes @memory and @cost over on success. 0 or -ENOMEM. */
int pool_add_segment(struct broker *b, struct pool *p, const struct memory_segment *memory,
		     struct segment_cost *cost, struct segment **out);
/* Both return SHARE_ENOMEM: there is no room for so much now; and there never is. */
int pool_fail_full(const struct pool *p, uint64_t size, struct failure *failure);
int pool_fail_size(const struct pool *p, uint64_t size, struct failure *failure);
/* Does what suballocator_alloc() does, with a block whose memory is there. A segment whose memory
 * is gone takes part no more, and goes when it is empty. */
int pool_carve(struct pool *p, struct allocation *a);
/* Retires empty segments until at most @keep bytes of them are left. */
void pool_shrink(struct broker *b, struct pool *p, uint64_t keep);
/* Has the loop handle the requests that wait again, as they may find what they need. */
void pool_wake(struct pool *p);
int pool_grow_init(struct broker *b, struct pool *p); /* 0 or -ENOMEM */
void pool_grow_deinit(struct pool *p);

/* client_memory.c and possession.c restore these in a broker that comes after another one. 0 or
 * negative errno. */
int open_pools_restore(struct broker *b);
int possessions_restore(struct broker *b);

#endif
