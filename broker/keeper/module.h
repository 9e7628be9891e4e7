/* SPDX-License-Identifier: MIT */
#ifndef BROKER_KEEPER_MODULE_H
#define BROKER_KEEPER_MODULE_H

#include "broker/keeper/keeper.h"

/* The file of a broker's program, as it is at @path now. A descriptor, or negative errno. */
int module_open(const char *path);
/* Loads it, in a process that has none yet; NULL, and says why on stderr. @path: where it was
 * opened, which may have another file by now. */
keeper_main *module_load(int fd, const char *path);

#endif
