/* SPDX-License-Identifier: MIT */
#ifndef LIBSHARE_ORDER_FENCES_H
#define LIBSHARE_ORDER_FENCES_H

#include "libshare/order/timeline.h"

/* A set of fences, each of them held, that somebody waits for together. All zeros is an empty set.
 */
struct fences {
	struct held_fence few[8];
	struct held_fence *all; /* NULL while the set has never had a fence; else `few`, or more */
	size_t n;
};

/* Takes @f over. Of two fences of one timeline the set has only the later one, which stands for
 * both. False: there is no memory, and @f is still the caller's. */
bool fences_add(share_client *c, struct fences *set, struct held_fence *f);

/* Drops the fence at this place, which the last one of the set takes. */
void fences_drop_at(share_client *c, struct fences *set, size_t i);

/* Drops all of them: the set is empty. */
void fences_done(share_client *c, struct fences *set);

#endif
