/* SPDX-License-Identifier: MIT */

/*
 * Sets of fences. Most have a few fences at most, for which a set has room of its own, so that
 * adding one takes memory only where many processes use the same block.
 */

#include <stdlib.h>
#include <string.h>

#include "libshare/order/inside.h"

#define FEW (sizeof((struct fences){0}.few) / sizeof(struct held_fence))

static bool make_room(struct fences *set)
{
	struct held_fence *grown;

	if (set->all && set->all != set->few) {
		grown = realloc(set->all, (set->n + 1) * sizeof(*grown));
	} else if (set->n < FEW) {
		grown = set->few;
	} else {
		grown = malloc((set->n + 1) * sizeof(*grown));
		if (grown)
			memcpy(grown, set->few, sizeof(set->few));
	}
	if (grown)
		set->all = grown;
	return grown;
}

static struct held_fence *find_timeline(struct fences *set, const struct held_fence *f)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->all[i].page == f->page && set->all[i].slot == f->slot)
			return &set->all[i];
	return NULL;
}

bool fences_add(struct fences *set, struct held_fence *f)
{
	struct held_fence *same = find_timeline(set, f);

	if (same) {
		if ((int64_t)(f->value - same->value) > 0)
			same->value = f->value;
		fence_drop(f);
		return true;
	}
	if (!make_room(set))
		return false;
	set->all[set->n++] = *f;
	return true;
}

void fences_drop_at(struct fences *set, size_t i)
{
	fence_drop(&set->all[i]);
	set->all[i] = set->all[--set->n];
}

void fences_deinit(struct fences *set)
{
	for (size_t i = 0; i < set->n; i++)
		fence_drop(&set->all[i]);
	if (set->all != set->few)
		free(set->all);
	set->all = NULL;
	set->n = 0;
}
