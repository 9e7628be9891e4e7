/* SPDX-License-Identifier: MIT */

/* Descriptors that have one owner and are closed exactly once, on every path. */

#include <errno.h>
#include <fcntl.h>
#include <sys/timerfd.h>
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

void fd_readable_in(int fd, int ms)
{
	/* a timer that is set to 0 does not run, so "at once" is one nanosecond */
	struct itimerspec when = {.it_value.tv_sec = ms > 0 ? ms / 1000 : 0,
				  .it_value.tv_nsec = ms > 0 ? ms % 1000 * 1000000L : ms + 1};

	if (fd >= 0)
		timerfd_settime(fd, 0, &when, NULL);
}

void fd_cleanup(int *fd)
{
	*fd = fd_close(*fd);
}
