/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

#include "tools/snapshot.h"

/* What a broker counts, in the format of OpenMetrics 1.0, with names as Prometheus asks for them.
 */

#define METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* The reports that metrics are made of: none of them grows with the number of buffers. */
extern const struct snapshot_report metrics_reports[];
extern const size_t metrics_n_reports;

/* Prints all metrics of a snapshot of these reports, without the end. @now: seconds since 1970. */
void metrics_print(FILE *out, const json_t *snapshot, double now);
/* Prints a metric without labels, which is 0 or 1. */
void metrics_print_flag(FILE *out, const char *name, const char *help, int value);
/* Prints the line after which there is nothing. */
void metrics_print_end(FILE *out);
