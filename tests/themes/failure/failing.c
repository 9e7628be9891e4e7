/* SPDX-License-Identifier: MIT */

/*
 * Wrappers. One plan at a time; the count is atomic, as the library has threads.
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

#include "tests/themes/failure/failing.h"

static struct failing_plan own;
struct failing_plan *failing_plan = &own;

void failing_set(enum failing what, unsigned long nth, int error, bool all_after)
{
	failing_plan_set(failing_plan, what, nth, error, all_after);
}

unsigned long failing_count(void)
{
	return failing_plan->count;
}

bool failing_now(enum failing what)
{
	struct failing_plan *p = failing_plan;
	unsigned long n;

	if (!(p->what & what))
		return false;
	n = ++p->count;
	if (n != p->nth && !(p->all_after && p->nth && n > p->nth))
		return false;
	errno = p->error;
	return true;
}

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

WRAP(void *, malloc, size_t size)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t n, size_t size)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_calloc(n, size);
}

WRAP(void *, realloc, void *old, size_t size)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_realloc(old, size);
}

WRAP(void *, reallocarray, void *old, size_t n, size_t size)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_reallocarray(old, n, size);
}

WRAP(char *, strdup, const char *text)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_strdup(text);
}

WRAP(char *, strndup, const char *text, size_t n)
{
	return failing_now(FAILING_MEMORY) ? NULL : __real_strndup(text, n);
}

WRAP(int, posix_memalign, void **out, size_t alignment, size_t size)
{
	return failing_now(FAILING_MEMORY) ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

WRAP(void *, mmap, void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	return failing_now(FAILING_MMAP)
		   ? MAP_FAILED
		   : __real_mmap(address, size, protection, flags, fd, offset);
}

WRAP(ssize_t, send, int fd, const void *data, size_t size, int flags)
{
	return failing_now(FAILING_SEND) ? -1 : __real_send(fd, data, size, flags);
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *m, int flags)
{
	return failing_now(FAILING_SEND) ? -1 : __real_sendmsg(fd, m, flags);
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	return failing_now(FAILING_RECVMSG) ? -1 : __real_recvmsg(fd, m, flags);
}

WRAP(int, socket, int family, int type, int protocol)
{
	return failing_now(FAILING_SOCKET) ? -1 : __real_socket(family, type, protocol);
}

WRAP(int, epoll_create1, int flags)
{
	return failing_now(FAILING_EPOLL) ? -1 : __real_epoll_create1(flags);
}

WRAP(int, epoll_ctl, int epoll, int operation, int fd, struct epoll_event *event)
{
	/* what changes takes no memory */
	if (operation == EPOLL_CTL_ADD && failing_now(FAILING_EPOLL))
		return -1;
	return __real_epoll_ctl(epoll, operation, fd, event);
}

WRAP(int, eventfd, unsigned int value, int flags)
{
	return failing_now(FAILING_EVENTFD) ? -1 : __real_eventfd(value, flags);
}

WRAP(int, fstat, int fd, struct stat *st)
{
	return failing_now(FAILING_FSTAT) ? -1 : __real_fstat(fd, st);
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*function)(void *), void *data)
{
	return failing_now(FAILING_THREAD)
		   ? EAGAIN
		   : __real_pthread_create(thread, attributes, function, data);
}

WRAP(int, memfd_create, const char *name, unsigned int flags)
{
	return failing_now(FAILING_MEMFD) ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	return failing_now(FAILING_ACCEPT) ? -1 : __real_accept4(fd, address, size, flags);
}

void *failing_malloc(size_t size)
{
	return __wrap_malloc(size);
}

void *failing_realloc(void *old, size_t size)
{
	return __wrap_realloc(old, size);
}
