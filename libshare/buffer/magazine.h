/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"
#include "wire/wire.h"

/*
 * The free blocks of one pool that this client keeps. Each block is a buffer that is leased to this
 * client and that nobody else knows, so that most allocations and releases are nobody else's
 * business. The blocks go back when the broker asks for them and when the program is done with the
 * pool. When the process dies, they go back as all its leases do.
 */

/* The magazine of a pool, of which all handles in this process have one: a reference for the
 * handle, which it gives up when nobody is in a call about it. A handle without one, for want of
 * memory, is no error: it asks the broker for every block. */
struct magazine *magazine_open(share_client *c, uint64_t pool, const struct memory_kind *kind,
			       const share_pool_info *info);
/* Before the broker hears that the handle is closed. With the last handle of a pool, all blocks go
 * back. */
void magazine_close(struct magazine *m);
/* It keeps so many bytes from now on, and nothing of what it has. */
void magazine_limit(struct magazine *m, uint64_t bytes);
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
/* The same for a block of host memory that nothing uses any more, but only if there is room in a
 * pocket. False: the block is the caller's still. */
bool magazine_put_at_hand(struct magazine *m, share_buffer *b);

/* Gives back what this client keeps and others could use, of all pools. */
void magazines_flush(share_client *c);
/* The same if the broker has asked for it since the last time, and tells the broker. */
void magazines_answer(share_client *c);
/* Some pool was destroyed: perhaps the broker has asked because of that. */
void magazines_pool_destroyed(share_client *c);
/* The broker asks for it, by TRIM. With the client's lock held, so that others do it later. */
void magazines_trim(share_client *c, const struct wire_trim *m);
/* The pool was destroyed: nothing is kept of it any more. */
void magazine_end(struct magazine *m);

/* What is in it, and what that may be: the members `kept`, `kept_buffers` and `cache`. */
void magazine_count(struct magazine *m, share_pool_info *out);

/* One reference less, of a buffer that came from it or of whoever looks at it. */
void magazine_unref(struct magazine *m);
