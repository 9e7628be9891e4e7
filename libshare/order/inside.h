/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/order/gpu_late.h"
#include "libshare/order/order.h"
#include "libshare/order/pace.h"
#include "memory/stream.h"
#include "wire/wire.h"

/* What the files of this room know of each other. */

struct stats {
	atomic_uint_fast64_t signals, waits, waits_saved, host_signals, host_waits;
};

#define GPU_DEVICES_MAX 64

/* gpu_late.c: marks that become fences. */
struct gpu_late {
	pthread_mutex_t lock; /* over the making, and over each helper's order of wait and signal */
	_Atomic(struct memory_marks *) devices[GPU_DEVICES_MAX];
	atomic_uint_fast64_t unable; /* bit by ordinal */
};

/* Of a client, for streams, which stay theirs; the rest is for host streams. */
#define GPU_TIMELINES 191

/* A timeline. All but the last under the lock of struct gpu_order. */
struct gpu_timeline {
	uint64_t stream; /* whose it is, by its identifier */
	uint32_t slot;
	uint64_t used;        /* when last */
	atomic_uint users;    /* threads that are signaling; the lock is for who begins to */
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

/* What the streams and fences of a client need. Under `lock` no other lock is taken. */
struct order {
	bool host_fences; /* GPUs are not to be asked to signal or wait */
	bool never_block; /* rather than waiting for them, fail */
	struct stats stats;
	atomic_bool never_ends; /* see order_never_ends() */
	atomic_uint n_streams;  /* in `streams` */
	struct gpu_late late;
	struct gpu_order gpu;
	/* The last value handed out. Who hands values of a slot out does so one after the other. */
	_Atomic uint64_t slot_values[TIMELINE_SLOTS];
	struct pace paces[TIMELINE_SLOTS];

	pthread_mutex_t lock; /* over the rest */
	LIST_HEAD(, share_host_stream) streams;
	LIST_HEAD(, peer_page) peers;
	unsigned n_peers;
	uint8_t slots_used[TIMELINE_SLOTS / 8];
};

/* ------------------------------------------------------------------------------------------- */
/* timeline.c: timeline pages in this process, its own and those of the peers it waits for     */

/* A peer's, mapped read-only. */
struct peer_page {
	LIST_ENTRY(peer_page) link;
	uint64_t id, file; /* timeline_file() */
	/* Waits and handles that look at it. The first one takes the lock of struct order. */
	atomic_uint refs;
	int pidfd; /* of the owner; -1: it is long dead */
	atomic_int_fast64_t
	    dead_since;         /* when it was first seen dead and not poisoned; 0: not yet */
	atomic_bool distrusted; /* what is pending there will never be reached */
	const struct timeline_page *page;
	/* Of what its GPUs write, how far we believe it, and under `lock` how that is found out. */
	atomic_uint_fast64_t believed[TIMELINE_SLOTS];
	pthread_mutex_t lock;
	int stat; /* see base/system/process.h */
	struct {
		uint64_t value;
		int64_t at;     /* ms; 0: never */
	} seen[TIMELINE_SLOTS]; /* while nothing says whether it exits */
	struct memory_page gpu; /* as GPUs see it; under the lock of struct gpu_order */
	struct pace paces[TIMELINE_SLOTS];
};

/* Unmaps a page of the dead that GPUs know, where the driver may be called. False: there is none.
 */
bool peers_forget_dead(share_client *c);
/* @parked: those that GPUs know stay mapped as long as the process lives. */
void peers_deinit(share_client *c, bool parked);

/* A timeline of our own: 0 or SHARE_EQUOTA. */
int slot_take(share_client *c, uint32_t *out);
void slot_give_back(share_client *c, uint32_t slot);
/* The next value of a slot, which its user has to signal. */
uint64_t slot_next(share_client *c, uint32_t slot);
/* The last that was handed out. */
uint64_t slot_last(share_client *c, uint32_t slot);

/* ------------------------------------------------------------------------------------------- */
/* fence_state.c */

/* As fence_block(). @w NULL: nobody ends the wait; else *over says whether somebody has. */
enum timeline_state fence_block_as(share_client *c, const struct held_fence *f, int timeout_ms,
				   struct waiter *w, bool of_client, bool *over);

/* ------------------------------------------------------------------------------------------- */
/* wait_here.c */

/* The calling thread waits. */
int ordering_wait_here(share_client *c, struct ordering *o);

/* ------------------------------------------------------------------------------------------- */
/* host_stream.c */

/* What is no stream of this client may be a CUstream, which cannot be looked into: 0; or it is one
 * of another client, or was one: SHARE_EINVAL. */
int host_stream_refuse(const void *stream);
/* Of one that is. A fence behind everything enqueued so far: 0 or SHARE_ENOMEM. */
int host_stream_signal(void *stream, share_fence *out);
/* Enqueues a wait; @f stays the caller's. 0 or SHARE_ENOMEM. */
int host_stream_wait(void *stream, const struct held_fence *f);
/* Waits for what was enqueued so far. */
void host_stream_synchronize(void *stream);
/* SHARE_EINVAL in a function on the host stream that has yet to signal this fence; else 0. */
int host_stream_may_wait_for(share_client *c, const struct held_fence *f);

/* ------------------------------------------------------------------------------------------- */
/* gpu_stream.c: ordering on a CUstream, for memory of a device                                */

/* As those of streams, for what is neither a host stream nor the calling thread. */
int gpu_stream_signal(share_client *c, const struct memory_mapping *m, void *stream,
		      share_fence *out);
int gpu_stream_wait(share_client *c, const struct memory_mapping *m, void *stream,
		    struct ordering *o);
int gpu_stream_synchronize(const struct memory_mapping *m, void *stream, bool *fatal);
/* Whether gpu_stream_wait() would block the calling thread. */
bool gpu_stream_blocks(share_client *c, const struct memory_mapping *m, void *stream);
/* False when no CUstream can have this value. */
bool gpu_stream_is_possible(const void *stream);
/* The client ends: waits until its GPUs have signaled all that they have to, so that nothing of
 * theirs uses its memory any more. False when that takes too long: then what is mapped has to stay.
 */
bool gpu_stream_finish(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* gpu_late.c. The client ends, and nothing is pending. */
void gpu_late_deinit(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* gpu_order.c: which of a client's timelines is which stream's, and the pages that GPUs know  */

/* NULL: the host has to do it. */
struct gpu_order *gpu_order_of(share_client *c);
/* The client ends; @parked: streams of the program still wait for others on the client's pages.
 * What GPUs know of those then stays as it is, as changing that would wait for the streams. */
void gpu_order_deinit(share_client *c, bool parked);

/* Whether GPUs signal in place of the host, for streams of this device. */
bool gpu_order_can_signal(share_client *c, int ordinal);
/* The stream's timeline, for the calling thread to signal on until it puts it back; NULL when the
 * host has to do it. */
struct gpu_timeline *gpu_order_take(share_client *c, struct gpu_order *g,
				    const struct memory_stream *s);
void gpu_order_put(struct gpu_timeline *t);

/* With the lock held, as all that follow. Whether the device can. */
bool gpu_order_is_able(struct gpu_order *g, int ordinal);
/* The page of a fence, as GPUs see it; NULL where the driver cannot: not every device can read what
 * is mapped read-only. */
const struct memory_page *gpu_order_page(share_client *c, struct gpu_order *g, int ordinal,
					 const struct held_fence *f);
/* The stream's, if it has one. */
struct gpu_timeline *gpu_order_find(struct gpu_order *g, uint64_t stream);
