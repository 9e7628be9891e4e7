/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_MEMORY_H
#define BROKER_MEMORY_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "broker/journal/generations.h"
#include "broker/journal/object.h"

struct broker;
struct pool;
struct prefault;
struct segment;
struct timelines;

/* Written in place: a page that was about to be written into it is, twice at worst. */
struct died_pages {
	uint64_t n;
	uint64_t forgotten; /* the newest that fell out of the ring */
	uint64_t pages[4096];
};

/* The broker's memory: pools, the segments that they carve, and the timelines that gate it. */
struct memory {
	LIST_HEAD(pool_list, pool) pools;
	uint64_t last_pool;
	struct slab segments;  /* struct segment */
	struct slab blocks;    /* struct block */
	uint64_t next_address; /* of segments that lie the same everywhere */
	size_t n_nobodys_segments, max_nobodys_segments; /* of the configuration's pools */

	/* Who sends descriptors of segments beside grants, and has to know when they come and go.
	 */
	void (*on_segment_added)(struct broker *b, struct segment *s);
	void (*on_segment_retired)(struct broker *b, const struct segment *s);

	struct prefault *prefault; /* the pages of host memory that are made ahead */

	uint64_t last_page;
	/* The last timeline pages whose owners died, a ring: for those who ask too late to be sent
	 * the page. */
	struct died_pages *died;
	uint32_t died_record;

	struct generations generations; /* of segments */
	/* Only while this broker takes over what another one had. */
	struct {
		struct restored pages, pages_by_client, pools;
	} restored;
};

int memory_init(struct broker *b); /* 0 or -ENOMEM */
void memory_done(struct broker *b);

/* The owner of this timeline page has died, and has not said goodbye before. */
void memory_page_died(struct memory *m, uint64_t page);
/* What became of the owner of a page that is gone: OWNER_UNKNOWN if it is too long ago, or if there
 * never was one. */
enum page_owner { OWNER_UNKNOWN, OWNER_DIED, OWNER_FINISHED };
enum page_owner memory_page_owner(const struct memory *m, uint64_t page);

#endif
