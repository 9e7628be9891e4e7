/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_POOL_H
#define BROKER_MEMORY_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/client/account.h"
#include "broker/client/deferred.h"
#include "broker/config/access.h"
#include "broker/config/config.h"
#include "broker/config/right.h"
#include "broker/device/choice.h"
#include "broker/log/log.h"
#include "broker/memory/reuse.h"
#include "broker/memory/segment.h"
#include "broker/memory/suballocator.h"
#include "memory/kind.h"

struct broker;
struct pool_user;
struct request;
struct stake;
struct wire_bytes;

#define POOL_BUFFER_MAX (UINT64_C(1) << 40) /* bytes; what a suballocator can count, by far */

/* What was asked for: the choice (device/choice.h) is made of it, at once or later. */
struct pool_wish {
	const char *kind; /* static storage */
	char *device;     /* NULL: any */
};

/* Bytes: how large the pool may be, and what its blocks and segments are multiples of. */
struct pool_sizes {
	uint64_t granularity; /* of segments */
	uint64_t limit, segment_size, alignment, release_threshold;
};

/* The memory that the pool has. */
struct pool_extent {
	LIST_HEAD(, segment) segments;
	uint32_t n_segments;
	uint64_t reserved; /* bytes of its segments and of the one being made; host memory that is
			    * being retired does not count: it is back at the system */
	uint64_t retiring; /* bytes of these that clients are yet to unmap */
	uint64_t used;     /* bytes of blocks in use; gated ones are not */
};

/* Who has the pool open (pool_user.c). */
struct pool_use {
	uint64_t opens;
	LIST_HEAD(, stake) stakes; /* what clients hold of it */
	LIST_HEAD(, pool_user) users;
	uint32_t n_takers; /* users that ask for memory of it */
};

/* A segment that is being made (pool_grow.c): those of devices are made by agents, which takes its
 * time. */
struct pool_growth {
	bool is_under_way;
	uint64_t size, least, address;
	struct segment_cost cost;
	struct deferred_id wanted_by; /* the request that cannot do with less than the least */
	uint64_t full_until_ms;       /* the device had no memory: do not ask again before */
};

/* Requests that need what is being made, unmapped, or reached. */
struct pool_waiting {
	struct deferred_list requests;
	struct event *timer; /* they do not wait for others for ever */
};

struct pool {
	LIST_ENTRY(pool) link;
	struct broker *broker;
	uint64_t id;
	char *name;
	struct pool_wish wish;
	uint32_t flags; /* enum share_pool_flags */
	uint32_t reuse; /* enum share_reuse */
	struct choice
	    choice; /* kind NULL: not made yet; the request that opens the pool makes it */
	struct device *device; /* of the choice */
	struct pool_sizes sizes;
	struct access_list access;
	uid_t owner;
	struct charge charge;
	bool configured; /* by the file */
	bool persistent; /* stays without users */
	bool destroyed;  /* has lost its name: takes no new buffers, ends with its last one */

	struct suballocator suballocator;
	struct gated_blocks gated;
	struct pool_extent extent;
	uint64_t n_buffers;
	struct pool_use use;
	struct pool_growth growth;
	struct pool_waiting waiting;
	struct log_rate refusals;
};

/*
 * Takes @config's strings and lists over on success (they are NULL then); it must be validated.
 * @choice: NULL when it cannot be made yet. 0 or a SHARE_E... number.
 */
enum pool_result { POOL_LATER = 1, POOL_SHARE };
int pool_new(struct broker *b, struct pool_config *config, const struct choice *choice, uid_t owner,
	     struct account *account, bool persistent, struct pool **out, struct failure *failure);

/* Makes the choice if it is not made. 0, POOL_LATER (when b->devices->waits is woken), or a
 * SHARE_E... number with a sentence. */
