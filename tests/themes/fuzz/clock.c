/* SPDX-License-Identifier: MIT */

/*
 * A clock that can be put forward, so that time limits are part of an input and take no time. It
 * takes the place of the C library's function, for libevent as well; the fuzzer itself sees the
 * real time again, as the clock is put right after each input.
 */

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/themes/fuzz/fuzz.h"

static _Atomic int64_t ahead_ms;

void clock_advance(int64_t ms)
{
	atomic_fetch_add(&ahead_ms, ms);
}

void clock_reset(void)
{
	atomic_store(&ahead_ms, 0);
}

int lowest_free_descriptor(void)
{
	int fd = fcntl(STDERR_FILENO, F_DUPFD, 0);

	close(fd);
	return fd;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *out)
{
	int r = (int)syscall(SYS_clock_gettime, id, out);

	if (r == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)) {
		int64_t ns = out->tv_nsec + atomic_load(&ahead_ms) % 1000 * 1000000;

		out->tv_sec += (time_t)(atomic_load(&ahead_ms) / 1000 + ns / 1000000000);
		out->tv_nsec = (long)(ns % 1000000000);
	}
	return r;
}
