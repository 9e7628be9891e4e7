/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_CONFINE_H
#define BROKER_LIFE_CONFINE_H

/*
 * From now on this process, and what it starts, has no capabilities and cannot get any, is not to
 * be looked into by others of its user, and has only the system calls that it needs. Returns 0, or
 * a negative errno with what could not be done in @what (the rest is done). Before there is a
 * second thread.
 */
int confine(const char **what);

#endif
