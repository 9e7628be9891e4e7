/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * How much memory of the first device is free. The driver tells it only in a context, which the
 * agent of a device often lacks: then a report has no figure. So a process with a context looks. It
 * has to be started before this process has used the driver.
 */
void free_memory_start(void);
void free_memory_stop(void);

/* Bytes, now. */
uint64_t free_memory(void);
