/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct client;
struct object_kind;

/* What a client has of a segment. */
enum segment_possession {
	SEGMENT_READABLE = 1 << 0,
	SEGMENT_WRITABLE = 1 << 1,
	SEGMENT_UNMAPPING = 1 << 2,
};

struct possession {
	uint32_t record;
	uint8_t what; /* enum segment_possession */
};

/* A client has few of all segments. If it has none of so many, which follow each other by their
 * indexes, nothing is written down of these. */
#define POSSESSION_GROUP 32

/* What the broker knows of a client's answers: it was asked `asked` times. */
struct trim {
	uint64_t asked, answered;
	uint64_t asked_ms;  /* when it was asked last */
	uint64_t window_ms; /* since when `cost_ms` is counted */
	uint64_t cost_ms;   /* how long others have waited for its answers */
};

/* What a client has of memory: what it was sent of segments, and the pools that it has open. */
struct client_memory {
	struct possession **groups; /* groups of segments, by index; NULL: it has none of them */
	uint32_t n_groups;
	uint32_t n_unmapping; /* segments that it was asked to unmap and has not yet */
	uint32_t n_overdue;   /* its messages since it last unmapped one */
	uint32_t forgotten;   /* when it ends: it has nothing of the segments before this one */
	LIST_HEAD(, open_pool) pools;
	struct trim trim;
};

void client_memory_deinit(struct client *c);

/* Returns what the client has of the segment with this index; whoever changes that calls
 * possession_note(). NULL: it has nothing, and there is no place to note it. */
struct possession *client_possession(const struct client *c, uint32_t segment);
/* Makes a place for that. 0, -ENOMEM; or -EDQUOT: its user cannot pay for that (LIMIT_MEMORY). */
int client_reserve_possession(struct client *c, uint32_t segment);
/* Notes what the client has of the segment with this index. */
void possession_note(struct client *c, uint32_t index);
uint32_t client_possessions_end(const struct client *c); /* it has none from this index on */
/* Counts a message of a client that has not unmapped all that it was asked to unmap. True when that
 * is too much. */
bool client_is_overdue(struct client *c);
/* Whether the client may have a segment mapped. */
bool client_has_segments(const struct client *c);

extern const struct object_kind possession_kind;
