/* SPDX-License-Identifier: MIT */

/*
 * The keeper that is beside odd-broker's module. It gets no pidfd of its rehearsals: of the
 * processes that it forks, these are every second one, when each upgrade is rehearsed.
 */

#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	static int forked;
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_pidfd_open && a[0] != getpid() && forked++ % 2 == 1) {
		errno = EMFILE;
		return -1;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
