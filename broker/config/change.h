/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "broker/config/config.h"

/* What a configuration that is read again changes of the one that is in force. */

struct config_change {
	char *key;  /* as in `limits.bytes`, or `pools["frames"].limit` */
	char *text; /* what becomes of it: "8GiB -> 16GiB" */
	bool now;   /* false: it stays as it is until the broker starts again */
};

/** All zero: none. */
struct config_changes {
	struct config_change *entries;
	size_t n;
	int error; /* -ENOMEM: there are more, for which there was no memory */
};

/** Appends one. If there is no memory for it, @changes says so. */
void config_changes_add(struct config_changes *changes, bool now, const char *key,
			const char *format, ...) __attribute__((format(printf, 4, 5)));

/** Appends to @out what has to change to get from @now to @file, in the order of the file's keys.
 * Both stay as they were. Returns @out->error: 0, or -ENOMEM with a part of it appended. */
int config_compare(const struct config *now, const struct config *file, struct config_changes *out);

/**
 * Makes @now what is in force with @file: all of that, but for what cannot change while the broker
 * runs, and with the pools that it lacks as leaving ones. @now stays where it is; what it points to
 * changes, and @file is good for config_free() only. Returns 0, or -ENOMEM with both as they were.
 */
int config_replace(struct config *now, struct config *file);

/** Frees the entries and leaves none. */
void config_changes_deinit(struct config_changes *changes);
