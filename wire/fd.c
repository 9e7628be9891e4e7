/* SPDX-License-Identifier: MIT */

/* Owned descriptors: closed exactly once, on every path. */

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "wire/fd.h"

int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

int fd_dup(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 ? -errno : copy;
}

void fd_cleanup(int *fd)
{
	*fd = fd_close(*fd);
}

int fd_list_take(struct fd_list *list, size_t i)
{
	int fd;

	if (i >= list->n)
		return -1;
	fd = list->fds[i];
	list->fds[i] = -1;
	return fd;
}

void fd_list_close(struct fd_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		list->fds[i] = fd_close(list->fds[i]);
	list->n = 0;
}
