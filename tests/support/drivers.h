/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/standin/calls.h"

/* What the stand-in driver does and has done in all processes of a test. For a driver of one
 * process see gpu_owner.h. */

/* Before the broker is started. */
void drivers_prepare(void);
void drivers_done(void);
/* From now on: lines as in tests/standin/calls.h, "" for none. */
void drivers_do(const char *faults);
extern struct standin_calls *drivers_calls;
