/* SPDX-License-Identifier: MIT */

/*
 * What makes a share-broker one on a kernel before Linux 6.16, which cannot refuse descriptors on a
 * socket: the option is not known.
 */

#include <errno.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

static int is_unknown(int level, int name)
{
	if (level != SOL_SOCKET || name != SO_PASSRIGHTS)
		return 0;
	errno = ENOPROTOOPT;
	return 1;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	return is_unknown(level, name) ? -1 : __real_getsockopt(fd, level, name, value, size);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	return is_unknown(level, name) ? -1 : __real_setsockopt(fd, level, name, value, size);
}
