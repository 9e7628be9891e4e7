/* SPDX-License-Identifier: MIT */
#ifndef BROKER_DEVICE_CHOICE_H
#define BROKER_DEVICE_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "memory/kind.h"

struct broker;
struct device;

/* What a pool is to be made of, decided from what was asked and what there is. */
struct choice {
	const struct memory_kind *kind;
	struct device *device; /* NULL: host memory */
	char reason[512];      /* a sentence for people */
};

/* It is not known yet which devices there are: b->devices->waits is woken when it is. */
#define CHOICE_LATER 1

/*
 * @wanted: a kind or "auto". @device: UUID as text, NULL for any. @flags: enum share_pool_flags.
 * @limit: of the pool, which must have room for a segment.
 * 0, CHOICE_LATER, or a SHARE_E... number, and then @failure says why.
 */
int choose(struct broker *b, const char *wanted, const char *device, uint32_t flags, uint64_t limit,
	   struct choice *out, struct failure *failure);

#endif
