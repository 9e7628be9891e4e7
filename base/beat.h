/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

/*
 * A number that grows as long as this process gets on with its work, in memory that another process
 * looks at. So the other one can tell a process that hangs, or was stopped, from one that has a lot
 * to do.
 */

/* From now on beat() counts there, in the whole process. NULL: nowhere, as it is at first. */
void beat_at(atomic_uint *place);

/* A function that works for long calls this between two pieces of its work, as does a loop that
 * waits. It costs a nanosecond or so. */
void beat(void);
