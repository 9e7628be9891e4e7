/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Mutations: places where a rule can be broken on purpose, to see whether a test notices
 * (docs/testing.md). In installed programs and in all other tests MUTATION() is false at compile
 * time; tests/themes/checker/mutants builds a broker and a library of its own, in which
 * $SHARE_MUTATION names the one mutation that is on.
 */

#include <stdbool.h>

#ifdef SHARE_MUTATIONS

#include <string.h>

/* the one that is on, as it was when the program was loaded; none: NULL */
extern const char *mutation_on;

static inline bool mutation_is_on(const char *name)
{
	return mutation_on && strcmp(mutation_on, name) == 0;
}
#define MUTATION(name) mutation_is_on(#name)

#else

#define MUTATION(name) false

#endif
