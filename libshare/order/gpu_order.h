/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_GPU_ORDER_H
#define LIBSHARE_ORDER_GPU_ORDER_H

#include "libshare/order/timeline.h"

/*
 * What a client keeps in order to have GPUs signal and wait: which of its timelines is which
 * stream's, and the pages that GPUs know. Behind gpu_stream.c; nobody else needs it.
 */

#define GPU_TIMELINES \
	191 /* of a client, for streams, which stay theirs; the rest is for host streams */

/* A timeline. All but the last under the lock. */
struct gpu_timeline {
	uint64_t stream; /* whose it is, by its identifier */
	uint32_t slot;
	uint64_t used;        /* when last */
	unsigned users;       /* threads that are signaling */
	pthread_mutex_t lock; /* so that values are written in order */
};

struct gpu_order {
	pthread_mutex_t lock;   /* over what follows; not held where the driver may block */
	struct memory_page own; /* host NULL: not registered yet */
	uint64_t asked, able;   /* bit by ordinal: whether devices can do it */
	struct gpu_timeline timelines[GPU_TIMELINES];
	size_t n;
	uint64_t clock;
};

/* NULL: the host has to do it. */
struct gpu_order *gpu_order_of(share_client *c);
/* The client ends; @parked: see gpu_stream_done(). */
void gpu_order_done(share_client *c, bool parked);

/* With the lock held, as all that follow. Whether the device can. */
bool gpu_order_is_able(struct gpu_order *g, int ordinal);
/* False where the driver cannot or will not: a limit on locked memory, say. */
bool gpu_order_register_own(share_client *c, struct gpu_order *g, int ordinal);
/* The page of a fence, as GPUs see it; NULL where the driver cannot: not every device can read what
 * is mapped read-only. */
const struct memory_page *gpu_order_page(share_client *c, struct gpu_order *g, int ordinal,
					 const struct held_fence *f);
/* The stream's, if it has one. */
struct gpu_timeline *gpu_order_find(struct gpu_order *g, uint64_t stream);
/* The stream's, which may be a new one; NULL when there is none to be had. */
struct gpu_timeline *gpu_order_take(share_client *c, struct gpu_order *g, uint64_t stream);

#endif
