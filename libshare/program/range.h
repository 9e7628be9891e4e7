/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Ranges: the calls that a profiler draws on the time line of a thread, in the domain "libshare" of
 * NVTX (docs/operating.md). Without a profiler each is a load and a branch, and nothing is loaded;
 * without NVTX's headers there are none.
 */

/* From here to the end of the block. @payload: bytes or a count; 0: none. */
#define RANGE(name, payload)                                               \
	__attribute__((cleanup(range_end), unused)) const bool in_range_ = \
	    __builtin_expect(ranges_are_drawn, false) && range_begin(name, payload)

/* Set before main(). */
extern bool ranges_are_drawn;

bool range_begin(const char *name, uint64_t payload); /* true */
void range_pop(void);

static inline void range_end(const bool *began)
{
	if (__builtin_expect(*began, false))
		range_pop();
}
