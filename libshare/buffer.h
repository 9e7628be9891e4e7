/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_H
#define LIBSHARE_BUFFER_H

#include "libshare/client.h"
#include "libshare/segment.h"
#include "libshare/timeline.h"

/* One reference of this process on a buffer: what one GRANT gave. */
struct share_buffer {
	atomic_uint refs;
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
	share_client *client;
	uint64_t id;
	const struct memory_kind *kind; /* NULL: one this library does not know */
	share_pool_info info;
	char *name, *device, *reason; /* that `info` points to */
};

/*
 * Makes a handle of a grant and orders @stream after what the grant has to wait for. Gives the
 * reference back on failure. A giver's death is an error; that of former users is as good as their
 * being done.
 */
int buffer_from_grant(share_client *c, const struct wire_grant *m, void *stream, int timeout_ms,
		      share_buffer **out);

/* Fences that are waited for together. */
struct fences {
	struct held_fence few[8], *all;
	size_t n;
};
/* For all zeros too. */
void fences_done(share_client *c, struct fences *f);

/* What a grant has to come after, held: the giver's fence goes into @b (and is an error, if it is
 * dead); those of others who use the memory need fences_done(), on failure as well. */
int buffer_hold_giver(share_client *c, const struct wire_grant *m, share_buffer *b);
int buffer_hold_users(share_client *c, const struct wire_grant *m, struct fences *out);

/* The same without waiting for anything; the fences are for the caller to wait for. */
int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out);

/* Gives the only reference to a handle up that nothing was done with yet. */
void buffer_drop(share_buffer *b);

/* Fails with SHARE_EINVAL or SHARE_EFORK. */
int buffer_check(share_buffer *b);
int name_check(const char *name);
int mode_check(int mode);

/* Time limits that cover several steps. */
int64_t deadline_from(int timeout_ms); /* -1: none */
int deadline_left(int64_t deadline);

#endif
