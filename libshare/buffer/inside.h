/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"
#include "libshare/buffer/grant.h"
#include "libshare/buffer/messages.h"
#include "libshare/buffer/uses.h"
#include "libshare/client/dispatch.h"
#include "libshare/client/rpc.h"
#include "libshare/segment/segment.h"

/* What the files of this room know of each other. */

/* magazines.c: the blocks that are kept back. */
struct magazines {
	bool wanted;          /* it has magazines at all */
	pthread_mutex_t lock; /* over the list; no other lock is taken under it */
	LIST_HEAD(, magazine) list;
	struct task trim;              /* so that share_dispatch() is called when memory is short */
	atomic_uint_fast64_t answered; /* the last TRIM that was seen to */
};

/* give_back.c: buffers that were given up, but others' fences are to be reached before the broker
 * may know. */
struct cooling {
	struct share_buffer *first;
	atomic_uint n;
};

/* messages.c: who waits until no message has some buffer any more. */
struct awaited {
	LIST_HEAD(, message_wait) list; /* those who do not sleep meanwhile */
	atomic_uint n;                  /* all of them; changed under the client's lock */
};

/* What of a client is this room's. */
struct buffers {
	struct magazines magazines;
	struct awaited awaited;
	bool dumps_mine;           /* see segment_dump() */
	pthread_mutex_t uses_lock; /* see buffers_lock_uses(); taken before the client's lock */
	struct cooling cooling;    /* under the same */
	atomic_bool ending;        /* what is released goes back to the broker at once */
};

/* grant.c. The handle is nobody's any more. Neither the broker nor the client's references know. */
void buffer_free(share_buffer *b);

/* give_back.c. To the broker, by its last holder; what is not over yet is told, or waited for in
 * `cooling`. */
int buffer_give_back(share_buffer *b);
/* The same as a chore: calls no driver, and does not wait for the lock. False: some are left. */
bool buffers_cooled_meanwhile(share_client *c);

/* messages.c. The broker is lost: those who wait for messages need not. With the client's lock
 * held. */
void messages_lose_broker(share_client *c);

/* ------------------------------------------------------------------------------------------- */
/* What a magazine is, between those who open and close it and those who take and put blocks   */

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

/* What the blocks of a class have. */
static inline uint64_t block_of(uint32_t class)
{
	uint32_t top = (class + 3) / 4 + 8, part = (class + 3) % 4;

	return (uint64_t)(5 + part) << (top - 2);
}

/* Takes the block at @at out of its list. With the lock held. */
static inline void unlink_block(struct magazine *m, struct stock *s, share_buffer **at,
				uint64_t block)
{
	share_buffer *b = *at;

	*at = b->next;
	b->next = NULL;
	s->n--;
	m->kept -= block;
}

/* magazine_memory.c. One that nobody has had so far, or that nobody has any more. NULL: there is no
 * memory. */
struct magazine *magazine_new(void);

/* stock.c. Into the list, or to the broker: 0 or the broker's loss. */
int magazine_keep(struct magazine *m, share_buffer *b);
/* Gives back whatever is in it now; or what others could use: not what streams of other processes
 * still do, which nobody can have before they are done. */
void magazine_empty(struct magazine *m);
void magazine_spare(struct magazine *m);

/* The block and the client may be gone by now. */
static inline void look_again(struct magazine *m)
{
	if (!atomic_load(&m->open))
		magazine_empty(m);
}
