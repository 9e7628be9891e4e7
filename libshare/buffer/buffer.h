/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_BUFFER_H
#define LIBSHARE_BUFFER_BUFFER_H

#include "libshare/buffer/segment.h"
#include "libshare/client/client.h"
#include "libshare/order/fences.h"
#include "libshare/order/gpu_late.h"
#include "libshare/order/timeline.h"

struct lent;
struct magazine;

/*
 * What the next use of a block has to come after, when it is not this handle's: the work of those
 * who have let go of it, and what of earlier lives of the block is not over. See
 * uses.h.
 */
struct uses {
	struct late late;      /* on one CUDA stream that was not asked to signal */
	struct fences *fences; /* NULL: none */
};

/* As share_tensor_encode() has it, from whoever. */
struct buffer_tensor {
	uint32_t size;
	unsigned char bytes[];
};

/* One reference of this process on a buffer: what one GRANT gave. */
struct share_buffer {
	struct handle handle;
	atomic_uint refs;      /* the program's, and those of the library's own */
	atomic_uint messages;  /* in flight with it; each has a reference */
	atomic_bool known;     /* to others, so that the identifier must go with it */
	bool plain;            /* of a magazine of host memory */
	uint8_t size_class;    /* in its magazine */
	struct magazine *home; /* NULL: it goes back to the broker. Holds it */
	struct uses uses;
	_Atomic(struct lent *) lent;  /* a message's: see libshare/channel/channel.h */
	struct buffer_tensor *tensor; /* that came with its name or token; NULL: none did */
	struct share_buffer *next;    /* in a magazine, or cooling */
	share_client *client;
	uint64_t id;
	uint64_t size;
	uint64_t version;
	uint64_t offset; /* in the segment */
	struct segment *segment;
	struct memory_mapping *mapping; /* of the segment */
	uint32_t mode;
	uint32_t ordered;        /* enum share_ordered */
	struct held_fence giver; /* the hand-over's fence, to tell the status of the data */
};

struct share_pool {
	struct handle handle;
	share_client *client;
	uint64_t id;
	const struct memory_kind *kind; /* NULL: one this library does not know */
	share_pool_info info;
	char *name, *device, *reason; /* that `info` points to */
	struct magazine *magazine;    /* NULL: the program wants none */
};
HANDLES_OF(share_pool, pool, HANDLE_POOL);

/*
 * Makes a handle of a grant and orders @stream after what the grant has to wait for. Gives the
 * reference back on failure. A giver's death is an error; that of former users is as good as their
 * being done.
 */
int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out);

/* What a grant has to come after, held: the giver's fence goes into @b (and is an error, if it is
 * dead); those of others who use the memory need fences_done(), on failure as well. */
int buffer_hold_giver(share_client *c, const struct wire_grant *m, share_buffer *b);
int buffer_hold_users(share_client *c, const struct wire_grant *m, struct fences *out);

/* The same without waiting for anything; the fences are for the caller to wait for. */
int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out);

/* Gives the only reference to a handle up that nothing was done with yet. */
void buffer_drop(share_buffer *b);

/*
 * A message is over: gives its reference up for somebody else, whose use ends with the fences @f:
 * the memory is used again after those. @f is consumed whatever happens; NULL or none of them:
 * nobody uses it.
 * @shared: another process has a lease on it. Never blocks. 0 or the broker's loss.
 */
int buffer_release_after(share_buffer *b, struct fences *f, bool shared);

/* One reference less, of somebody who has done nothing with it or has noted it. */
int buffer_let_go(share_buffer *b);

/* Others get to know it: what they are given is ordered behind what @stream has to come after. */
int buffer_make_known(share_buffer *b, void *stream);

/* One RELEASE. */
int buffer_send_release(share_client *c, uint64_t id, uint32_t count, const share_fence *fence);
/* The handle is nobody's any more. Neither the broker nor the client's references know. */
void buffer_free(share_buffer *b);

/* To the broker, by its last holder; what is not over yet is told, or waited for in `cooling`. */
int buffer_give_back(share_buffer *b);
/* Gives back those in `cooling` whose fences are reached; @all: whether or not. */
void buffers_cooled(share_client *c, bool all);

/* An object of zeros, in which there is room for a loan as well (libshare/channel/channel.h); or
 * NULL. */
#define BUFFER_ROOM 240
share_buffer *buffer_new(void);

HANDLES_OF(share_buffer, buffer, HANDLE_BUFFER);

/* One more reference, of the library's own. */
static inline void buffer_ref(share_buffer *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/* share_release() of a reference that was taken from the handle, or that no handle stands for.
 * @kept: set where it is not given up after all. */
int buffer_release(share_buffer *b, void *stream, bool *kept);

/* What it is called, told to somebody who must never find another buffer by it. */
uint64_t buffer_tell_id(share_buffer *b);

int mode_check(int mode);

#endif
