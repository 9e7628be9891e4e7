/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_MAGAZINE_H
#define LIBSHARE_BUFFER_MAGAZINE_H

#include "libshare/buffer/buffer.h"

/*
 * The free blocks of one pool that this client keeps. They are buffers like any other, leased to
 * this client, that nobody else knows: so most allocations and releases concern nobody else. Given
 * back when the broker asks for it, when the program is done with the pool, and, as leases, when
 * the process dies.
 */
struct magazine;

/* The one of @p, for every handle of the pool: p->magazine, or none. Only without memory is it an
 * error not to have one, and not even then. */
void magazine_open(share_pool *p);
/* The last handle of a pool gives everything back. Before the broker is told. */
void magazine_close(share_pool *p);
/* The client ends: from now on nothing is kept any more. */
void magazines_end(share_client *c);

/* A block for @size bytes, ordered after its last users; NULL when there is none that @stream may
 * have at once. */
share_buffer *magazine_take(struct magazine *m, uint64_t size, void *stream);

/* What to ask the broker for when there was none: the size, and how many. False: this size is not
 * kept. */
bool magazine_refill(struct magazine *m, uint64_t size, uint64_t *block, uint32_t *count);
/* The same where no lock is taken and nobody is asked: from a pocket, on host memory. */
share_buffer *magazine_take_at_hand(struct magazine *m, uint64_t size);

/* Makes a handle one of the magazine's. */
void magazine_adopt(struct magazine *m, share_buffer *b, uint64_t block);

/* The last reference is gone; its uses are noted. Kept, or given back: 0 or the broker's loss. */
int magazine_put(struct magazine *m, share_buffer *b);
/* The same for one on host memory, of which every use is over. */
int magazine_put_idle(struct magazine *m, share_buffer *b);
/* Of such a one: into a pocket, or false, and nothing was done. */
bool magazine_put_at_hand(struct magazine *m, share_buffer *b);

/* What this client keeps and others could use goes back; in magazines_answer() only if the broker
 * has asked. */
void magazines_flush(share_client *c);
void magazines_answer(share_client *c);
/* TRIM. With the lock held. */
void magazine_trim_locked(share_client *c, const struct wire_trim *m);
/* The pool was destroyed: nothing is kept of it any more. */
void magazine_end(struct magazine *m);

/* By buffers that came from it. */
void magazine_unref(struct magazine *m);

#endif
