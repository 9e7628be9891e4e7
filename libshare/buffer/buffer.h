/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"
#include "libshare/order/gpu_late.h"
#include "libshare/order/order.h"

extern const struct client_room buffer_room;

/* What the next use of a block has to come after: see libshare/buffer/uses.h. */
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
	bool plain, ours;      /* of a magazine of host memory; see buffer_is_ours() */
	uint8_t size_class;    /* in its magazine */
	struct magazine *home; /* NULL: it goes back to the broker. Holds it */
	struct uses uses;
	_Atomic(struct lent *) lent;  /* a message's, if it is on loan: see struct buffer_carrier */
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
	uint32_t dumped;         /* pages that it adds to a core dump: see segment_dump() */
	struct held_fence giver; /* the hand-over's fence, to tell the status of the data */
};
HANDLES_OF(share_buffer, buffer, HANDLE_BUFFER);

/* NULL, or an object of zeros with room for a loan as well (libshare/channel/channel.h). */
#define BUFFER_ROOM 248
share_buffer *buffer_new(void);

/* What it is called, told to somebody who must never find another buffer by it. */
uint64_t buffer_tell_id(share_buffer *b);

/* One more reference, of the library's own. */
static inline void buffer_ref(share_buffer *b)
{
	atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/* share_release() of a reference that was taken from the handle, or that no handle stands for.
 * @kept: set where it is not given up after all. */
int buffer_release(share_buffer *b, void *stream, bool *kept);

/* A message is about to be sent with @b. */
void buffer_message_sent(share_buffer *b);
/* It is over, and what came of it is noted: see uses_add_all(). */
void buffer_message_over(share_buffer *b);
/* It is over: gives its reference up for somebody else, whose use ends with the fences @f: the
 * memory is used again after those. @f is consumed whatever happens; NULL or none of them: nobody
 * uses it. @shared: another process has a lease on it. Never blocks. 0 or the broker's loss. */
int buffer_release_after(share_buffer *b, struct fences *f, bool shared);
/* Whether somebody waits until no message has some buffer of the client any more. */
bool buffers_are_awaited(share_client *c);

/* What was given up, and can go back to the broker by now, does. */
void buffers_look_again(share_client *c);

/* What this room needs of channels, which carry buffers. In libshare/rooms.c. */
struct buffer_carrier {
	/* For a loan: buffer_release(); and between which members it is (false: it is none). */
	int (*release_loan)(share_buffer *b, void *stream, bool *kept);
	bool (*name_loan)(share_buffer *b, uint64_t *member, uint64_t *producer);
	/* Both with the client's lock held. Has all messages in flight looked for, now and as long
	 * as buffers_are_awaited(); and whether that has been done since. Tells c->arrived. */
	uint64_t (*look)(share_client *c);
	bool (*have_looked)(const share_client *c, uint64_t look);
};
extern const struct buffer_carrier buffer_carrier;
