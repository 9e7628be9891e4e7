/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "broker/accounts/account.h"

struct broker;
struct closing;
struct memory_segment;
struct pool;

/* What whoever has made its pool, or has brought its memory, pays before there is a segment. */
struct segment_cost {
	struct charge segment, descriptors;
	uint32_t n_nobodys; /* descriptors, if the configuration has the pool */
};

/* Charges what a segment costs. Whoever has made the pool pays, or @account, which has @brought the
 * memory; both are NULL for all other memory. 0, or SHARE_EQUOTA with a sentence (with @failure
 * NULL there is none, and none in the log either): a limit is reached, or the descriptors for what
 * is nobody's are used up. */
int segment_cost_take(struct pool *pool, struct account *account,
		      const struct memory_segment *brought, struct segment_cost *out,
		      struct failure *failure);
void segment_cost_return(struct broker *b, struct segment_cost *cost);
/* Makes what it takes to close the descriptors of memory that a client had already. 0 or
 * -ENOMEM. */
int segment_closing_new(struct broker *b, uid_t owner, struct closing *out[static 2]);
/* Returns what the descriptors cost: a segment that is retired has none any more. */
void segment_return_descriptors(struct broker *b, struct segment_cost *cost);
