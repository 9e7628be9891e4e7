/* SPDX-License-Identifier: MIT */
#ifndef BASE_DESCRIPTOR_H
#define BASE_DESCRIPTOR_H

/* Descriptors with an owner. -1 is no descriptor; closing it does nothing. */

/* Closes and returns -1, so that `fd = fd_close(fd)` cannot be done twice. Keeps errno. */
int fd_close(int fd);

/* A copy that is close-on-exec, or negative errno. */
int fd_dup(int fd);

void fd_cleanup(int *fd);
#define _cleanup_fd_ __attribute__((cleanup(fd_cleanup)))

#endif
