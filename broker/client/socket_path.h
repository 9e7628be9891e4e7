/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CLIENT_SOCKET_PATH_H
#define BROKER_CLIENT_SOCKET_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Where the broker serves, and whether a socket can be made there. */

/* Where it is when nobody says: for root where all users look, for others where they themselves
 * do. 0, or negative errno with a sentence. */
int socket_path_default(char *out, size_t size, char *error, size_t error_size);

/*
 * That this user can make a socket at @path. Its directory may be missing if it can be made, which
 * is done if @make; @common: all users can enter what is made. 0, or negative errno with a sentence
 * that begins with the path and says what to do.
 */
int socket_path_check(const char *path, bool make, bool common, char *error, size_t error_size);

#endif
