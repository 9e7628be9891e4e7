/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

/* Look a user or a group up by name, which may take long: the system's database may be a network
 * away. 0, ENOENT if there is none, or another positive errno. */
int id_of_user(const char *name, id_t *out);
int id_of_group(const char *name, id_t *out);
