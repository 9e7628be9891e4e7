/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

#include <share/share.h>

/* Between the files of the scenario. */

/* That a call fails as it may: for want of memory, luck with the system, or a broker; or @also. */
void check_clean(const char *what, int r, int also);

/* True when it worked; else the above. */
bool tried(const char *what, int r, int also);
#define try(call)          tried(#call, (call), 0)
#define try_or(also, call) tried(#call, (call), (also))

/* Where failures are counted. */
void scenario_begin(void);
int scenario_failures(void);

void scenario_channels(share_client *c, share_pool *pool);
