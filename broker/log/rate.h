/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LOG_RATE_H
#define BROKER_LOG_RATE_H

#include <stdbool.h>
#include <stddef.h>

#include "broker/log/log.h"

/* How often the log says something; for log.c. */

/* Whether another line that this user has caused is written. Counted, and said, if not. */
bool log_rate_user(uid_t uid);
/* The last counts are said. */
void log_rate_end(void);
/* Whether it is time again. @also says then how many were left out before. */
bool log_rate_is_due(struct log_rate *rate, char *also, size_t size);

#endif
