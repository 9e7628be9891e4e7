/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_ADOPTED_H
#define BROKER_MEMORY_ADOPTED_H

#include <stdbool.h>
#include <stdint.h>

/* Pools of kind adopted: their segments are memory that clients had before, one buffer in each. The
 * segment of a device's memory is the allocation in which the buffer lies. */

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
/* What it is to who maps it: of its pool's kind, or, of a device's memory that was adopted, of the
 * kind that is reached as it is. */
const struct memory_kind *kind_of_segment(const struct segment *s);

/* A segment of @memory, whose descriptors are taken over on success; @account pays for
 * them. 0, or a SHARE_E... number with a sentence. */
int pool_adopt(struct broker *b, struct pool *p, struct account *account,
	       const struct memory_segment *memory, struct segment **out, struct failure *failure);
/* Bytes of the segments that are there for it. */
uint64_t pool_adopted_by(const struct pool *p, const struct account *account);
/* Its only block ever, which is paid for; the offset is a multiple of SUBALLOCATOR_UNIT. 0,
 * POOL_LIMIT, or SHARE_ESYSTEM without memory: then the segment is gone. */
int pool_adopt_block(struct broker *b, struct segment *s, uint64_t offset, struct allocation *a);

/* Whether the client may have the segment; any may have what is no client's own. And why not:
 * SHARE_EACCES, or SHARE_ENOTSUP of one that is too old. */
bool segment_is_for(const struct segment *s, const struct client *client);
int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure);

#endif
