/* SPDX-License-Identifier: MIT */

/* What is looked at before it is opened has to be the same that is opened then, so both are done by
 * one descriptor, which cannot be read from (O_PATH). */

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/system/descriptor.h"
#include "base/system/file.h"

static bool is_unnamed_pipe(int fd, const struct stat *st)
{
	struct statfs fs;

	return S_ISFIFO(st->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
}

int file_open(const char *path)
{
	_cleanup_fd_ int found = open(path, O_PATH | O_CLOEXEC);
	char by_number[32];
	struct stat st;
	int fd;

	if (found < 0 || fstat(found, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) && !is_unnamed_pipe(found, &st))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	snprintf(by_number, sizeof(by_number), "/proc/self/fd/%d", found);
	fd = open(by_number, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

const char *file_error(int error)
{
	return error == -EINVAL ? "this is no file" : strerror(-error);
}
