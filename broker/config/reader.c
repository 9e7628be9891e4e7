/* SPDX-License-Identifier: MIT */
/*
 * Reads JSON that people write: parses it, and says what is wrong with it so that they find the
 * place.
 *
 * A message is "FILE:LINE: PATH: what is wrong". Nobody keeps lines and paths in store for it:
 * paths are on the stacks of those who read, lines are looked for when there is something to say.
 * What is foreign in a message is shortened, and made printable: it may have come from a client and
 * may be going to a terminal.
 *
 * Must not know what any key means, nor where the text is from.
 */
#include "broker/config/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/text.h"
#include "broker/config/locate.h"

#define SHOWN_MAX 72 /* bytes of a foreign key or value in a message */

/* ------------------------------------------------------------------------------------------- */
/* Messages                                                                                    */

static __attribute__((format(printf, 3, 0))) void append(const struct config_reader *r,
							 size_t *used, const char *format,
							 va_list arguments)
{
	if (*used < r->error_size) {
		int n = vsnprintf(r->error + *used, r->error_size - *used, format, arguments);
		*used += n > 0 ? (size_t)n : 0;
	}
}

static __attribute__((format(printf, 3, 4))) void add(const struct config_reader *r, size_t *used,
						      const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(r, used, format, arguments);
	va_end(arguments);
}

static void add_path(const struct config_reader *r, size_t *used, const struct config_path *path)
{
	char shown[SHOWN_MAX];

	if (!path)
		return;
	add_path(r, used, path->parent);
	if (path->key)
		add(r, used, "%s%s", path->parent ? "." : "",
		    text_printable(path->key, shown, sizeof(shown)));
	else
		add(r, used, "[%zu]", path->index);
}

/* Writes "FILE:LINE: PATH: ". Returns how much of the buffer that took. */
static size_t begin(const struct config_reader *r, size_t line, const struct config_path *path)
{
	size_t used = 0;

	if (r->file && line > 0)
		add(r, &used, "%s:%zu: ", r->file, line);
	else if (r->file)
		add(r, &used, "%s: ", r->file);
	if (path) {
		add_path(r, &used, path);
		add(r, &used, ": ");
	}
	return used;
}

static size_t line_of(const struct config_reader *r, const struct config_path *path)
{
	return r->file && r->text ? config_locate(r->text, r->size, path) : 0;
}

int config_fail(const struct config_reader *r, const struct config_path *path, const char *format,
		...)
{
	size_t used = begin(r, line_of(r, path), path);
	va_list arguments;

	va_start(arguments, format);
	append(r, &used, format, arguments);
	va_end(arguments);
	return CONFIG_EINVALID;
}

static void add_value(const struct config_reader *r, size_t *used, const json_t *value)
{
	char shown[SHOWN_MAX];

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		add(r, used, "an object");
		break;
	case JSON_ARRAY:
		add(r, used, "an array");
		break;
	case JSON_STRING:
		text_printable(json_string_value(value), shown, sizeof(shown));
		add(r, used, "\"%s\"", shown);
		break;
	case JSON_INTEGER:
		add(r, used, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		break;
	case JSON_REAL:
		add(r, used, "%.15g", json_real_value(value));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		add(r, used, json_is_true(value) ? "true" : "false");
		break;
	case JSON_NULL:
		add(r, used, "null");
		break;
	}
}

int config_fail_value(const struct config_reader *r, const struct config_path *path,
		      const json_t *value, const char *format, ...)
{
	size_t used = begin(r, line_of(r, path), path);
	va_list arguments;

	add_value(r, &used, value);
	add(r, &used, " ");
	va_start(arguments, format);
	append(r, &used, format, arguments);
	va_end(arguments);
	return CONFIG_EINVALID;
}

int config_fail_memory(const struct config_reader *r)
{
	size_t used = begin(r, 0, NULL);

	add(r, &used, "out of memory");
	return -ENOMEM;
}

/* ------------------------------------------------------------------------------------------- */
/* Checks that many values need                                                                */

int config_check_object(const struct config_reader *r, const struct config_path *path,
			const json_t *value, const char *example)
{
	if (!json_is_object(value))
		return config_fail_value(r, path, value, "is not an object (like %s)", example);
	return 0;
}

