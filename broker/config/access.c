/* SPDX-License-Identifier: MIT */
/*
 * Who may do what: lists of users and groups, for pools, for administration, for making pools.
 *
 * Lists hold numbers. Names become numbers when a list is read, once, so that a check costs no
 * look-up, and a user who is renamed or removed later gains nothing. The system's user database
 * may be a network away, and to ask it takes as long as it takes: that is for the configuration
 * file, before the broker serves anybody. In what clients send there are numbers only.
 *
 * There is no way to take something away: what entries allow adds up, so their order means nothing
 * and a list can be read without simulating it.
 *
 * Must not know where a peer's uid and groups come from, nor what a pool is.
 */
#include "broker/config/access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATABASE_BUFFER     1024
#define DATABASE_BUFFER_MAX (1 << 20) /* a group with some ten thousand members */

#define ID_MAX (UINT32_MAX - 1) /* (uid_t)-1 means "leave it" to the kernel, it is nobody's */

static const struct {
	const char *name;
	unsigned mode;
} modes[] = {{"ro", ACCESS_RO}, {"rw", ACCESS_RW}, {"manage", ACCESS_ALL}};

/* How a list may say who is meant. "*" is always possible. */
enum spelling {
	NAMES_AND_NUMBERS,
	NUMBERS_ONLY, /* no look-up, nothing that could block */
};

/* ------------------------------------------------------------------------------------------- */
/* Users and groups                                                                            */

static int look_up_user(const char *name, char *buffer, size_t size, id_t *out)
{
	struct passwd entry, *found;
	int r = getpwnam_r(name, &entry, buffer, size, &found);

	if (found)
		*out = entry.pw_uid;
	return found ? 0 : r ? r : ENOENT;
}

static int look_up_group(const char *name, char *buffer, size_t size, id_t *out)
{
	struct group entry, *found;
	int r = getgrnam_r(name, &entry, buffer, size, &found);

	if (found)
		*out = entry.gr_gid;
	return found ? 0 : r ? r : ENOENT;
}

/* Grows the buffer until the entry fits. Returns a positive errno as the look-ups do. */
static int look_up(int (*function)(const char *, char *, size_t, id_t *), const char *name,
		   id_t *out)
{
	int r = ERANGE;

	for (size_t size = DATABASE_BUFFER; r == ERANGE && size <= DATABASE_BUFFER_MAX; size *= 4) {
		char *buffer = malloc(size);
		if (!buffer)
			return ENOMEM;
		r = function(name, buffer, size, out);
		free(buffer);
	}
	return r;
}

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

static int find_id(int (*function)(const char *, char *, size_t, id_t *), const char *name,
		   id_t *out)
{
	int r = look_up(function, name, out);

	switch (r) {
	case 0:
		return 0;
	case ENOENT: /* and what getpwnam_r(3) lists as other ways to say so */
	case ESRCH:
	case EBADF:
	case EPERM:
		return parse_id(name, out) ? 0 : CONFIG_EINVALID;
	default:
		return -r;
	}
}

int access_find_user(const char *name, uid_t *out)
{
	return find_id(look_up_user, name, out);
}

int access_find_group(const char *name, gid_t *out)
{
	return find_id(look_up_group, name, out);
}

bool principal_equal(struct principal a, struct principal b)
{
	return a.type == b.type && a.id == b.id;
}

static bool principal_is(struct principal who, uid_t uid, const gid_t *groups, size_t n_groups)
{
	switch (who.type) {
	case PRINCIPAL_EVERYONE:
		return true;
	case PRINCIPAL_USER:
		return who.id == uid;
	case PRINCIPAL_GROUP:
		for (size_t i = 0; i < n_groups; i++) {
			if (who.id == groups[i])
				return true;
		}
		return false;
	}
	return false;
}

/* Reads a user or group from its name or number. */
static int parse_principal(const struct config_reader *r, const struct config_path *path,
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

	int e = who->type == PRINCIPAL_GROUP ? access_find_group(name, &who->id)
					     : access_find_user(name, &who->id);
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
/* Lists of principals                                                                         */

int principal_list_add(struct principal_list *list, struct principal who)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_equal(list->entries[i], who))
			return 0;
	}

	struct principal *grown =
	    reallocarray(list->entries, list->n_entries + 1, sizeof(*list->entries));
	if (!grown)
		return -ENOMEM;
	grown[list->n_entries++] = who;
	list->entries = grown;
	return 0;
}

bool principal_match(const struct principal_list *list, uid_t uid, const gid_t *groups,
		     size_t n_groups)
{
	for (size_t i = 0; i < list->n_entries; i++) {
		if (principal_is(list->entries[i], uid, groups, n_groups))
			return true;
	}
	return false;
}

void principal_list_clear(struct principal_list *list)
{
	free(list->entries);
	*list = (struct principal_list){0};
}

static int check_array(const struct config_reader *r, const struct config_path *path,
		       const json_t *array, const char *example)
{
	if (!json_is_array(array))
		return config_fail_value(r, path, array, "is not a list (like [%s])", example);
	if (json_array_size(array) > ACCESS_MAX_ENTRIES)
		return config_fail(r, path, "%zu entries are too many (at most %d)",
				   json_array_size(array), ACCESS_MAX_ENTRIES);
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
		e = parse_principal(r, path, value, name, &who);
	}
	if (e == 0 && principal_list_add(list, who) < 0)
		e = config_fail_memory(r);
	return e;
}

int principal_list_parse(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, struct principal_list *out)
{
	struct principal_list list = {0};
	int e = check_array(r, path, array, "\"alice\", \"@video\", 1000");

	for (size_t i = 0; e == 0 && i < json_array_size(array); i++)
		e = parse_list_element(r, CONFIG_INDEX(path, i), json_array_get(array, i), &list);
	if (e == 0)
		*out = list;
	else
		principal_list_clear(&list);
	return e;
}

/* ------------------------------------------------------------------------------------------- */
/* Access lists                                                                                */

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
	return parse_principal(r, path, value, name, out);
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
	int e = check_array(r, path, array, "{\"user\": \"alice\", \"mode\": \"rw\"}");

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
