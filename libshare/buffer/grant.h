/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/buffer/buffer.h"
#include "wire/wire.h"

/* Between this process and the broker: what handles are made of, and what others get to know. */

/* One RELEASE: of @count references, behind @fence. */
int buffer_send_release(share_client *c, uint64_t id, uint32_t count, const share_fence *fence);

/* SHARE_EINVAL: it is none. */
int mode_check(int mode);

/*
 * Makes a handle of a grant and orders @stream after what the grant has to wait for. Gives
 * the reference back on failure. A giver's death is an error; that of former users is as good as
 * their being done.
 */
int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out);
/* The same without waiting for anything; the fences are for the caller to wait for. */
int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out);
/* What a grant has to come after, held: the giver's fence goes into @b (and is an error, if it is
 * dead); those of others who use the memory need fences_deinit(), on failure as well. */
int buffer_hold_giver(share_client *c, const struct wire_grant *m, share_buffer *b);
int buffer_hold_users(share_client *c, const struct wire_grant *m, struct fences *out);
/* Gives the only reference to a handle up that nothing was done with yet. */
void buffer_drop(share_buffer *b);
/* This client has allocated it, in a block of its size: counted until it goes back. */
void buffer_is_ours(share_buffer *b);

/* If this process wants what it may write in its core dumps, @b adds the pages of its block to
 * them, now that it is in its segment; and takes them out again before it leaves that. */
void segment_dump(share_buffer *b);
void segment_dump_end(share_buffer *b);

/* One reference less, of somebody who has done nothing with it or has noted it. */
int buffer_let_go(share_buffer *b);
/* Others get to know it: what they are given comes after @out, which is behind the work on @stream
 * and behind what that has to come after. */
int buffer_make_known(share_buffer *b, void *stream, share_fence *out);

/* Gives back to the broker what was given up, and was to wait until fences of others are reached:
 * what waits for none any more; @all: whether or not. */
void buffers_cooled(share_client *c, bool all);
