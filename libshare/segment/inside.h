/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/client/rpc.h"
#include "libshare/segment/segment.h"

/* What the files of this room know of each other. */

/* segments.c: the segments of this process. */
struct segments {
	pthread_mutex_t lock; /* taken after all others */
	struct segment **all; /* by the low half of their identifier */
	uint32_t room;
	LIST_HEAD(, segment) retired; /* to be unmapped when nobody is delivering */
	TAILQ_HEAD(, segment) ahead;  /* those that came before they were needed, oldest first */
	uint32_t n_ahead, ahead_max;  /* that may wait to be mapped */
	uint64_t arrived;             /* descriptors, ever */
};

/* import.c. Maps it and makes it reachable for the calling thread: 0 or an error. */
int segment_import(share_client *c, struct segment *s, bool writable,
		   struct memory_mapping **mapping);
/* The same, if what it takes is here: 1, 0 when it is not, or an error. */
int segment_import_if_here(share_client *c, struct segment *s, bool writable,
			   struct memory_mapping **mapping);
/* The same in the mode that it came in, as its descriptors say. */
void segment_import_as_it_came(share_client *c, struct segment *s);

/* segment.c. With the lock of the table held: the one with this identifier, or NULL. */
struct segment *segments_at(struct segments *t, uint64_t id);
/* The same: it is needed, or gone. */
void segments_not_ahead(struct segments *t, struct segment *s);
/* segment_put() for who may hold the client's lock: it is unmapped later. */
void segment_put_soon(share_client *c, struct segment *s);
/* Maps what came ahead, where there is more of it than may wait. */
void segments_map_ahead(share_client *c);
