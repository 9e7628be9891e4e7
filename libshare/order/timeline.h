/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_TIMELINE_H
#define LIBSHARE_ORDER_TIMELINE_H

#include "libshare/client/client.h"
#include "memory/stream.h"

/*
 * Timeline pages in this process: its own, and those of the peers it waits for, mapped read-only.
 */
struct peer_page {
	LIST_ENTRY(peer_page) link;
	uint64_t id;
	unsigned refs; /* waits and handles that look at it; under the lock */
	int pidfd;     /* of the owner; -1: it is long dead */
	atomic_int_fast64_t
	    dead_since;         /* when it was first seen dead and not poisoned; 0: not yet */
	atomic_bool distrusted; /* what is pending there will never be reached */
	const struct timeline_page *page;
	/* Of what its GPUs write, how far we believe it, and under `lock` how that is found out. */
	atomic_uint_fast64_t believed[TIMELINE_SLOTS];
	pthread_mutex_t lock;
	int stat; /* see base/process.h */
	struct {
		uint64_t value;
		int64_t at;     /* ms; 0: never */
	} seen[TIMELINE_SLOTS]; /* while nothing says whether it exits */
	struct memory_page gpu; /* as GPUs see it; under the lock of struct gpu_order */
};

/* A fence with its page held: to be looked at without a request, for as long as it lives. */
struct held_fence {
	struct peer_page *peer;           /* NULL: one of our own, none, or of the dead */
	const struct timeline_page *page; /* NULL: reached */
	uint32_t slot;
	uint64_t value;
};

int peer_arrived_locked(share_client *c, uint64_t page, int fd, int pidfd); /* takes both */
/* Pages of the dead that GPUs know, where the driver may be called. Gives the lock up. */
void peers_forget_dead_locked(share_client *c);
/* @parked: those that GPUs know stay mapped as long as the process lives. */
void peers_done(share_client *c, bool parked);

/* Holds a fence; asks the broker for the page when it has not come along. 0 or an error. */
int fence_hold(share_client *c, uint64_t timeline, uint64_t value, struct held_fence *out);
/* The same without asking anybody: false when the page is not here. */
bool fence_hold_known(share_client *c, uint64_t timeline, uint64_t value, struct held_fence *out);
/* Another hold on the same. */
struct held_fence fence_hold_again(share_client *c, const struct held_fence *f);
/* One whose owner was dead before we knew it: whether it was reached nobody knows, so it was not.
 */
struct held_fence fence_of_the_dead(void);
void fence_drop(share_client *c, struct held_fence *f);

/* In fence_state.c. */
enum timeline_state fence_state(share_client *c, const struct held_fence *f);
/* Blocks the thread; ends with the time limit, or when the owner is dead, with or without a broker
 * to poison its page. */
enum timeline_state fence_block(share_client *c, const struct held_fence *f, int timeout_ms);
/* The same, as a result: 0, SHARE_EOWNERDEAD or SHARE_ETIMEDOUT. */
int fence_wait_here(share_client *c, const struct held_fence *f, int timeout_ms);

/* A timeline of our own: 0 or SHARE_EQUOTA. */
int slot_take(share_client *c, uint32_t *out);
void slot_give_back(share_client *c, uint32_t slot);
/* The next value of a slot, which its user has to signal. */
uint64_t slot_next(share_client *c, uint32_t slot);
/* The last that was handed out. */
uint64_t slot_last(share_client *c, uint32_t slot);

#endif
