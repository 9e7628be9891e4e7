/* SPDX-License-Identifier: MIT */
#ifndef WIRE_FD_H
#define WIRE_FD_H

#include <stddef.h>

#include "wire/wire.h"

/* Descriptors with an owner. -1 is no descriptor; closing it does nothing. */

/* Closes and returns -1, so that `fd = fd_close(fd)` cannot be done twice. Keeps errno. */
int fd_close(int fd);

/* A copy that is close-on-exec, or negative errno. */
int fd_dup(int fd);

void fd_cleanup(int *fd);
#define _cleanup_fd_ __attribute__((cleanup(fd_cleanup)))

/* What came with a packet. Whoever takes one owns it; the rest is closed with the list. */
struct fd_list {
	int fds[WIRE_FDS_MAX];
	size_t n;
};

/* The @i-th descriptor, now the caller's; -1 when there is none (any more). */
int fd_list_take(struct fd_list *list, size_t i);
void fd_list_close(struct fd_list *list);
#define _cleanup_fd_list_ __attribute__((cleanup(fd_list_close)))

#endif
