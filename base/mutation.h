/* SPDX-License-Identifier: MIT */
#ifndef BASE_MUTATION_H
#define BASE_MUTATION_H

/*
 * Places where a rule can be broken on purpose, to see that the tests notice (docs/testing.md). In
 * what is installed, and in every other test, MUTATION() is plainly false; tests/themes/checker
 * builds a broker and a library of its own in which $SHARE_MUTATION names the one that is on.
 */

#include <stdbool.h>

#ifdef SHARE_MUTATIONS

#include <stdlib.h>
#include <string.h>

static inline bool mutation_is_on(const char *name)
{
	const char *on = getenv("SHARE_MUTATION");

	return on && strcmp(on, name) == 0;
}
#define MUTATION(name) mutation_is_on(#name)

#else

#define MUTATION(name) false

#endif

#endif