int pool_resolve(struct broker *b, struct pool *p, struct failure *failure);
/* What a pool that is asked for these has once it is chosen, on the device that it is on. */
uint64_t pool_chosen_limit(const struct pool *p, uint64_t limit);
uint64_t pool_chosen_segment_size(const struct pool *p, uint64_t size);
/* It was asked for a kind of the host's memory, which takes no device to choose. */
bool pool_wants_host(const struct pool *p);
/* Of the choice, or what was asked for. */
const char *pool_kind_name(const struct pool *p);
const char *pool_device_name(const struct pool *p); /* NULL: the host, or not chosen yet */

struct pool *pool_find(struct broker *b, const void *name, size_t size);

/* The pool of that name, if it is there for who asks. NULL when answered. */
struct pool *request_pool(struct request *r, const struct wire_bytes *name);

/* To ask about with client_may(); the name and the list stay the pool's. */
struct access_object pool_object(const struct pool *p);
bool pool_may(const struct pool *p, const struct client *client, enum access_right right);
/* SHARE_EACCES, and in @failure what would give who lacks it that right. */
int pool_refuse(const struct pool *p, const struct client *client, enum access_right right,
		struct failure *failure);

/*
 * 0, POOL_LATER (defer the request in p->waits), POOL_SHARE (it would be more than its share), or a
 * SHARE_E... number, the last two with a sentence. @waited_ms: how long the request has been
 * deferred already.
 */
int pool_alloc(struct broker *b, struct pool *p, struct account *account, uint64_t size,
	       uint64_t alignment, uint64_t waited_ms, struct block **out, struct failure *failure);
/* The same, of what @account pays for already though it has given it back. False: there is none. */
bool pool_alloc_own(struct pool *p, struct account *account, uint64_t size, uint64_t alignment,
		    struct block **out);
/* Another block of the region of @beside, with nothing to wait for, without making room. False:
 * there is none right now. */
bool pool_alloc_beside(struct pool *p, uint64_t size, uint64_t alignment,
		       const struct block *beside, struct block **out);
/* @gate, what was added to the block's own, and @charge (or NULL) are consumed. The pool may have
 * ended when it returns. */
void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		     struct charge *charge);
/* Of the blocks that work runs on, those on which it does no more: true when there were any. */
bool pool_collect(struct broker *b, struct pool *p);

uint64_t pool_largest_free(const struct pool *p);
/* How many bytes of segments it may have beside those that it has. */
static inline uint64_t pool_room(const struct pool *p)
{
	return p->sizes.limit > p->extent.reserved ? p->sizes.limit - p->extent.reserved : 0;
}

/* What can change of a pool of the configuration: @access is taken over. The pool stays, even if it
 * was leaving. */
void pool_change(struct broker *b, struct pool *p, const struct pool_config *config,
		 struct access_list *access);
/* It is in the configuration no more: it ends when nobody has it open and its last buffer is gone,
 * which may be at once. */
void pool_leave(struct broker *b, struct pool *p);

/* Its name goes at once, the rest when its last buffer does. */
void pool_destroy(struct broker *b, struct pool *p);
/* Called whenever something it was waiting for may have gone. */
void pool_end_if_unused(struct broker *b, struct pool *p);
/* What the last users have finished with by now: hands out what others wait for, and returns empty
 * segments beyond the threshold. At most @limit gated blocks; true when one has become free. */
bool pool_look_again(struct broker *b, struct pool *p, uint32_t limit);
/* It is destroyed: nobody maps it. */
void pool_remove_segment(struct pool *p, struct segment *s);

/* pool_grow.c: segments come and go. */
/* One more segment in which @size bytes fit: 0, POOL_LATER or a SHARE_E... number. */
int pool_grow(struct broker *b, struct pool *p, uint64_t size, uint64_t waited_ms,
	      struct failure *failure);
/* Retires empty segments until at most @keep bytes of them are left. */
void pool_shrink(struct broker *b, struct pool *p, uint64_t keep);
/* The request is to be deferred in p->waits for that long at most: POOL_LATER. */
int pool_wait(struct pool *p, uint64_t at_most_ms);
/* From the loop: those that wait may find what they need. */
void pool_wake(struct pool *p);
int pool_grow_init(struct broker *b, struct pool *p); /* 0 or -ENOMEM */
void pool_grow_done(struct pool *p);

#endif
