/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <event2/util.h>

#include "broker/memory/pool.h"
#include "broker/memory/segment.h"

/*
 * How the files of this room know each other; other rooms only see the other headers. From below to
 * above: the records of pools (pool_records), how blocks are used again (reuse), how memory goes
 * (pool_shrink) and comes (pool_grow), how blocks are allocated (pool), and when all pools are
 * looked at again (look). Above these is what clients ask for (adopted, open_pools, supply, trim
 * and the requests), and how all is restored (restore). None calls one that is above it.
 */

/* pool_records.c */
/* Puts the pool among the others. 0, or -ENOMEM when nothing has changed. */
int pool_init(struct broker *b, struct pool *p);
extern const struct object_kind pool_kind;

/* How soon gated memory is looked at again: later each time, as long as nothing gets free. */
#define LOOK_AGAIN_MS 20

/* So many gated blocks are looked at before a block is carved, and so many if there is none. */
#define COLLECT_FEW  64
#define COLLECT_MANY 4096

/* pool_shrink.c: blocks, segments and pools go. */
/* Takes a free block whose memory is there. A segment whose memory is gone takes part no more, and
 * goes when it is empty. 0, POOL_FULL, or negative errno. */
int pool_carve(struct pool *p, struct allocation *a);
/* Retires empty segments until at most @keep bytes of them are left. */
void pool_shrink(struct broker *b, struct pool *p, uint64_t keep);
/* Retires those that the pool is not to keep, and ends it if nobody uses it. */
void pool_return_segments(struct broker *b, struct pool *p);
/* What the timer of those who wait in the pool calls, with the pool as data. */
void pool_on_timer(evutil_socket_t fd, short what, void *data);
/* Notes that the client has unmapped it. False when it was not asked to. */
bool segment_retired(struct broker *b, struct segment *s, struct client *client);
/* Gives up what the client's process has adopted that goes with it, if that hears of it by no other
 * connection. */
void segment_give_up(struct broker *b, struct segment *s, struct client *client);
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
