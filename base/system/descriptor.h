/* SPDX-License-Identifier: MIT */
#pragma once

/* Descriptors that have an owner. -1 stands for no descriptor, and closing it does nothing. */

/* Closes @fd and returns -1, so that `fd = fd_close(fd)` never closes a descriptor twice. Keeps
 * errno. */
int fd_close(int fd);

/* Returns a copy of @fd that is close-on-exec, or a negative errno. */
int fd_dup(int fd);

/* @fd is that of a timer (timerfd_create()). It polls readable in @ms milliseconds, and from then
 * on until this is called again; 0: at once; -1: not at all. */
void fd_readable_in(int fd, int ms);

/* Closes the descriptor of a variable that is declared with _cleanup_fd_ when its scope ends. */
void fd_cleanup(int *fd);
#define _cleanup_fd_ __attribute__((cleanup(fd_cleanup)))
