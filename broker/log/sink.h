/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes the log give up a line that stderr has no room for, from now on, rather than wait. */
void log_sink_open(void);
/* Whether the line, with its newline at the end, was written. */
bool log_sink_write(const char *line, size_t size);
