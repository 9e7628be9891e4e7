/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Gives up what the broker does not need, for this process and what it starts: it has no
 * capabilities and cannot get any, no other process of its user can look into it, and it may make
 * only the system calls that it needs. Called before there is a second thread. Returns 0, or a
 * negative errno with what could not be done in @what; the rest is done then.
 */
int confine(const char **what);
