/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Files that are opened for reading by a name from outside. Somebody may have put there what no
 * file is: to open a FIFO is to wait for a writer that may never come, and to open a device may do
 * something. A pipe that a shell has made and handed on, as by <(...), is as good as a file.
 */

/* Returns a descriptor, or a negative errno: -EISDIR for a folder, -EINVAL for anything else that
 * is no file. Never waits. */
int file_open(const char *path);

/* Returns what a negative errno of file_open() means. */
const char *file_error(int error);
