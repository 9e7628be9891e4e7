/* SPDX-License-Identifier: MIT */

/*
 * Whose names are. A name is had by who comes first, be it of a buffer, a pool or a channel: a
 * stranger who publishes "frames/left" before the camera does keeps it from the camera, and is
 * believed by all who look it up. So the configuration can give names away by their beginning: to
 * some for using what is called so, to some for publishing, to some for making pools and channels,
 * and to some for ending what others have made there. Each user has "uid/NUMBER/" without anything
 * being said.
 *
 * The longest prefix that fits decides alone. So a part of what is somebody's can be another's, and
 * a list can be read without looking at the others.
 *
 * Must not know what names are for, nor where a peer's uid and groups come from.
 */
#include "broker/config/name_owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define EXAMPLE "{\"frames/\": [\"alice\", \"@video\"]}"

#define ENTRY_EXAMPLE "{\"use\": [\"@video\"], \"publish\": [\"alice\"]}"

static const char *const rights[NAME_RIGHTS] = {"use", "publish", "create", "manage"};

static bool begins_with(const void *name, size_t size, const char *prefix, size_t n)
{
	return n <= size && memcmp(name, prefix, n) == 0;
}

/* "uid/1000/": as the number is written, so that no user has two of them. */
static bool is_own(const char *name, size_t size, uid_t uid)
{
	char own[24];
	int n = snprintf(own, sizeof(own), "uid/%" PRIu32 "/", (uint32_t)uid);

	return begins_with(name, size, own, (size_t)n);
}

/* "uid/1000/anything", whoever that is. 0: it is nobody's. */
static size_t users_prefix(const char *name, size_t size)
{
	size_t n = 4;

	if (!begins_with(name, size, "uid/", n))
		return 0;
	while (n < size && name[n] >= '0' && name[n] <= '9')
		n++;
	return n > 4 && n < size && name[n] == '/' ? n + 1 : 0;
}

static bool has(const struct name_owner *o, enum name_right right, uid_t uid, const gid_t *groups,
		size_t n_groups)
{
	return principal_match(&o->lists[right], uid, groups, n_groups);
}

/* What the list says; and nobody makes what they could not use then. */
static bool entry_allows(const struct name_owner *o, enum name_right right, uid_t uid,
			 const gid_t *groups, size_t n_groups)
{
	bool allowed = has(o, right, uid, groups, n_groups);

	for (int i = NAME_USE + 1; right == NAME_USE && !allowed && i < NAME_RIGHTS; i++)
		allowed = has(o, (enum name_right)i, uid, groups, n_groups);
	return allowed;
}

bool name_owners_allow(const struct name_owners *o, const void *name, size_t size,
		       enum name_right right, uid_t uid, const gid_t *groups, size_t n_groups)
{
	size_t longest = users_prefix(name, size);
	const struct name_owner *entry = NULL;

	for (size_t i = 0; i < o->n_entries; i++) {
		size_t n = strlen(o->entries[i].prefix);

		if (n < longest || !begins_with(name, size, o->entries[i].prefix, n))
			continue;
		longest = n;
		entry = &o->entries[i];
	}
	if (entry)
		return entry_allows(entry, right, uid, groups, n_groups);
	switch (right) {
	case NAME_USE:
		return true;
	case NAME_PUBLISH:
	case NAME_CREATE:
		return longest == 0 || is_own(name, size, uid);
	default:
		return false;
	}
}

const char *name_right_name(enum name_right right)
{
	return rights[right];
}

const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix)
{
	for (size_t i = 0; i < o->n_entries; i++)
		if (strcmp(o->entries[i].prefix, prefix) == 0)
			return &o->entries[i];
	return NULL;
}

static int parse_rights(const struct config_reader *r, const struct config_path *path,
			json_t *object, struct name_owner *out)
{
	int e = config_check_keys(r, path, object, rights, NAME_RIGHTS);

	for (int i = 0; e == 0 && i < NAME_RIGHTS; i++) {
		const json_t *list = json_object_get(object, rights[i]);

		if (list)
			e = principal_list_parse(r, CONFIG_KEY(path, rights[i]), list,
						 &out->lists[i]);
	}
	return e;
}

static int parse_entry(const struct config_reader *r, const struct config_path *path, json_t *value,
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
	if (e == 0 && (!json_is_object(value) || !json_object_get(value, rights[NAME_USE])) &&
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
		e = parse_entry(r, CONFIG_KEY(path, prefix), value, owner);
		if (e != 0)
			return e;
	}
	return 0;
}

void name_owners_clear(struct name_owners *o)
{
	for (size_t i = 0; i < o->n_entries; i++) {
		free(o->entries[i].prefix);
		for (int k = 0; k < NAME_RIGHTS; k++)
			principal_list_clear(&o->entries[i].lists[k]);
	}
	free(o->entries);
	*o = (struct name_owners){0};
}
