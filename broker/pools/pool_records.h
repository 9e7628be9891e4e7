/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/* What the journal has of pools, and how all of memory is restored. */
struct block;
struct block_use;
struct broker;
struct fence_set;
struct pool;

/* Whoever changes a pool notes it. */
void pool_note(struct pool *p);
/* Restores pools, segments and what clients have of them, in a broker that comes after another one.
 * 0 or negative errno. */
int memory_restore(struct broker *b);
/* Called when all is restored: has the pools go on with what the dead broker had not finished, and
 * return empty segments, for which nobody waits any more. */
void pools_restored(struct broker *b);
/* Makes the buffer that lies in a block, as its record says. 0 or negative errno. */
typedef int restore_buffer(struct broker *b, struct block *block, const struct block_use *use,
			   struct fence_set *pending, uint32_t payer);
int blocks_restore(struct broker *b, restore_buffer *buffer);
