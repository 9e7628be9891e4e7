/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_MAGAZINE_H
#define LIBSHARE_BUFFER_MAGAZINE_H

#include "libshare/buffer/inside.h"

/*
 * The free blocks of one pool that this client keeps. Each block is a buffer that is leased to this
 * client and that nobody else knows, so that most allocations and releases are nobody else's
 * business. The blocks go back when the broker asks for them and when the program is done with the
 * pool. When the process dies, they go back as all its leases do.
 */

/* Gives a handle of a pool its magazine, which all handles of the pool share: p->magazine. A handle
 * without one, for want of memory, is no error: it asks the broker for every block. */
void magazine_open(share_pool *p);
/* Before the broker hears that the handle is closed. With the last handle of a pool, all blocks go
 * back. */
void magazine_close(share_pool *p);
/* After that, when nobody is in a call about the handle. */
void magazine_leave(share_pool *p);
/* The client ends: from now on nothing is kept any more. */
void magazines_end(share_client *c);

/* A block for @size bytes, ordered after its last users; NULL when there is none that @stream may
 * have at once. */
share_buffer *magazine_take(struct magazine *m, uint64_t size, void *stream);

/* The same, but only what a pocket has of host memory, so that no lock is taken. */
share_buffer *magazine_take_at_hand(struct magazine *m, uint64_t size);

/* When there was no block, says what to ask the broker for: blocks of which size, and how many.
 * False: blocks of this size are not kept. */
bool magazine_refill(struct magazine *m, uint64_t size, uint64_t *block, uint32_t *count);

/* Makes a handle one of the magazine's. */
void magazine_adopt(struct magazine *m, share_buffer *b, uint64_t block);

/* Takes a block to which nobody has a reference any more, and whose uses are noted. The block is
 * kept, or it goes back to the broker. 0 or the broker's loss. */
int magazine_put(struct magazine *m, share_buffer *b);
/* The same for a block of host memory that nothing uses any more. */
int magazine_put_idle(struct magazine *m, share_buffer *b);
/* The same for such a block, but only if there is room in a pocket. False: the block is the
 * caller's still. */
bool magazine_put_at_hand(struct magazine *m, share_buffer *b);

/* Gives back what this client keeps and others could use, of all pools. */
void magazines_flush(share_client *c);
/* The same if the broker has asked for it since the last time, and tells the broker. */
void magazines_answer(share_client *c);
/* The broker asks for it, by TRIM. With the client's lock held, so that others do it later. */
void magazines_trim(share_client *c, const struct wire_trim *m);
/* The pool was destroyed: nothing is kept of it any more. */
void magazine_end(struct magazine *m);

/* What a block takes, of a buffer that magazine_adopt() was told of. */
uint64_t magazine_block(const share_buffer *b);
/* What is in it, and what that may be: the members `kept`, `kept_buffers` and `cache`. */
void magazine_count(struct magazine *m, share_pool_info *out);

/* One reference less, of a buffer that came from it or of whoever looks at it. */
void magazine_unref(struct magazine *m);

/* ------------------------------------------------------------------------------------------- */
/* Between magazine.c, which moves blocks, and magazines.c, which opens and closes magazines   */

#define MAGAZINE_SMALLEST 512u
#define MAGAZINE_CLASSES  89u /* up to 2 GiB, four to each doubling */
#define MAGAZINE_WAYS     4u
#define MAGAZINE_MAX      (UINT64_C(1) << 30) /* bytes */

/* Which classes have pockets, and what is in all of them at most, in bytes. */
#define MAGAZINE_POCKETS_FEW 29u /* up to 64 KiB */
#define MAGAZINE_FEW_BYTES   (UINT64_C(2) << 20)
#define MAGAZINE_POCKETS_MANY                                               \
	45u /* up to 1 MiB: of GPUs, whose memory is taken in larger pieces \
	     */
#define MAGAZINE_MANY_BYTES (UINT64_C(32) << 20)

struct stock {
	share_buffer *first;
	uint32_t n;
	uint32_t refill; /* how many to ask for next; 0: one */
};

struct magazine {
	LIST_ENTRY(magazine) link; /* of the client, or of those that are unused */
	share_client *client;      /* this to `plain` do not change while it is in use */
	uint64_t pool;
	uint64_t alignment;
	uint32_t reuse;
	bool plain;
	atomic_uint refs;  /* pool handles, buffers, and whoever is looking at it */
	unsigned handles;  /* of the pool; under the lock of struct magazines */
	atomic_bool ended; /* the pool was destroyed: it is never open again */
	atomic_bool open;
	atomic_uint pockets_open;      /* the classes below have them */
	atomic_uint_fast64_t answered; /* how many TRIMs */
	_Alignas(64) _Atomic(share_buffer *) pockets[MAGAZINE_WAYS][MAGAZINE_POCKETS_MANY];
	_Alignas(64) pthread_mutex_t lock; /* over the rest */
	uint64_t limit, kept;              /* bytes, in the stocks */
	uint64_t bound;                    /* of these and what is in pockets */
	struct stock stocks[MAGAZINE_CLASSES];
};

/* How often the broker has asked this client to give back what it keeps. */
static inline uint64_t asked_to_trim(const share_client *c)
{
	return atomic_load_explicit(&c->page->slots[0].last, memory_order_relaxed);
}

/* Gives back whatever is in it now; or what others could use: not what streams of other processes
 * still do, which nobody can have before they are done. */
void magazine_empty(struct magazine *m);
void magazine_spare(struct magazine *m);

#endif
