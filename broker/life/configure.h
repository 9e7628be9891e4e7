/* SPDX-License-Identifier: MIT */
#pragma once

#include "broker/config/change.h"

struct broker;

/* Makes of the configuration what it says, when the broker starts and when it has read its file
 * again. */

/* Makes the pools of the configuration. 0 or -ENOMEM. */
int configure_pools(struct broker *b);

/*
 * Changes the broker to what @file says, as far as that can change. What does and what does not is
 * appended to @out, which is the caller's to clear. 0, or -ENOMEM and nothing has changed. Consumes
 * @file.
 */
int configure_again(struct broker *b, struct config *file, struct config_changes *out);

/* Writes the text of a configuration to a memfd, which is the caller's; of a configuration without
 * a file it is empty. Returns the memfd or negative errno. */
int configuration_write(const struct config *c);
/* Loads the configuration that was in force in the broker before, as config_load() does. That
 * broker had read it from @path. */
int configuration_kept(const char *path, struct config **out, char *error, size_t error_size);
