/* SPDX-License-Identifier: MIT */

/*
 * Whose names are. A name belongs to whoever comes first, be it of a buffer, a pool or a channel: a
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
#include "broker/rights/name_owner.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const name_rights[NAME_RIGHTS] = {"use", "publish", "create", "manage"};

static bool begins_with(const void *name, size_t size, const char *prefix, size_t n)
{
	return n <= size && memcmp(name, prefix, n) == 0;
}

/* Whether a name begins with this user's own prefix, "uid/1000/". Only the number as it is normally
 * written counts, so that no user has two prefixes. */
static bool is_own(const char *name, size_t size, uid_t uid)
{
	char own[24];
	int n = snprintf(own, sizeof(own), "uid/%" PRIu32 "/", (uint32_t)uid);

	return begins_with(name, size, own, (size_t)n);
}

/* Returns how long the prefix of a name is that is some user's own, as in "uid/1000/anything". 0:
 * it is nobody's. */
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

/* Whether the entry allows this: its list says so, or lets the user do something that would be of
 * no use without it. */
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

const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix)
{
	for (size_t i = 0; i < o->n_entries; i++)
		if (strcmp(o->entries[i].prefix, prefix) == 0)
			return &o->entries[i];
	return NULL;
}

void name_owners_deinit(struct name_owners *o)
{
	for (size_t i = 0; i < o->n_entries; i++) {
		free(o->entries[i].prefix);
		for (int k = 0; k < NAME_RIGHTS; k++)
			principal_list_deinit(&o->entries[i].lists[k]);
	}
	free(o->entries);
	*o = (struct name_owners){0};
}
