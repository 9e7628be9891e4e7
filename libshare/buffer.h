/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_BUFFER_H
#define LIBSHARE_BUFFER_H

#include "libshare/client.h"
#include "libshare/timeline.h"

/* One reference of this process on a buffer: what one GRANT gave. */
struct share_buffer {
	atomic_uint refs;
	share_client *client;
	uint64_t id;
	uint64_t size;
	uint64_t version;
	void *address;
	uint32_t mode;
	struct held_fence giver; /* the hand-over's fence, to tell the status of the data */
};

struct share_pool {
	share_client *client;
	uint64_t id;
	share_pool_info info;
	char *name;
};

/*
 * Makes a handle of a grant and orders @stream after what the grant has to wait for. Gives the
 * reference back on failure. @hand_over: the fences are a giver's, so its death is an error; else
 * they are former users', whose death is as good as their being done.
 */
int buffer_from_grant(share_client *c, const struct wire_grant *m, bool hand_over, void *stream,
		      int timeout_ms, share_buffer **out);

/* The same without waiting for anything; the fences are for the caller to wait for. */
int buffer_from_grant_unordered(share_client *c, const struct wire_grant *m, share_buffer **out);

/* Fails with SHARE_EINVAL or SHARE_EFORK. */
int buffer_check(share_buffer *b);
int name_check(const char *name);
int mode_check(int mode);

/* Time limits that cover several steps. */
int64_t deadline_from(int timeout_ms); /* -1: none */
int deadline_left(int64_t deadline);

#endif
