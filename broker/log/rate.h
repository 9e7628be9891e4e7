/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "broker/log/log.h"

/* How often the log says something; this is for log.c. */

/* Whether another line that this user has caused is written. If not, it is counted, and the log
 * says that there are such lines. */
bool log_rate_user(uid_t uid);
/* Says the last counts. */
void log_rate_end(void);
/* Whether it is time for such a line again. If so, @also says how many were left out before. */
bool log_rate_is_due(struct log_rate *rate, char *also, size_t size);
