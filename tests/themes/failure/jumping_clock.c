/* SPDX-License-Identifier: MIT */

/*
 * Preloaded into programs: from when a test says so in the environment, the time of day jumps each
 * time that somebody asks for it, ten years forth and ten years back. Other clocks are as they are,
 * and so is that of the program that runs the tests, whose time limits depend on it.
 */

#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define JUMP (10 * 365 * 24 * 3600L) /* seconds */

static _Thread_local unsigned asked; /* so that each thread sees it jump each time */

static long jump(void)
{
	if (!getenv("SHARE_TEST_CLOCK_JUMPS"))
		return 0;
	return asked++ % 2 ? -JUMP : JUMP;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
	long r = syscall(SYS_clock_gettime, clock, out);

	if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		out->tv_sec += jump();
	return (int)r;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out,
							void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
