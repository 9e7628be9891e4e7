/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* Pools of kind adopted. Their segments are memory that clients had before, with one buffer in
 * each. The segment of a device's memory is the whole allocation in which the buffer lies.
 * One of kind legacy is lost when the process that made it ends; or has no connection any more that
 * has it, as it may free it then. */

struct account;
struct allocation;
struct broker;
struct failure;
struct memory_segment;
struct pool;
struct segment;

/* Makes a segment of @memory, whose descriptors are taken over on success; @account pays for them.
 * 0, or a SHARE_E... number with a sentence. */
int pool_adopt(struct broker *b, struct pool *p, struct account *account,
	       const struct memory_segment *memory, struct segment **out, struct failure *failure);
/* Takes the segment's only block ever, which is charged; the offset is a multiple of
 * SUBALLOCATOR_UNIT. 0; or POOL_LIMIT, or SHARE_ESYSTEM without memory, and then the segment is
 * gone. */
int pool_adopt_block(struct broker *b, struct segment *s, uint64_t offset, struct allocation *a);
