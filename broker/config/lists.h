/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include <jansson.h>

#include "broker/config/reader.h"
#include "broker/rights/access.h"
#include "broker/rights/name_owner.h"

#define ACCESS_MAX_TEXT (1 << 14) /* bytes of JSON that a client may send */

/**
 * Reads a list like [{"user": "alice", "mode": "rw"}, {"group": 44, "mode": "ro"}]. Names are
 * looked up in the system's user database, which may ask the network. Otherwise as
 * principal_list_parse(), for access_list_deinit().
 */
int access_parse(const struct config_reader *r, const struct config_path *path, const json_t *array,
		 struct access_list *out);

/**
 * The same from JSON text that a client sent, with numbers instead of names: never asks the
 * system's user database, and never blocks. Refuses more than ACCESS_MAX_TEXT bytes. @error says
 * "access[1].mode: ..."; it is written on failure only.
 */
int access_parse_text(const char *text, size_t size, struct access_list *out, char *error,
		      size_t error_size);

/**
 * Reads an object like {"frames/": ["alice", "@video"], "films/": {"use": ["@video"], "publish":
 * ["alice"]}}. A list is who may publish and create. What an object does not say is nobody's, but
 * "use", which is everybody's. Returns 0, CONFIG_EINVALID or a negative errno, worded in the
 * reader's buffer. @out is for name_owners_deinit() in any case.
 */
int name_owners_parse(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct name_owners *out);
