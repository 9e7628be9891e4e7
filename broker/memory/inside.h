/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_INSIDE_H
#define BROKER_MEMORY_INSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <event2/util.h>

#include "broker/memory/pool.h"
#include "broker/memory/pools.h"
#include "broker/memory/segment.h"

/*
 * How the files of this room know each other; other rooms only see the other headers. From below to
 * above: what a pool is (pool_object), who uses it (pool_user), what clients have of segments
 * (possession), segments (segment), the records of both (records), what is made ahead (prefault);
 * the records of blocks (block_records), those that are gated (gated), and how they are used again
 * (reuse); how memory goes (pool_shrink) and comes (pool_grow), and how blocks are allocated
 * (pool). Above these is what clients ask for (adopted, client_memory, supply, trim and the
 * requests), how all is restored (restore), and memory as a whole (memory). None calls one that is
 * above it.
 */

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

/* Returns what the segment's descriptors cost: a retired one has none any more. */
void segment_return_descriptors(struct broker *b, struct segment *s);
void segment_free(struct broker *b, struct segment *s);

/* Counts a segment of a kind that is gone with its agent: as long as there are any, the broker does
 * not end the agent for want of events. */
void segment_count_of_agent(const struct segment *s, int change);

uint64_t segment_region_size(const struct segment *s);
/* Closes them, elsewhere if they may be the last ones of a large file. */
void segment_close_descriptors(struct segment *s);

/* Finds an address at which a segment can lie in every process: 0 when there is no room left. */
uint64_t segment_find_address(struct broker *b, uint64_t size);

/* pool_object.c */
/* Puts the pool among the others. 0, or -ENOMEM when nothing has changed. */
int pool_init(struct broker *b, struct pool *p);
/* Tells those who have asked for it what happens to the pool (broker/monitor). */
void pool_tell(const struct pool *p, const char *action);
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

/* Has the loop handle the requests that wait again, as they may find what they need. */
void pool_wake(struct pool *p);

/* How soon gated memory is looked at again: later each time, as long as nothing gets free. */
#define LOOK_AGAIN_MS 20

/* So many gated blocks are looked at before a block is carved, and so many if there is none. */
#define COLLECT_FEW  64
#define COLLECT_MANY 4096

/* pool_shrink.c: blocks, segments and pools go. */
/* Does what suballocator_alloc() does, with a block whose memory is there. A segment whose memory
 * is gone takes part no more, and goes when it is empty. */
int pool_carve(struct pool *p, struct allocation *a);
/* Retires empty segments until at most @keep bytes of them are left. */
void pool_shrink(struct broker *b, struct pool *p, uint64_t keep);
/* Retires those that the pool is not to keep, and ends it if nobody uses it. */
void pool_return_segments(struct broker *b, struct pool *p);
/* What the timer of those who wait in the pool calls, with the pool as data. */
void pool_on_timer(evutil_socket_t fd, short what, void *data);
/* Gives up what the client's process has adopted that goes with it, if that hears of it by no other
 * connection: that is its incarnation, as no agent has made it. */
#define SEGMENT_GIVEN_UP 1
void segment_give_up(struct broker *b, struct segment *s, const struct client *client);
/* Notes that the client is gone, and has the segment no more; and gives it up. */
void segment_forget_client(struct broker *b, struct segment *s, struct client *client);

/* pool_grow.c: segments come. */
/* Makes one more segment, in which @size bytes fit. Returns what pool_alloc() does. */
int pool_grow(struct broker *b, struct pool *p, uint64_t size, struct failure *failure);
/* Adds a segment of memory that is there: takes @memory and @cost over on success. 0 or -ENOMEM. */
int pool_add_segment(struct broker *b, struct pool *p, const struct memory_segment *memory,
		     struct segment_cost *cost, struct segment **out);
/* Returns SHARE_ENOMEM, as there is no room for so much now. */
int pool_fail_full(const struct pool *p, uint64_t size, struct failure *failure);

/* pool.c */
/* Counts a block that somebody has taken. */
void pool_count_block(struct pool *p, const struct block *block);
/* Returns SHARE_ENOMEM, as there is never room for so much. */
int pool_fail_size(const struct pool *p, uint64_t size, struct failure *failure);

/* What restore.c puts together, in a broker that comes after another one. 0 or negative errno. */
int pools_restore(struct broker *b);
int open_pools_restore(struct broker *b);
int segments_restore(struct broker *b);
int possessions_restore(struct broker *b);

#endif
