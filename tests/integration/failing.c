/* SPDX-License-Identifier: MIT */

/*
 * Wrappers. Only one kind fails at a time; the count is atomic, as the library has threads.
 */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/integration/failing.h"

static enum failing failing;
static unsigned long fails_at;
static int fails_with;
static bool fails_on;
static atomic_ulong count;

void failing_set(enum failing what, unsigned long nth, int error, bool all_after)
{
	failing = FAILING_NOTHING;
	count = 0;
	fails_at = nth;
	fails_with = error;
	fails_on = all_after;
	failing = what;
}

unsigned long failing_count(void)
{
	return count;
}

static bool fails(enum failing what)
{
	unsigned long n;

	if (failing != what)
		return false;
	n = ++count;
	if (n != fails_at && !(fails_on && fails_at && n > fails_at))
		return false;
	errno = fails_with;
	return true;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t size)
{
	return fails(FAILING_MEMORY) ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t n, size_t size)
{
	return fails(FAILING_MEMORY) ? NULL : __real_calloc(n, size);
}

WRAP(void *, realloc, void *old, size_t size)
{
	return fails(FAILING_MEMORY) ? NULL : __real_realloc(old, size);
}

WRAP(void *, reallocarray, void *old, size_t n, size_t size)
{
	return fails(FAILING_MEMORY) ? NULL : __real_reallocarray(old, n, size);
}

WRAP(char *, strdup, const char *text)
{
	return fails(FAILING_MEMORY) ? NULL : __real_strdup(text);
}

WRAP(char *, strndup, const char *text, size_t n)
{
	return fails(FAILING_MEMORY) ? NULL : __real_strndup(text, n);
}

WRAP(int, posix_memalign, void **out, size_t alignment, size_t size)
{
	return fails(FAILING_MEMORY) ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

WRAP(void *, mmap, void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	return fails(FAILING_MMAP) ? MAP_FAILED
				   : __real_mmap(address, size, protection, flags, fd, offset);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *m, int flags)
{
	return fails(FAILING_SENDMSG) ? -1 : __real_sendmsg(fd, m, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	return fails(FAILING_RECVMSG) ? -1 : __real_recvmsg(fd, m, flags);
}

WRAP(int, socket, int family, int type, int protocol)
{
	return fails(FAILING_SOCKET) ? -1 : __real_socket(family, type, protocol);
}

WRAP(int, epoll_create1, int flags)
{
	return fails(FAILING_EPOLL) ? -1 : __real_epoll_create1(flags);
}

WRAP(int, epoll_ctl, int epoll, int operation, int fd, struct epoll_event *event)
{
	return fails(FAILING_EPOLL) ? -1 : __real_epoll_ctl(epoll, operation, fd, event);
}

WRAP(int, eventfd, unsigned int value, int flags)
{
	return fails(FAILING_EVENTFD) ? -1 : __real_eventfd(value, flags);
}

WRAP(int, fstat, int fd, struct stat *st)
{
	return fails(FAILING_FSTAT) ? -1 : __real_fstat(fd, st);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*function)(void *), void *data)
{
	return fails(FAILING_THREAD) ? EAGAIN
				     : __real_pthread_create(thread, attributes, function, data);
}

WRAP(int, memfd_create, const char *name, unsigned int flags)
{
	return fails(FAILING_MEMFD) ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	return fails(FAILING_ACCEPT) ? -1 : __real_accept4(fd, address, size, flags);
}

void *failing_malloc(size_t size)
{
	return __wrap_malloc(size);
}

void *failing_realloc(void *old, size_t size)
{
	return __wrap_realloc(old, size);
}
