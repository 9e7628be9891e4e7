/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker/counters.h"
#include "broker/device/choice.h"
#include "broker/log/log.h"
#include "broker/memory/gated.h"
#include "broker/memory/segment.h"
#include "broker/reply/deferred.h"
#include "broker/rights/access.h"
#include "broker/suballocator/suballocator.h"
#include "memory/host_pages.h"

/* What was asked for. The choice (device/choice.h) is made from it, at once or later. */
struct pool_wish {
	const char *kind; /* static storage */
	char *device;     /* NULL: any */
};

/* Bytes: how large the pool may be, and what its blocks and segments are multiples of. */
struct pool_sizes {
	uint64_t granularity; /* segments are multiples of it */
	uint64_t limit, segment_size, alignment, release_threshold, prefault;
};

/* The memory that the pool has. */
struct pool_extent {
	LIST_HEAD(, segment) segments;
	uint32_t n_segments;
	uint64_t n_buffers; /* blocks in use */
	uint64_t reserved;  /* bytes of segments, made or being made; none of retired host memory */
	uint64_t retiring;  /* bytes of these that clients are yet to unmap */
	uint64_t dying;     /* bytes of blocks that an agent may write to, until it has ended */
	uint64_t used, most_used, most_noted; /* bytes in use, not gated: now, ever, by record */
};

/* Who has the pool open (pool_user.c). */
struct pool_use {
	uint64_t opens;
	LIST_HEAD(, stake) stakes; /* what clients hold of it */
	uint64_t referred[4];      /* bytes that have a referrer of each enum referrer_kind */
	TAILQ_HEAD(tokens_left, token) left; /* tokens whose makers are gone, in that order */
	LIST_HEAD(, pool_user) users;
	uint32_t n_takers; /* users that ask for memory of the pool */
};

/* A segment that is being made (pool_grow.c); an agent takes its time over it. */
struct pool_growth {
	bool is_under_way;
	uint64_t size, least, address;
	struct segment_cost cost;
	struct deferred_id wanted_by; /* the request that cannot do with less than `least` */
	uint64_t full_until_ms;       /* the device had no memory: do not ask again before */
};

/* Requests that wait for memory which is being made, unmapped, or finished with. */
struct pool_waiting {
	struct deferred_list requests;
	struct event *timer; /* so that they do not wait for others for ever */
	uint64_t at_ms;      /* when it ends, if it runs */
};

struct pool {
	LIST_ENTRY(pool) link;
	struct broker *broker;
	uint64_t id;
	char *name;
	struct pool_wish wish;
	uint32_t flags;       /* enum share_pool_flags */
	uint32_t reuse;       /* enum share_reuse */
	struct choice choice; /* kind NULL: not made yet; whoever opens the pool makes it */
	struct pool_sizes sizes;
	struct memory_host_pages pages;
	struct access_list access;
	uid_t owner;
	struct charge charge;
	bool configured, persistent; /* it is of the file; it stays without users */
	bool destroyed; /* its name is gone: it takes no new buffers, ends with its last one */
	struct suballocator suballocator;
	struct gated_blocks gated;
	struct pool_extent extent;
	struct pool_use use;
	struct pool_growth growth;
	struct pool_waiting waiting;
	struct log_rate refusals;
	uint64_t failed[ALLOC_FAILURES];
	uint32_t record;
};
