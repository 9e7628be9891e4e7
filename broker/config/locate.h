/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "broker/config/reader.h" /* struct config_path */

/**
 * Line (from 1) of the key or array element at @path in @text, which must be JSON. For something
 * that is not there, the line of the innermost thing around it that is.
 */
size_t config_locate(const char *text, size_t size, const struct config_path *path);

/** Is told of a place. @path lasts as long as the call. */
typedef void config_found(void *data, size_t line, const struct config_path *path);

/**
 * The reverse, for where a parser gave up: finds the key or value that ends at offset @end of
 * @text, or else is the first to reach beyond it, and calls @found with its place. @root is the
 * path of the whole text. Returns false, without a call, if there is no such thing.
 */
bool config_locate_ending(const char *text, size_t size, size_t end, const struct config_path *root,
			  config_found *found, void *data);
