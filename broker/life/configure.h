/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_CONFIGURE_H
#define BROKER_LIFE_CONFIGURE_H

#include "broker/config/change.h"

struct broker;

/* From the configuration to what it is about: when the broker starts, and when it has read its file
 * again. */

/* Makes the pools of the configuration. 0 or -ENOMEM. */
int configure_pools(struct broker *b);

/*
 * From now on it is as @file says, as far as that can change; what does and what does not is
 * appended to @out, which is the caller's to clear. 0, or -ENOMEM and nothing has changed. Consumes
 * @file.
 */
int configure_again(struct broker *b, struct config *file, struct config_changes *out);

/* The text of a configuration, in a memfd that is the caller's; without a file it is empty.
 * Negative errno. */
int configuration_write(const struct config *c);
/* The one in force of the broker before, as config_load(): it was read from @path then. */
int configuration_kept(const char *path, struct config **out, char *error, size_t error_size);

#endif
