/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/client.h"
#include "memory/import.h"
#include "wire/wire.h"

/*
 * Segments in this process: each imported at most once for reading and once for writing, whatever
 * the number of buffers in it; at most once in all where its kind or its pool wants that.
 */

extern const struct client_room segment_room;

struct side {
	int fd;                        /* until it is mapped */
	struct memory_mapping mapping; /* `address` is NULL until then */
	_Atomic bool mapped;           /* it is, for good, and that without `importing` */
};

struct segment {
	uint64_t id;
	uint64_t pool;
	uint64_t size;
	const struct memory_kind *kind;
	struct memory_recipe recipe;
	char device[MEMORY_UUID_TEXT]; /* "" for host memory */
	bool single;                   /* one mapping, `writing`, for both */

	/* under the lock of the client's segments, as descriptors are */
	unsigned refs;            /* the table's, and one a buffer handle or import under way */
	LIST_ENTRY(segment) link; /* once the last is gone: waits to be unmapped */
	TAILQ_ENTRY(segment) of_ahead;
	bool is_ahead; /* it came before it was needed, and is not mapped yet */

	/* Mappings are only made under this, which is taken before the other if both are, and only
	 * go with the last reference. */
	pthread_mutex_t importing;
	struct side reading, writing;
	/* What this client has allocated in it, and not given back. */
	atomic_uint_fast64_t ours, n_ours;
	uint32_t *dumped; /* how many buffers have each of its pages dumped; NULL: none has */
};

/*
 * Imports the segment of a grant if that has not been done, and makes it reachable for the calling
 * thread. This takes milliseconds, and other threads go on. 0, a reference for segment_put() and
 * the mapping, which lives as long as that; or an error.
 */
int segment_get(share_client *c, const struct wire_grant *m, bool writable, struct segment **out,
		struct memory_mapping **mapping);

/* The same of a segment by its identifier, if it is here, mapped or not; *out is NULL when it is
 * not. SHARE_EPROTO if it is of another pool. */
int segment_find(share_client *c, uint64_t id, uint64_t pool, bool writable, struct segment **out,
		 struct memory_mapping **mapping);

/* Of one that has arrived; false: it has not. */
bool segment_get_recipe(share_client *c, uint64_t id, struct memory_recipe *out);
/* From now on what comes ahead is mapped when it comes. Says how many descriptors have come. */
uint64_t segments_want_ahead(share_client *c);
/* Maps what has come of a pool, all of it that can be, and makes it reachable for the calling
 * thread: 0, or the last error. */
int segments_map(share_client *c, uint64_t pool, bool writable);
/* What this client has allocated of a pool. */
void segments_count(share_client *c, uint64_t pool, uint64_t *bytes, uint64_t *blocks);

/* SHARE_EOWNERDEAD: its memory is gone with the agent that made it, of kinds of which that can be.
 */
int segment_check_memory(const struct memory_mapping *m);

/* One reference more, of who has one: @s. */
struct segment *segment_ref(share_client *c, struct segment *s);
/* NULL is fine. Without the client's lock, as it may have to be unmapped. */
void segment_put(share_client *c, struct segment *s);
