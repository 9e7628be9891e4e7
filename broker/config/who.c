/* SPDX-License-Identifier: MIT */
/*
 * Reads users and groups, and lists of them.
 *
 * Names become numbers when a list is read, once, so that a check costs no look-up, and a user who
 * is renamed or removed later gains nothing. The system's user database may be a network away, and
 * to ask it takes as long as it takes. So that is done for the configuration file alone, which is
 * read before the broker serves anybody, or in a thread.
 */
#include "broker/config/who.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/system/id.h"

#define ID_MAX (UINT32_MAX - 1) /* (uid_t)-1 means "leave it" to the kernel, and is nobody's */

static bool parse_id(const char *text, id_t *out)
{
	uint64_t id = 0;

	for (const char *p = text; *p != '\0'; p++) {
		if (*p < '0' || *p > '9')
			return false;
		id = id * 10 + (uint64_t)(*p - '0');
		if (id > ID_MAX)
			return false;
	}
	*out = (id_t)id;
	return text[0] != '\0';
}

/* @r: what came of looking the name up. */
static int or_number(int r, const char *name, id_t *out)
{
	if (r == ENOENT)
		return parse_id(name, out) ? 0 : CONFIG_EINVALID;
	return -r;
}

int principal_find_user(const char *name, uid_t *out)
{
	return or_number(id_of_user(name, out), name, out);
}

int principal_parse(const struct config_reader *r, const struct config_path *path,
		    const json_t *value, const char *name, struct principal *who)
{
	const char *kind = who->type == PRINCIPAL_GROUP ? "group" : "user";

	if (!name) {
		json_int_t id = json_integer_value(value);

		if (id < 0 || (uint64_t)id > ID_MAX)
			return config_fail_value(r, path, value, "is not the id of a %s", kind);
		who->id = (id_t)id;
		return 0;
	}

	int e = who->type == PRINCIPAL_GROUP
		    ? or_number(id_of_group(name, &who->id), name, &who->id)
		    : principal_find_user(name, &who->id);
	if (e == -ENOMEM)
		return config_fail_memory(r);
	if (e < 0) {
		config_fail_value(r, path, value, "cannot be looked up: %s", strerror(-e));
		return e;
	}
	if (e > 0)
		return config_fail_value(r, path, value, "is unknown here: there is no such %s",
					 kind);
	return 0;
}

/* ------------------------------------------------------------------------------------------- */

int principal_check_list(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, const char *example)
{
	if (!json_is_array(array))
		return config_fail_value(r, path, array, "is not a list (like [%s])", example);
	if (json_array_size(array) > PRINCIPAL_LIST_MAX)
		return config_fail(r, path, "%zu entries are too many (at most %d)",
				   json_array_size(array), PRINCIPAL_LIST_MAX);
	return 0;
}

static int parse_list_element(const struct config_reader *r, const struct config_path *path,
			      const json_t *value, struct principal_list *list)
{
	const char *name = json_string_value(value);
	struct principal who = {.type = PRINCIPAL_USER};
	int e = 0;

	if (!name && !json_is_integer(value))
		return config_fail_value(r, path, value,
					 "is not a user (a name, \"@group\", \"*\" or a uid)");
	if (name && strcmp(name, "*") == 0) {
		who.type = PRINCIPAL_EVERYONE;
	} else {
		if (name && name[0] == '@') {
			who.type = PRINCIPAL_GROUP;
			name++;
		}
		e = principal_parse(r, path, value, name, &who);
	}
	if (e == 0 && principal_list_add(list, who) < 0)
		e = config_fail_memory(r);
	return e;
}

int principal_list_parse(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, struct principal_list *out)
{
	struct principal_list list = {0};
	int e = principal_check_list(r, path, array, "\"alice\", \"@video\", 1000");

	for (size_t i = 0; e == 0 && i < json_array_size(array); i++)
		e = parse_list_element(r, CONFIG_INDEX(path, i), json_array_get(array, i), &list);
	if (e == 0)
		*out = list;
	else
		principal_list_deinit(&list);
	return e;
}
