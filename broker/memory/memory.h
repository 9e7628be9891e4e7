/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "base/slab.h"
#include "broker/journal/generations.h"
#include "broker/journal/object.h"

struct broker;
struct event;
struct prefault;
struct segment;

/*
 * The broker's memory: pools, and the segments that they carve. The files of this room say what
 * these are and who has how much of them; what is done with them is told in broker/pools. From
 * below to above: what a pool is (pool_object), who uses it (pool_user), what clients have of
 * segments (possession), segments and their records (segment, records), what is made ahead
 * (prefault), the records of blocks (block_records), those that are gated (gated), and memory as a
 * whole (memory). None calls one that is above it.
 */
struct memory {
	LIST_HEAD(pool_list, pool) pools;
	uint64_t last_pool;
	struct slab segments;  /* struct segment */
	struct slab blocks;    /* struct block */
	uint64_t next_address; /* for the next segment that lies the same everywhere */

	/* For whoever sends descriptors of segments other than in grants, and so has to know when
	 * segments come and go. */
	void (*on_segment_added)(struct broker *b, struct segment *s);
	void (*on_segment_retired)(struct broker *b, const struct segment *s);

	/* For whoever else has something that waits for fences: it looks when memory does. */
	void (*on_look)(struct broker *b);
	struct event *look_again;
	unsigned look_delay_ms; /* it grows while nothing gets free */

	struct prefault *prefault; /* the pages of host memory that are made ahead */

	struct generations generations; /* the generations of segments */
	/* Used only while this broker takes over what another one had. */
	struct restored restored_pools;
};

void memory_init(struct broker *b);
void memory_deinit(struct broker *b);

/* Finds an address at which a segment can lie in every process: 0 when there is no room left. */
uint64_t segment_find_address(struct broker *b, uint64_t size);
