/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "memory/kind.h"

struct broker;
struct device;

/* What a pool is to be made of, which follows from what was asked for and what there is. */
struct choice {
	const struct memory_kind *kind;
	struct device *device; /* NULL: host memory */
	char reason[512];      /* a sentence for people */
};

/* It is not known yet which devices there are: b->devices->waits is woken when it is. */
#define CHOICE_LATER 1

/*
 * Chooses what a pool is to be made of. @wanted is a kind or "auto", @device a UUID as text, or
 * NULL for any, and @flags are enum share_pool_flags. @limit is the pool's, which must have room
 * for a segment. 0, CHOICE_LATER, or a SHARE_E... number, and then @failure says why.
 */
int choose(struct broker *b, const char *wanted, const char *device, uint32_t flags, uint64_t limit,
	   struct choice *out, struct failure *failure);
