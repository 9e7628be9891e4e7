/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/size.h"
#include "broker/config/config.h"
#include "broker/config/reader.h"

/* What others ask about limits. Both readers return 0 or an error of reader.h. */

struct limits config_standard_limits(void);

/* Writes a limit as the file may have it, or "none". Returns @out. */
char *limit_text(enum limit_kind kind, uint64_t limit, char out[static SIZE_EXACT_MAX]);

/* Overrides the limits that the object mentions. */
int config_read_limits(const struct config_reader *r, const struct config_path *path,
		       json_t *object, struct limits *limits);
/* Reads the limits of single users, which override c->limits. */
int config_read_users(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct config *c);
