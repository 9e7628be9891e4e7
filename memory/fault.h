/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_FAULT_H
#define MEMORY_FAULT_H

#include "memory/kind.h"

/* Wording faults, inside this room. Each fills @fault with what is not fatal, and returns the
 * SHARE_E... number. */

int memory_fail(struct memory_fault *fault, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "@what: No space left on device", for an errno. */
int memory_fail_system(struct memory_fault *fault, const char *what, int number);

#endif
