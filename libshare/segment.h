/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_SEGMENT_H
#define LIBSHARE_SEGMENT_H

#include "libshare/client.h"

/*
 * Segments in this process: each imported at most once for reading and once for writing, whatever
 * the number of buffers in it. All with the lock held.
 */

/* Enters the descriptors that came with a grant. 0 or negative errno. */
int grant_arrived_locked(share_client *c, const struct wire_grant *m, struct fd_list *fds);

/* Where the segment of a grant lies in this process. 0 or an error. */
int segment_address_locked(share_client *c, const struct wire_grant *m, bool writable, void **out);

/* The broker says that it is empty: unmaps it, and says so. */
void segment_retire_locked(share_client *c, uint64_t id);

/* Unmaps everything. Without the lock: nobody else has the client any more. */
void segments_done(share_client *c);

#endif