int config_check_keys(const struct config_reader *r, const struct config_path *path, json_t *object,
		      const char *const *keys, size_t n_keys)
{
	const char *key;
	json_t *ignored;

	json_object_foreach (object, key, ignored) {
		const struct config_path *place = CONFIG_KEY(path, key);
		size_t k = 0;

		while (k < n_keys && strcmp(key, keys[k]) != 0)
			k++;
		if (k < n_keys)
			continue;

		const char *meant = text_nearest(key, keys, n_keys);
		if (meant)
			return config_fail(r, place, "unknown key (did you mean \"%s\"?)", meant);

		size_t used = begin(r, line_of(r, place), place);
		add(r, &used, "unknown key (known here: ");
		for (k = 0; k < n_keys; k++)
			add(r, &used, "%s%s", k > 0 ? ", " : "", keys[k]);
		add(r, &used, ")");
		return CONFIG_EINVALID;
	}
	return 0;
}

int config_read_string(const struct config_reader *r, const struct config_path *path,
		       const json_t *object, const char *what, const char **out)
{
	const json_t *value = json_object_get(object, path->key);

	if (value && !json_is_string(value))
		return config_fail_value(r, path, value, "is not %s", what);
	*out = json_string_value(value);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */
/* Parsing                                                                                     */

struct complaint {
	const struct config_reader *reader;
	const char *what;
};

static void complain(void *data, size_t line, const struct config_path *path)
{
	const struct complaint *c = data;
	size_t used = begin(c->reader, line, path);

	add(c->reader, &used, "%s", c->what);
}

/* Without memory jansson (2.14) mostly complains about the text, at some place where nothing is
 * wrong with it, or ignores it. Whoever wrote the text would look for the mistake. So its memory
 * comes through here. */
static _Thread_local bool was_short; /* the configuration is read in a thread */

static void *allocate(size_t size)
{
	void *memory = malloc(size);

	was_short |= !memory;
	return memory;
}

void config_reader_init(void)
{
	json_set_alloc_funcs(allocate, free);
}

/* Does what json_loadb() does, but refuses a key that is given twice. A text that there was no
 * memory for is not called wrong: json_error_code() is json_error_out_of_memory then. */
static json_t *read_json(const char *text, size_t size, json_error_t *error)
{
	json_t *read;

	*error = (json_error_t){.line = -1};
	was_short = false;
	read = json_loadb(text, size, JSON_REJECT_DUPLICATES, error);
	/* what was read may lack something for want of memory; an empty complaint is for want of
	 * it, too */
	if (was_short || (!read && error->text[0] == '\0')) {
		json_decref(read);
		read = NULL;
		snprintf(error->text, sizeof(error->text), "out of memory");
		error->text[sizeof(error->text) - 1] = json_error_out_of_memory;
	}
	return read;
}

int config_parse(const struct config_reader *r, const struct config_path *root, json_t **out)
{
	struct complaint complaint = {.reader = r};
	json_error_t e;
	char shown[2 * JSON_ERROR_TEXT_LENGTH];
	json_t *parsed = read_json(r->text, r->size, &e);

	if (parsed) {
		*out = parsed;
		return 0;
	}
	switch (json_error_code(&e)) {
	case json_error_out_of_memory:
		return config_fail_memory(r);
	case json_error_duplicate_key:
		complaint.what = "given twice";
		break;
	case json_error_numeric_overflow:
		complaint.what = "the number is too large";
		break;
	default:
		break;
	}

	if (complaint.what && e.position > 0 &&
	    config_locate_ending(r->text, r->size, (size_t)e.position, root, complain, &complaint))
		return CONFIG_EINVALID;

	text_printable(e.text, shown, sizeof(shown));
	size_t used = begin(r, (size_t)(e.line > 0 ? e.line : 0), root);
	if (r->file)
		add(r, &used, "not JSON: %s (column %d)", shown, e.column);
	else
		add(r, &used, "not JSON: %s (line %d, column %d)", shown, e.line, e.column);
	return CONFIG_EINVALID;
}

int config_read_size(const struct config_reader *r, const struct config_path *path,
		     const json_t *object, bool zero, uint64_t *out)
{
	const json_t *value = json_object_get(object, path->key);
	uint64_t bytes = 0;
	int e = SIZE_EINVALID;

	if (!value)
		return 0;
	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		bytes = (uint64_t)json_integer_value(value);
		e = 0;
	} else if (json_is_string(value)) {
		e = size_parse(json_string_value(value), &bytes);
	}

	switch (e) {
	case 0:
		break;
	case SIZE_EOVERFLOW:
		return config_fail_value(r, path, value, "is too large (less than 16777216TiB)");
	case SIZE_EINEXACT:
		return config_fail_value(r, path, value, "is not a whole number of bytes");
	default:
		return config_fail_value(
		    r, path, value,
		    "is not a size (an integer of bytes, or a string like \"64MiB\")");
	}
	if (bytes == 0 && !zero)
		return config_fail_value(r, path, value,
					 "is not possible (leave it out for the default)");
	*out = bytes;
	return 0;
}
