/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/types.h>

#include <jansson.h>

#include "broker/config/reader.h"
#include "broker/rights/principal.h"

#define PRINCIPAL_LIST_MAX 256 /* entries of one list */

/** Finds the uid of a user given by name, or in digits when there is no user of that name. Returns
 * 0, CONFIG_EINVALID when there is none, or a negative errno of the system's user database. */
int principal_find_user(const char *name, uid_t *out);

/**
 * Reads a list like ["root", "@video", 1000, "*"]. @path says where it is, for messages. Returns
 * 0, CONFIG_EINVALID or a negative errno, worded in the reader's buffer. @out is written on
 * success only (what it held is not freed), for principal_list_deinit().
 */
int principal_list_parse(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, struct principal_list *out);

/** Refuses what is no list of entries, or of too many; @example shows one. */
int principal_check_list(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, const char *example);

/** Reads the user or group, as @who->type says, that @value names: by @name, or by number if that
 * is NULL. */
int principal_parse(const struct config_reader *r, const struct config_path *path,
		    const json_t *value, const char *name, struct principal *who);
