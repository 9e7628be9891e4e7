/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A bit of everything that the library can do, by one process with one connection, for tests in
 * which something fails: every step goes on from what the steps before have brought, and all is
 * given up in the end. Returns how many calls failed. Ends the test when one failed in a way that
 * is not clean: with an error that says something else, or with an output written all the same.
 */
int scenario_run(const char *address);

/* The same of what takes several processes, on the harness's broker: */
/* one of them is killed, in the middle of everything; */
int scenario_death(void);
/* one hangs up and lives; */
int scenario_hang_up(void);
/* an operator looks, and limits are reached; */
int scenario_operator(void);
/* the configuration is read again: @base is what it is before and after, the other one has a pool
 * "extra" as well. The file must be writable, and who does it an administrator. */
void scenario_reload_with(const char *base, const char *other);
int scenario_reload(void);
/* memory of the pool "test", which scrubs, passes from one user to another, and events of a device
 * are used. Root only. */
int scenario_devices(void);

/* From now on nothing fails in this process, but in the broker: with this errno. */
void scenario_fails_elsewhere(int error);

/* In the last scenario of this process (and not its children): how many calls said that the
 * connection has ended. */
int scenario_disconnects(void);
