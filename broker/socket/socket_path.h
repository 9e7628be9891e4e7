/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Where the broker serves, and whether a socket can be made there. */

/* The socket's path if none was given: for root it is where all users look, for other users where
 * they themselves look. 0, or negative errno with a sentence in @error. */
int socket_path_default(char *out, size_t size, char *error, size_t error_size);

/*
 * Checks that this user can make a socket at @path. Its directory may be missing if it can be made;
 * with @make it is made, and with @common all users can enter it. 0, or negative errno with a
 * sentence that begins with the path and says what to do.
 */
int socket_path_check(const char *path, bool make, bool common, char *error, size_t error_size);
