/* SPDX-License-Identifier: MIT */

/* Descriptors that have one owner and are closed exactly once, on every path. */

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/system/descriptor.h"

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
