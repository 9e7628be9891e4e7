/* SPDX-License-Identifier: MIT */

/* Points in time, and how much of a time limit is left. All other files ask this one, so that all
 * of them use the same clock. */

#include "base/clock.h"

static struct timespec now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t;
}

static uint64_t in_ms(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t clock_ms(void)
{
	return in_ms(now(CLOCK_MONOTONIC));
}

uint64_t clock_ns(void)
{
	struct timespec t = now(CLOCK_MONOTONIC);

	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int64_t clock_coarse_ms(void)
{
	return (int64_t)in_ms(now(CLOCK_MONOTONIC_COARSE));
}

struct timespec clock_after_ms(int ms)
{
	struct timespec t = now(CLOCK_MONOTONIC);

	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

int64_t deadline_from(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : (int64_t)clock_ms() + timeout_ms;
}

int deadline_left(int64_t deadline)
{
	int64_t left;

	if (deadline < 0)
		return -1;
	left = deadline - (int64_t)clock_ms();
	return left < 0 ? 0 : (int)left;
}
