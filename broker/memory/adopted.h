/* SPDX-License-Identifier: MIT */
#ifndef BROKER_MEMORY_ADOPTED_H
#define BROKER_MEMORY_ADOPTED_H

#include <stdbool.h>

/* Pools of kind adopted: their segments are memory that clients had before, one buffer in each. */

struct account;
struct block;
struct broker;
struct client;
struct failure;
struct memory_segment;
struct pool;
struct segment;

bool pool_is_adopted(const struct pool *p);

/* A block that is all of @memory, whose descriptors are taken over on success; @account pays for
 * them. 0, or a SHARE_E... number with a sentence. */
int pool_adopt(struct broker *b, struct pool *p, struct account *account,
	       const struct memory_segment *memory, struct block **out, struct failure *failure);

/* Whether the client may have the segment; any may have what is no client's own. And why not:
 * SHARE_EACCES, or SHARE_ENOTSUP of one that is too old. */
bool segment_is_for(const struct segment *s, const struct client *client);
int segment_refuse(const struct segment *s, const struct client *client, struct failure *failure);

#endif
