/* SPDX-License-Identifier: MIT */
#ifndef BROKER_POOL_H
#define BROKER_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/access.h"
#include "broker/account.h"
#include "broker/config.h"
#include "broker/segment.h"
#include "broker/suballocator.h"
#include "memory/kind.h"

struct broker;

#define POOL_BUFFER_MAX (UINT64_C(1) << 40) /* bytes; what a suballocator can count, by far */

struct pool {
	LIST_ENTRY(pool) link;
	uint64_t id;
	char *name;
	const struct memory_kind *kind;
	uint64_t limit, segment_size, alignment, release_threshold;
	struct access_list access;
	uid_t owner;
	struct charge charge;
	bool persistent; /* stays without users */
	bool destroyed;  /* has lost its name: takes no new buffers, ends with its last one */

	struct suballocator suballocator;
	LIST_HEAD(, segment) segments;
	uint32_t n_segments;
	uint64_t reserved; /* bytes of its active segments */
	uint64_t used;     /* bytes of blocks in use */
	uint64_t n_buffers;
	uint64_t opens;
};

/*
 * Takes @config's strings and lists over on success (they are NULL then); it must be validated.
 * 0, -ENOMEM, or POOL_QUOTA.
 */
enum pool_error { POOL_FULL = 1, POOL_QUOTA, POOL_TOO_LARGE, POOL_NO_DESCRIPTORS };
int pool_new(struct broker *b, struct pool_config *config, uid_t owner, struct account *account,
	     bool persistent, struct pool **out);

struct pool *pool_find(struct broker *b, const void *name, size_t size);

/* ACCESS_... bits of a user. */
unsigned pool_access(const struct pool *p, const struct client *client);

/* 0, negative errno (the kind could not make a segment), POOL_FULL, POOL_TOO_LARGE or
 * POOL_NO_DESCRIPTORS. */
int pool_alloc(struct broker *b, struct pool *p, uint64_t size, uint64_t alignment,
	       struct block **out);
/* @gate is consumed. The pool may have ended when it returns. */
void pool_free_block(struct broker *b, struct pool *p, struct block *block, struct fence_set *gate);

uint64_t pool_largest_free(const struct pool *p);

/* Its name goes at once, the rest when its last buffer does. */
void pool_destroy(struct broker *b, struct pool *p);
/* Called whenever something it was waiting for may have gone. */
void pool_end_if_unused(struct broker *b, struct pool *p);
/* Returns empty segments beyond the threshold whose last users have finished by now. */
void pool_look_again(struct broker *b, struct pool *p);
void pool_remove_segment(struct pool *p, struct segment *s);

#endif
