/* SPDX-License-Identifier: MIT */
#pragma once

#define NOTHING_RAN 77 /* exit code: this machine cannot run the benchmark */

/* Runs another share-bench (@other: its path) and this one @turns times each, one after the other,
 * with the arguments @rest, and prints the medians of what both measure, and of the ratios to the
 * floors. "change" is this one's value by the other's. Ends the program when a run fails. */
void compare(const char *other, unsigned turns, const char *rest);
