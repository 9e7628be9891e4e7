/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/** What the functions here return for a text that is wrong; the reader's buffer says how. */
enum config_error {
	CONFIG_EINVALID = 1,
};

/** Large enough for every message, unless the file's own path is absurdly long. */
#define CONFIG_ERROR_MAX 1024

/**
 * The way to a value, as in pools[1].limit. Each step lives on the stack of whoever reads the
 * value, so nothing is allocated for paths that nobody has to be told. NULL is the document.
 */
struct config_path {
	const struct config_path *parent;
	const char *key; /* member of an object; NULL: an element of an array, @index */
	size_t index;
};

#define CONFIG_KEY(up, name)  (&(const struct config_path){.parent = (up), .key = (name)})
#define CONFIG_INDEX(up, nth) (&(const struct config_path){.parent = (up), .index = (nth)})

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/** A JSON text, and where to say what is wrong with it. */
struct config_reader {
	const char *file; /* as messages call it; NULL: no file, messages begin with the path */
	const char *text; /* needs no NUL at its end; NULL when there is no text at all */
	size_t size;
	char *error;
	size_t error_size;
};

/** Called before the first text is read, and before jansson is used for anything: its memory comes
 * through the reader from then on, which can tell a lack of it from a mistake. */
void config_reader_init(void);

/**
 * Parses the reader's text, refusing duplicate keys. @root is the path of the whole text in
 * messages: NULL for a file. Returns 0, CONFIG_EINVALID or -ENOMEM; the caller owns *out.
 */
int config_parse(const struct config_reader *r, const struct config_path *root, json_t **out);

/** Says "FILE:LINE: PATH: message". Returns CONFIG_EINVALID. */
int config_fail(const struct config_reader *r, const struct config_path *path, const char *format,
		...) __attribute__((format(printf, 3, 4)));

/** Says the same of a value that is not what it should be: "FILE:LINE: PATH: VALUE message". */
int config_fail_value(const struct config_reader *r, const struct config_path *path,
		      const json_t *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Says "out of memory", returns -ENOMEM. */
int config_fail_memory(const struct config_reader *r);

/** Refuses members of @object other than @keys, with the key that was probably meant. */
int config_check_keys(const struct config_reader *r, const struct config_path *path, json_t *object,
		      const char *const *keys, size_t n_keys);

/** Refuses a value that is not an object; @example shows one. */
int config_check_object(const struct config_reader *r, const struct config_path *path,
			const json_t *value, const char *example);

/**
 * Reads member @path->key of @object. *out is the value's own text, or NULL if the member is not
 * there. @what says what it should be: "a name".
 */
int config_read_string(const struct config_reader *r, const struct config_path *path,
		       const json_t *object, const char *what, const char **out);

/**
 * Reads member @path->key of @object, an integer of bytes or a string for size_parse(). If it is
 * not there @out stays as it is; @zero says whether it may be 0. Returns 0 or CONFIG_EINVALID.
 */
int config_read_size(const struct config_reader *r, const struct config_path *path,
		     const json_t *object, bool zero, uint64_t *out);
