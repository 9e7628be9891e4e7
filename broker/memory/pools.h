/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_POOLS_H
#define BROKER_MEMORY_POOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/rights/access.h"
#include "broker/rights/right.h"

/* What is done with pools: made, found, asked for blocks, changed and ended. */

struct account;
struct allocation;
struct block;
struct broker;
struct charge;
struct choice;
struct client;
struct failure;
struct fence_set;
struct pool;
struct pool_config;
struct request;
struct wire_bytes;

#define POOL_BUFFER_MAX (UINT64_C(1) << 40) /* bytes; what a suballocator can count, by far */

/* Why there is no block: what would have to happen for one. SHARE_E... numbers, which are negative,
 * are of what does not change. */
enum pool_result {
	POOL_LATER = 1, /* an agent answers */
	POOL_BUSY,      /* work that is under way ends, or what was retired is unmapped */
	POOL_FULL,      /* somebody gives something back */
	POOL_SHARE,     /* its user does: what is left is others' share */
	POOL_LIMIT      /* its user does, of this pool or of another one */
};

/*
 * Takes @config's strings and lists over on success (they are NULL then); it must be validated.
 * @choice: NULL when it cannot be made yet. 0 or a SHARE_E... number.
 */
int pool_new(struct broker *b, struct pool_config *config, const struct choice *choice, uid_t owner,
	     struct account *account, bool persistent, struct pool **out, struct failure *failure);

/* Makes the choice if it is not made. 0, POOL_LATER (when b->devices->waits is woken), or a
 * SHARE_E... number with a sentence. */
int pool_resolve(struct broker *b, struct pool *p, struct failure *failure);
void pool_make_ahead(struct broker *b, struct pool *p); /* the segments of its prefault */
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

/* 0; or an enum pool_result, and but for POOL_LATER and POOL_LIMIT also a sentence and the number
 * for who waits no longer; or a SHARE_E... number with a sentence. */
int pool_alloc(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure);
/* Another block of the region of @beside, with nothing to wait for, without making room. False:
 * there is none right now, or none that may be had. */
bool pool_alloc_beside(struct pool *p, struct allocation *a, const struct block *beside);
/* @gate, what was added to the block's own, and @charge (or NULL) are consumed. The pool may have
 * ended when it returns. */
void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		     struct charge *charge);

uint64_t pool_largest_free(const struct pool *p);
/* What can change of a pool of the configuration: @access is taken over. The pool stays, even if it
 * was leaving. */
void pool_change(struct broker *b, struct pool *p, const struct pool_config *config,
		 struct access_list *access);
/* It is in the configuration no more: it ends when nobody has it open and its last buffer is gone,
 * which may be at once. */
void pool_leave(struct broker *b, struct pool *p);

/* The request is deferred in p->waiting, for that long at most. */
void pool_wait(struct pool *p, uint64_t at_most_ms);
/* Its name goes at once, the rest when its last buffer does. */
void pool_destroy(struct broker *b, struct pool *p);
/* Called whenever something it was waiting for may have gone. */
void pool_end_if_unused(struct broker *b, struct pool *p);
/* What the last users have finished with by now: hands out what others wait for, and returns empty
 * segments beyond the threshold. At most @limit gated blocks; true when one has become free. */
bool pool_look_again(struct broker *b, struct pool *p, uint32_t limit);

#endif
