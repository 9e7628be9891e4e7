/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <time.h>

/* The one clock by which this project waits is CLOCK_MONOTONIC, because nobody can set it. */
uint64_t clock_ms(void);
uint64_t clock_ns(void);

/* The time of clock_ms() at the kernel's last tick, which is some milliseconds ago. Asking costs a
 * fraction of clock_ms(); it is for callers that ask often and need no exact answer. The result is
 * signed, as a deadline is, because callers subtract it from points in time that may be later or
 * earlier. */
int64_t clock_coarse_ms(void);

/* Returns the point in time @ms from now, as pthread_cond_clockwait() and futexes take it. */
struct timespec clock_after_ms(int ms);

/*
 * A deadline is a point in time in milliseconds of clock_ms(), or -1 for none. A function that
 * takes a time limit makes a deadline of it once, and asks before each step that may block how much
 * is left. A time limit of -1 means none; then deadline_left() is -1. Otherwise it is never less
 * than 0.
 */
int64_t deadline_from(int timeout_ms);
int deadline_left(int64_t deadline);
