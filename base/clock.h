/* SPDX-License-Identifier: MIT */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The one clock by which this project waits: CLOCK_MONOTONIC, which nobody sets. */
uint64_t clock_ms(void);
uint64_t clock_ns(void);

/* The same as clock_ms(), but as of the kernel's last tick, some milliseconds ago. It costs a
 * fraction of that, and is for who asks often and needs no more. It is signed, as a deadline is,
 * since it is subtracted from points in time that may be the later ones. */
int64_t clock_coarse_ms(void);

/* The point in time that is @ms from now, as pthread_cond_clockwait() and futexes take it. */
struct timespec clock_after_ms(int ms);

/*
 * A deadline is a point in time in milliseconds of clock_ms(), or -1 for none. It is made of a
 * time limit once, and what is left of it is asked for before each step that may block. A time
 * limit of -1 means none; deadline_left() then is -1, too, and never less than 0 otherwise.
 */
int64_t deadline_from(int timeout_ms);
int deadline_left(int64_t deadline);

#endif
