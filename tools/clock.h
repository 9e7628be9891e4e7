/* SPDX-License-Identifier: MIT */
#pragma once

#include <time.h>

/* Since some moment, on a clock that nobody sets. */
static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
