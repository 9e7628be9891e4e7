/* SPDX-License-Identifier: MIT */

/*
 * What makes a share-broker one whose calls can fail: the plan, which the test changes while the
 * broker runs, the hooks of its libraries, and wrappers for what only the broker calls.
 */

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <event2/event.h>
#include <jansson.h>

#include "tests/harness/plan.h"
#include "tests/themes/failure/failing.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static void __attribute__((constructor)) follow_the_plan(void)
{
	struct failing_plan *plan = plan_open(FAILING_PLAN_VARIABLE, sizeof(*plan));

	if (!plan)
		return;
	failing_plan = plan;
	event_set_mem_functions(failing_malloc, failing_realloc, free);
	json_set_alloc_funcs(failing_malloc, free);
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(int, event_add, struct event *event, const struct timeval *limit)
{
	/* libevent needs nothing to set a timer to another time */
	if (event_pending(event, EV_TIMEOUT, NULL) &&
	    !(event_get_events(event) & (EV_READ | EV_WRITE)))
		return __real_event_add(event, limit);
	return failing_now(FAILING_EVENT) ? -1 : __real_event_add(event, limit);
}

WRAP(int, socketpair, int family, int type, int protocol, int *pair)
{
	return failing_now(FAILING_SOCKET) ? -1 : __real_socketpair(family, type, protocol, pair);
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *size)
{
	if (failing_now(level == SOL_SOCKET && name == SO_PEERPIDFD ? FAILING_PIDFD : FAILING_PEER))
		return -1;
	return __real_getsockopt(fd, level, name, value, size);
}

WRAP(int, recvmmsg, int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *limit)
{
	return failing_now(FAILING_RECVMSG) ? -1 : __real_recvmmsg(fd, m, n, flags, limit);
}

WRAP(int, ftruncate, int fd, off_t size)
{
	return failing_now(FAILING_RESIZE) ? -1 : __real_ftruncate(fd, size);
}

WRAP(int, fallocate, int fd, int mode, off_t offset, off_t size)
{
	return failing_now(FAILING_RESIZE) ? -1 : __real_fallocate(fd, mode, offset, size);
}

WRAP(int, posix_spawn, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
     const posix_spawnattr_t *attributes, char *const *argv, char *const *environment)
{
	if (failing_now(FAILING_SPAWN))
		return errno;
	return __real_posix_spawn(pid, path, actions, attributes, argv, environment);
}

/* These take more arguments when they need them. */

WRAP(int, fcntl, int fd, int command, ...)
{
	va_list args;
	long value;

	va_start(args, command);
	value = va_arg(args, long);
	va_end(args);
	if ((command == F_DUPFD_CLOEXEC && failing_now(FAILING_DUP)) ||
	    (command == F_ADD_SEALS && failing_now(FAILING_SEAL)))
		return -1;
	return __real_fcntl(fd, command, value);
}

WRAP(int, open, const char *path, int flags, ...)
{
	mode_t mode;
	va_list args;

	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return failing_now(FAILING_OPEN) ? -1 : __real_open(path, flags, mode);
}

WRAP(long, syscall, long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_pidfd_open && failing_now(FAILING_PIDFD))
		return -1;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
