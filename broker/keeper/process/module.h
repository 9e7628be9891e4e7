/* SPDX-License-Identifier: MIT */
#pragma once

#include "broker/keeper/keeper.h"

/* Opens the file of a broker's program that is at @path now. Returns a descriptor, or negative
 * errno. */
int module_open(const char *path);
/* Loads the program from @fd, in a process that has loaded none yet. @path is where the file was
 * opened; there may be another file by now. Returns NULL if it cannot, and says why on stderr. */
keeper_main *module_load(int fd, const char *path);
