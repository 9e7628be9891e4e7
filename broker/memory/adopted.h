/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_ADOPTED_H
#define BROKER_MEMORY_ADOPTED_H

#include <stdbool.h>
#include <stdint.h>

/* Pools of kind adopted. Their segments are memory that clients had before, with one buffer in
 * each. The segment of a device's memory is the whole allocation in which the buffer lies.
 * One of kind legacy is lost when the process that made it ends; or has no connection any more that
 * has it, as it may free it then. */

struct account;
struct allocation;
struct broker;
struct client;
struct failure;
struct memory_kind;
struct memory_segment;
struct pool;
struct segment;

bool pool_is_adopted(const struct pool *p);
/* Returns the kind that whoever maps the segment takes it for. That is its pool's kind or, for a
 * device's memory that was adopted, vmm or legacy, as it is reached in that way. */
const struct memory_kind *kind_of_segment(const struct segment *s);

/* Makes a segment of @memory, whose descriptors are taken over on success; @account pays for them.
 * 0, or a SHARE_E... number with a sentence. */
int pool_adopt(struct broker *b, struct pool *p, struct account *account,
	       const struct memory_segment *memory, struct segment **out, struct failure *failure);
/* Takes the segment's only block ever, which is charged; the offset is a multiple of
 * SUBALLOCATOR_UNIT. 0; or POOL_LIMIT, or SHARE_ESYSTEM without memory, and then the segment is
 * gone. */
int pool_adopt_block(struct broker *b, struct segment *s, uint64_t offset, struct allocation *a);

/* Whether the segment's memory is gone with the agent or the client that made it: nobody gets it
 * any more. */
bool segment_is_lost(const struct segment *s);
/* Whether the client may have the segment, and its memory is there; any client may have memory that
 * was no client's own. The other one says why not: SHARE_EACCES, SHARE_ENOTSUP when the client's
 * library is too old, or SHARE_EOWNERDEAD. */
bool segment_is_for(const struct segment *s, const struct client *client);
int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure);

#endif
