/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <share/share.h>

/* How to reach published buffers without libshare. */

/*
 * Calls @each, which returns 0 or a positive errno, with a JSON object for each of @names. The
 * failure of a name is printed to stderr and counted in @failed, and the other names are told all
 * the same. Returns 0, what @each has returned, or a positive errno.
 */
int recipes_each(share_client *client, const char *const *names, size_t n,
		 int (*each)(const char *json, void *data), void *data, int *failed);

/* Prints such an object for people: the name, and a line for each member. Returns 0 or a negative
 * errno. */
int recipe_print(const char *json, bool exact);
