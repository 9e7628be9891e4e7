/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"
#include "memory/import.h"

extern const struct client_room order_room;

/* A fence with its page held: to be looked at without a request, for as long as it lives. */
struct held_fence {
	struct peer_page *peer;           /* NULL: one of our own, none, or of the dead */
	const struct timeline_page *page; /* NULL: reached */
	uint32_t slot;
	uint64_t value;
};
/* Holds a fence; asks the broker for the page when it has not come along. 0 or an error. */
int fence_hold(share_client *c, uint64_t timeline, uint64_t value, struct held_fence *out);
/* Another hold on the same. */
struct held_fence fence_hold_again(const struct held_fence *f);
/* One whose owner was dead before we knew it, so that it never was reached, for all we know. */
struct held_fence fence_of_the_dead(void);
void fence_drop(struct held_fence *f);
/* The broker has sent a peer's page, whose timelines can be held from now on. Takes both
 * descriptors. 0 or negative errno. */
int peer_arrived(share_client *c, uint64_t page, int fd, int pidfd);

enum timeline_state fence_state(share_client *c, const struct held_fence *f);
/* Whether it will never be reached, as far as that is known here: a death of which nobody has heard
 * yet is not looked for. */
bool fence_is_known_dead(share_client *c, const struct held_fence *f);
/* Blocks the thread; ends with the time limit, or when the owner is dead, with or without a broker
 * to poison its page. */
enum timeline_state fence_block(share_client *c, const struct held_fence *f, int timeout_ms);
/* The same for a thread of the program, as a result: 0, SHARE_EOWNERDEAD or SHARE_ETIMEDOUT; or the
 * wait is to end, see wait_is_over(). */
int fence_wait_here(share_client *c, const struct held_fence *f, int timeout_ms, bool of_client);

/* A set of fences that somebody waits for together. All zeros is an empty set. */
struct fences {
	struct held_fence few[8], *all; /* `all` may be NULL while there are none */
	size_t n;
};
/* Takes @f over. Of two fences of one timeline the set has only the later one, which stands for
 * both. False: there is no memory, and @f is still the caller's. */
bool fences_add(struct fences *set, struct held_fence *f);
/* Drops the fence at this place, which the last one of the set takes. */
void fences_drop_at(struct fences *set, size_t i);
void fences_deinit(struct fences *set);

/*
 * What `void *stream` means: one of the client's host streams, for every kind of memory. Otherwise
 * it depends on the memory: for that of the host only NULL is left, the calling thread; for that of
 * a device it is a CUstream. @m is the mapping of the memory in question; NULL: none, and NULL is
 * the calling thread.
 */
bool host_stream_is(share_client *c, const void *stream); /* NULL is none */
/* SHARE_EINVAL in a function on this host stream, which would wait for itself; else 0. */
int host_stream_may_wait(const void *stream);
/* 0, or SHARE_EINVAL when @stream cannot be a stream for memory of this kind; @kind NULL: it is
 * not known yet. */
int stream_check(share_client *c, const struct memory_kind *kind, void *stream);
/* What says, where there is no memory, that a stream is a CUstream of this device. */
struct memory_mapping stream_on_device(int ordinal);
/* A fence behind everything enqueued so far; timeline 0 when it is reached already. 0 or error. */
int stream_signal(share_client *c, const struct memory_mapping *m, void *stream, share_fence *out);

/* What work has to come after. */
struct ordering {
	const struct held_fence *fences; /* stay the caller's */
	size_t n;
	int timeout_ms;     /* as far as the thread has to wait */
	bool dead_is_done;  /* whoever died has no work any more: not an error */
	bool may_not_block; /* rather than waiting in a stream's place, SHARE_EAGAIN */
	uint32_t how;       /* out: enum share_ordered, the strongest that was needed */
};
/* Makes the stream wait; when it blocks, the thread does. 0 or an error: SHARE_EOWNERDEAD and
 * SHARE_ETIMEDOUT only when it blocks. */
int stream_wait(share_client *c, const struct memory_mapping *m, void *stream, struct ordering *o);
/* The same for all users of some memory, of which whoever died has no work any more. @how, if not
 * NULL, becomes what was needed where that is stronger. */
int stream_wait_for_users(share_client *c, const struct memory_mapping *m, void *stream,
			  const struct fences *users, int timeout_ms, uint32_t *how);
/* Whether stream_wait() blocks the calling thread. */
bool stream_blocks(share_client *c, const struct memory_mapping *m, void *stream);
/* Blocks until everything enqueued so far is done. 0 or an error; @fatal: of the device, so that
 * nothing runs on it any more. */
int stream_synchronize(share_client *c, const struct memory_mapping *m, void *stream, bool *fatal);
/* stream_signal() of what is given up. Without memory for a signal, stream_synchronize(), as being
 * done is as good as saying so. SHARE_EINVAL or SHARE_ENOTSUP: the driver knows no such stream, or
 * it is being captured. */
int stream_end(share_client *c, const struct memory_mapping *m, void *stream, share_fence *out,
	       bool *fatal);

/* Work may run in the client's memory of which nothing can tell the end: see client_room.end(). */
void order_never_ends(share_client *c);
void order_get_stats(share_client *c, share_fence_stats *out);
