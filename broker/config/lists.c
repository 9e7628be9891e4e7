/* SPDX-License-Identifier: MIT */
/*
 * Reads who may do what: the lists of pools, and whose names are. In lists that clients send there
 * are numbers only, as nobody may make the broker ask the system's user database (who.c).
 */
#include "broker/config/lists.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "broker/config/who.h"

#define EXAMPLE "{\"frames/\": [\"alice\", \"@video\"]}"

#define ENTRY_EXAMPLE "{\"use\": [\"@video\"], \"publish\": [\"alice\"]}"

/* How a list may say who is meant. "*" is always possible. */
enum spelling {
	NAMES_AND_NUMBERS,
	NUMBERS_ONLY, /* no look-up, nothing that could block */
};

static int parse_who(const struct config_reader *r, const struct config_path *path,
		     const json_t *entry, enum spelling spelling, struct principal *out)
{
	const json_t *user = json_object_get(entry, "user");
	const json_t *group = json_object_get(entry, "group");
	const json_t *value = user ? user : group;
	const char *name = json_string_value(value);

	if (!value)
		return config_fail(r, path, "lacks \"user\" or \"group\"");
	if (user && group)
		return config_fail(r, path, "has both \"user\" and \"group\" (make it two)");
	path = CONFIG_KEY(path, user ? "user" : "group");
	if (!name && !json_is_integer(value))
		return config_fail_value(r, path, value, "is not a %s",
					 user ? "user (a name, \"*\" or a uid)"
					      : "group (a name or a gid)");
	if (user && name && strcmp(name, "*") == 0) {
		*out = (struct principal){.type = PRINCIPAL_EVERYONE};
		return 0;
	}
	/* "1000" in quotes as well: it could be meant for a user who is called so. */
	if (name && spelling == NUMBERS_ONLY)
		return config_fail_value(r, path, value,
					 "is a name; clients send numbers "
					 "(share_pool_create translates names)");
	out->type = user ? PRINCIPAL_USER : PRINCIPAL_GROUP;
	return principal_parse(r, path, value, name, out);
}

static int parse_mode(const struct config_reader *r, const struct config_path *path,
		      const json_t *entry, unsigned *out)
{
	const json_t *value = json_object_get(entry, "mode");
	const char *name = json_string_value(value);

	if (!value)
		return config_fail(r, path, "lacks \"mode\" (ro, rw or manage)");
	*out = name ? access_mode_named(name) : 0;
	if (*out == 0)
		return config_fail_value(r, CONFIG_KEY(path, "mode"), value,
					 "is not a mode (ro, rw or manage)");
	return 0;
}

static int parse_entry(const struct config_reader *r, const struct config_path *path, json_t *value,
		       enum spelling spelling, struct access_list *list)
{
	static const char *const keys[] = {"user", "group", "mode"};
	struct principal who = {0};
	unsigned mode = 0;

	if (!json_is_object(value))
		return config_fail_value(r, path, value, "is not an entry (like %s)",
					 "{\"user\": \"alice\", \"mode\": \"rw\"}");
	int e = config_check_keys(r, path, value, keys, sizeof(keys) / sizeof(keys[0]));
	if (e == 0)
		e = parse_who(r, path, value, spelling, &who);
	if (e == 0)
		e = parse_mode(r, path, value, &mode);
	if (e == 0 && access_grant(list, who, mode) < 0)
		e = config_fail_memory(r);
	return e;
}

static int parse_list(const struct config_reader *r, const struct config_path *path,
		      const json_t *array, enum spelling spelling, struct access_list *out)
{
	struct access_list list = {0};
	int e = principal_check_list(r, path, array, "{\"user\": \"alice\", \"mode\": \"rw\"}");

	for (size_t i = 0; e == 0 && i < json_array_size(array); i++)
		e = parse_entry(r, CONFIG_INDEX(path, i), json_array_get(array, i), spelling,
				&list);
	if (e == 0)
		*out = list;
	else
		access_list_deinit(&list);
	return e;
}

int access_parse(const struct config_reader *r, const struct config_path *path, const json_t *array,
		 struct access_list *out)
{
	return parse_list(r, path, array, NAMES_AND_NUMBERS, out);
}

int access_parse_text(const char *text, size_t size, struct access_list *out, char *error,
		      size_t error_size)
{
	const struct config_reader r = {
	    .text = text, .size = size, .error = error, .error_size = error_size};
	const struct config_path root = {.key = "access"};
	json_t *array;

	if (size > ACCESS_MAX_TEXT)
		return config_fail(&r, &root, "%zu bytes are too many (at most %d)", size,
				   ACCESS_MAX_TEXT);
	int e = config_parse(&r, &root, &array);
	if (e != 0)
		return e;
	e = parse_list(&r, &root, array, NUMBERS_ONLY, out);
	json_decref(array);
	return e;
}

/* ------------------------------------------------------------------------------------------- */
/* Whose names are                                                                             */

static int parse_rights(const struct config_reader *r, const struct config_path *path,
			json_t *object, struct name_owner *out)
{
	int e = config_check_keys(r, path, object, name_rights, NAME_RIGHTS);

	for (int i = 0; e == 0 && i < NAME_RIGHTS; i++) {
		const json_t *list = json_object_get(object, name_rights[i]);

		if (list)
			e = principal_list_parse(r, CONFIG_KEY(path, name_rights[i]), list,
						 &out->lists[i]);
	}
	return e;
}

static int parse_owner(const struct config_reader *r, const struct config_path *path, json_t *value,
		       struct name_owner *out)
{
	static const struct principal everyone = {.type = PRINCIPAL_EVERYONE};
	int e = 0;

	if (json_is_object(value)) {
		e = parse_rights(r, path, value, out);
	} else if (!json_is_array(value)) {
		e = config_fail_value(r, path, value,
				      "is neither a list of users nor an object (like %s)",
				      ENTRY_EXAMPLE);
	} else {
		e = principal_list_parse(r, path, value, &out->lists[NAME_PUBLISH]);
		if (e == 0)
			e = principal_list_parse(r, path, value, &out->lists[NAME_CREATE]);
	}
	if (e == 0 && (!json_is_object(value) || !json_object_get(value, name_rights[NAME_USE])) &&
	    principal_list_add(&out->lists[NAME_USE], everyone) < 0)
		e = config_fail_memory(r);
	return e;
}

int name_owners_parse(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct name_owners *out)
{
	int e = config_check_object(r, path, object, EXAMPLE);
	const char *prefix;
	json_t *value;

	if (e != 0)
		return e;
	if (json_object_size(object) > PRINCIPAL_LIST_MAX)
		return config_fail(r, path, "%zu prefixes are too many (at most %d)",
				   json_object_size(object), PRINCIPAL_LIST_MAX);
	out->entries = calloc(json_object_size(object) + 1, sizeof(*out->entries));
	if (!out->entries)
		return config_fail_memory(r);
	json_object_foreach (object, prefix, value) {
		struct name_owner *owner = &out->entries[out->n_entries];

		if (!text_is_valid_name(prefix, strlen(prefix)))
			return config_fail(r, CONFIG_KEY(path, prefix),
					   "is not the beginning of a name");
		owner->prefix = strdup(prefix);
		if (!owner->prefix)
			return config_fail_memory(r);
		out->n_entries++;
		e = parse_owner(r, CONFIG_KEY(path, prefix), value, owner);
		if (e != 0)
			return e;
	}
	return 0;
}
