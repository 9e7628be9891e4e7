/* SPDX-License-Identifier: MIT */
#ifndef TESTS_INTEGRATION_SCENARIO_H
#define TESTS_INTEGRATION_SCENARIO_H

/*
 * A bit of everything that the library can do, by one process with one connection, for tests in
 * which something fails: every step goes on from what the steps before have brought, and all is
 * given up in the end. Returns how many calls failed. Ends the test when one failed in a way that
 * is not clean: with an error that says something else, or with an output written all the same.
 */
int scenario_run(const char *address);

#endif
