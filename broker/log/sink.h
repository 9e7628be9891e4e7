/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LOG_SINK_H
#define BROKER_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>

/* From now on a line that stderr has no room for is given up, rather than waited with. */
void log_sink_open(void);
/* What it writes to; -1: stderr itself. */
int log_sink_descriptor(void);
/* Whether the line, with its newline at the end, was written. */
bool log_sink_write(const char *line, size_t size);

#endif
