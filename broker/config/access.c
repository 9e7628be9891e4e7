/* SPDX-License-Identifier: MIT */
/*
 * Who may do what with a pool: users and groups, each with a mode. In lists that clients send there
 * are numbers only, as nobody may make the broker ask the system's user database (principal.c).
 *
 * There is no way to take something away: what entries allow adds up, so their order means nothing
 * and a list can be read without simulating it.
 *
 * Must not know where a peer's uid and groups come from, nor what a pool is.
 */
#include "broker/config/access.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned mode;
} modes[] = {{"ro", ACCESS_RO}, {"rw", ACCESS_RW}, {"manage", ACCESS_ALL}};

/* How a list may say who is meant. "*" is always possible. */
enum spelling {
	NAMES_AND_NUMBERS,
	NUMBERS_ONLY, /* no look-up, nothing that could block */
};

int access_grant(struct access_list *list, struct principal who, unsigned mode)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_equal(list->entries[i].who, who)) {
			list->entries[i].mode |= mode;
			return 0;
		}
	}

	struct access_entry *grown =
	    reallocarray(list->entries, list->n_entries + 1, sizeof(*list->entries));
	if (!grown)
		return -ENOMEM;
	grown[list->n_entries++] = (struct access_entry){.who = who, .mode = mode};
	list->entries = grown;
	return 0;
}

unsigned access_check(const struct access_list *list, uid_t uid, const gid_t *groups,
		      size_t n_groups)
{
	unsigned mode = 0;

	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_is(list->entries[i].who, uid, groups, n_groups))
			mode |= list->entries[i].mode;
	}
	return mode;
}

bool access_lets_several_write(const struct access_list *list, uid_t own)
{
	size_t n = own != 0;

	for (size_t i = 0; i < list->n_entries; i++) {
		const struct access_entry *e = &list->entries[i];

		if (!(e->mode & ACCESS_WRITE))
			continue;
		if (e->who.type != PRINCIPAL_USER)
			return true;
		n += e->who.id != 0 && e->who.id != own;
	}
	return n > 1;
}

/* No principal is twice in a list. */
bool access_list_equal(const struct access_list *a, const struct access_list *b)
{
	size_t same = 0;

	for (size_t i = 0; i < a->n_entries; i++) {
		for (size_t k = 0; k < b->n_entries; k++)
			same += principal_equal(a->entries[i].who, b->entries[k].who) &&
				a->entries[i].mode == b->entries[k].mode;
	}
	return same == a->n_entries && same == b->n_entries;
}

const char *access_mode_name(unsigned mode)
{
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (modes[i].mode == mode)
			return modes[i].name;
	}
	return "nothing";
}

char *access_format(const struct access_list *list, char *out, size_t size)
{
	static const char rest[] = ", ...]";
	size_t n = (size_t)snprintf(out, size, "[");
	char one[64];

	for (size_t i = 0; i < list->n_entries; i++) {
		const struct access_entry *e = &list->entries[i];
		int more = e->who.type == PRINCIPAL_EVERYONE
			       ? snprintf(one, sizeof(one), "{\"user\": \"*\", \"mode\": \"%s\"}",
					  access_mode_name(e->mode))
			       : snprintf(one, sizeof(one), "{\"%s\": %u, \"mode\": \"%s\"}",
					  e->who.type == PRINCIPAL_GROUP ? "group" : "user",
					  (unsigned)e->who.id, access_mode_name(e->mode));

		if (n + (size_t)more + sizeof(rest) + 1 >= size) {
			snprintf(out + n, size - n, "%s", i > 0 ? rest : &rest[2]);
			return out;
		}
		n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", one);
	}
	snprintf(out + n, size - n, "]");
	return out;
}

void access_list_clear(struct access_list *list)
{
	free(list->entries);
	*list = (struct access_list){0};
}

int access_list_copy(struct access_list *out, const struct access_list *from)
{
	struct access_entry *entries = calloc(from->n_entries + 1, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_entries; i++)
		entries[i] = from->entries[i];
	*out = (struct access_list){.entries = entries, .n_entries = from->n_entries};
	return 0;
}

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
	for (size_t i = 0; name && i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(name, modes[i].name) == 0) {
			*out = modes[i].mode;
			return 0;
		}
	}
	return config_fail_value(r, CONFIG_KEY(path, "mode"), value,
				 "is not a mode (ro, rw or manage)");
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
		access_list_clear(&list);
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
