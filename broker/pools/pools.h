/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What is done with pools: they are made, found, asked for blocks, changed and ended. */

struct access_list;
struct account;
struct allocation;
struct block;
struct broker;
struct charge;
struct choice;
struct failure;
struct fence_set;
struct pool;
struct pool_config;
struct request;
struct wire_bytes;

#define POOL_BUFFER_MAX (UINT64_C(1) << 40) /* bytes; a suballocator can count twice that */

/* Makes the timer by which all pools are looked at again. 0 or -ENOMEM. */
int pools_init(struct broker *b);
void pools_deinit(struct broker *b);

/* Sets the timer by which all pools are looked at again in a moment, as memory that could be
 * returned waits for a fence. */
void memory_look_again(struct broker *b);
/* The same, but somebody waits for that memory, so the delay begins anew. */
void memory_look_soon(struct broker *b);

/*
 * Makes a pool of @config, which must be validated; takes its strings and lists over on success
 * (they are NULL then). @choice is NULL when it cannot be made yet. 0 or a SHARE_E... number.
 */
int pool_new(struct broker *b, struct pool_config *config, const struct choice *choice, uid_t owner,
	     struct account *account, bool persistent, struct pool **out, struct failure *failure);

/* Makes the choice if it is not made. 0, POOL_LATER (b->devices->waits is woken then), or a
 * SHARE_E... number with a sentence. */
int pool_resolve(struct broker *b, struct pool *p, struct failure *failure);
void pool_make_ahead(struct broker *b, struct pool *p); /* makes the segments of its prefault */

/* The same for a request. False when answered, or deferred. */
bool request_resolve_pool(struct request *r, struct pool *p);
/* The pool of that name, if this client may know of it. NULL: answered, as there is none. */
struct pool *request_pool(struct request *r, const struct wire_bytes *name);

/* Finds or makes a block for @a, and charges it. 0; an enum pool_result, with a sentence (but of
 * POOL_LATER and POOL_LIMIT) for who waits no longer; or a SHARE_E... number with a sentence. */
int pool_alloc(struct broker *b, struct pool *p, struct allocation *a, struct failure *failure);
/* Takes another block of the region of @beside, with nothing to wait for, and makes no room for it.
 * False: there is none right now, or its user may have none. */
bool pool_alloc_beside(struct pool *p, struct allocation *a, const struct block *beside);
/* Gives a block back. Consumes @gate, which is what was added to the block's own, and @charge (or
 * NULL). The pool may have ended when it returns. */
void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate,
		     struct charge *charge);

uint64_t pool_largest_free(const struct pool *p);
/* Changes what can change of a pool of the configuration; takes @access over. The pool stays, even
 * if it was leaving. */
void pool_change(struct broker *b, struct pool *p, const struct pool_config *config,
		 struct access_list *access);
/* Notes that the configuration has the pool no more: it ends when nobody has it open and its last
 * buffer is gone, which may be at once. */
void pool_leave(struct broker *b, struct pool *p);

/* Sets the timer of a request that is deferred in p->waiting, for so long at most. */
void pool_wait(struct pool *p, uint64_t at_most_ms);
/* Destroys the pool: its name goes at once, the rest when its last buffer does. */
void pool_destroy(struct broker *b, struct pool *p);
/* Ends a pool that nothing keeps; called whenever something that kept it may be gone. */
void pool_end_if_unused(struct broker *b, struct pool *p);
/* Looks what the last users have finished with, at @limit gated blocks or so. Wakes who waits for
 * memory, and returns empty segments beyond the threshold. True when a block may be had. */
bool pool_look_again(struct broker *b, struct pool *p, uint32_t limit);
