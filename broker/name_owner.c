/* SPDX-License-Identifier: MIT */

/*
 * Whose names are. A name is had by who comes first, be it of a buffer, a pool or a channel: a
 * stranger who publishes "frames/left" before the camera does keeps it from the camera, and is
 * believed by all who look it up. So the configuration can give names away by their beginning, and
 * each user has "uid/NUMBER/" without anything being said.
 *
 * The longest prefix that fits decides alone. So a part of what is somebody's can be another's, and
 * a list can be read without looking at the others.
 *
 * Must not know what names are for, nor where a peer's uid and groups come from.
 */
#include "broker/name_owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/text.h"

#define EXAMPLE "{\"frames/\": [\"alice\", \"@video\"]}"

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

bool name_owners_allow(const struct name_owners *o, const void *name, size_t size, uid_t uid,
		       const gid_t *groups, size_t n_groups)
{
	size_t longest = users_prefix(name, size);
	bool allowed = longest == 0 || is_own(name, size, uid);

	for (size_t i = 0; i < o->n_entries; i++) {
		size_t n = strlen(o->entries[i].prefix);

		if (n < longest || !begins_with(name, size, o->entries[i].prefix, n))
			continue;
		longest = n;
		allowed = principal_match(&o->entries[i].owners, uid, groups, n_groups);
	}
	return allowed;
}

const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix)
{
	for (size_t i = 0; i < o->n_entries; i++)
		if (strcmp(o->entries[i].prefix, prefix) == 0)
			return &o->entries[i];
	return NULL;
}

int name_owners_parse(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct name_owners *out)
{
	int e = config_check_object(r, path, object, EXAMPLE);
	const char *prefix;
	json_t *list;

	if (e != 0)
		return e;
	if (json_object_size(object) > ACCESS_MAX_ENTRIES)
		return config_fail(r, path, "%zu prefixes are too many (at most %d)",
				   json_object_size(object), ACCESS_MAX_ENTRIES);
	out->entries = calloc(json_object_size(object) + 1, sizeof(*out->entries));
	if (!out->entries)
		return config_fail_memory(r);
	json_object_foreach (object, prefix, list) {
		struct name_owner *owner = &out->entries[out->n_entries];

		if (!text_is_valid_name(prefix, strlen(prefix)))
			return config_fail(r, CONFIG_KEY(path, prefix),
					   "is not the beginning of a name");
		owner->prefix = strdup(prefix);
		if (!owner->prefix)
			return config_fail_memory(r);
		out->n_entries++;
		e = principal_list_parse(r, CONFIG_KEY(path, prefix), list, &owner->owners);
		if (e != 0)
			return e;
	}
	return 0;
}

void name_owners_clear(struct name_owners *o)
{
	for (size_t i = 0; i < o->n_entries; i++) {
		free(o->entries[i].prefix);
		principal_list_clear(&o->entries[i].owners);
	}
	free(o->entries);
	*o = (struct name_owners){0};
}
