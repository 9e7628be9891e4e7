/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * What users share: nobody gets more of it than it leaves to others. As anybody may come, that is
 * as much as it has itself. So one user has half of all at most, of two greedy ones each has a
 * third, and whoever comes finds as many as each of those before has.
 *
 * Where it is known who wants some of it, an eighth is enough to leave; and whoever has no more
 * than one of as many parts as there are such users may have what is left for that. So nobody takes
 * the last of everything, however fast it is; a user that nobody else wants anything beside has all
 * of it.
 */
struct fair_share {
	uint64_t total, used;
	uint32_t users; /* those who want some of it; 0: it is not known who does, */
	uint64_t least; /* and each user may have this, though nothing is left */
};

#define FAIR_SHARE_RESERVE(total) ((total) / 8)

/* Returns the most that a user may have who has @mine, which is part of what is used. */
uint64_t fair_share_most(const struct fair_share *s, uint64_t mine);
