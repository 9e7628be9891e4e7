/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/memory/pool.h"
#include "broker/rights/right.h"

/* A pool as an object: how it is found, what it is called, what it may have, and who may do what
 * with it. */

struct pool *pool_find(struct broker *b, const void *name, size_t size);
/* Whether it was asked for a kind of the host's memory, which takes no device to choose. */
bool pool_wants_host(const struct pool *p);
/* The names of what was chosen or, as long as nothing was, the kind that was asked for. */
const char *pool_kind_name(const struct pool *p);
const char *pool_device_name(const struct pool *p); /* NULL: host, or not chosen yet */
bool pool_is_adopted(const struct pool *p);

/* For client_may(): the pool as an object of rights. The name and the list stay the pool's. */
struct access_object pool_object(const struct pool *p);
bool pool_may(const struct pool *p, const struct client *client, enum access_right right);
/* Returns SHARE_EACCES; @failure says what would give the client the right that it lacks. */
int pool_refuse(const struct pool *p, const struct client *client, enum access_right right,
		struct failure *failure);
/* Whether the client of a request has that right. If not, the request is answered, as by the other
 * one. */
bool request_fail_pool(struct request *r, const struct pool *p, enum access_right right);
bool request_pool_right(struct request *r, const struct pool *p, enum access_right right);

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

/* Notes that one more block is in use, with which it may be more than ever. */
void pool_count_used(struct pool_extent *extent, const struct block *block);

/* Has the loop handle the requests that wait again, as they may find what they need. */
void pool_wake(const struct pool_waiting *waiting);
