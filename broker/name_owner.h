/* SPDX-License-Identifier: MIT */
#ifndef BROKER_NAME_OWNER_H
#define BROKER_NAME_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "broker/access.h"
#include "broker/config_reader.h"

/* Whose names are: by what they begin with. */
struct name_owner {
	char *prefix;
	struct principal_list owners;
};

/* All zero: what holds when nothing is said. */
struct name_owners {
	struct name_owner *entries;
	size_t n_entries;
};

/**
 * Whether the peer may make something of this name: publish it, create a pool or a channel that is
 * called so. Pure. @uid and all its @groups, the primary one included.
 */
bool name_owners_allow(const struct name_owners *o, const void *name, size_t size, uid_t uid,
		       const gid_t *groups, size_t n_groups);

/** Of exactly this prefix; NULL: nothing is said of it. */
const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix);

/**
 * Reads an object like {"frames/": ["alice", "@video"]}. Returns 0, CONFIG_EINVALID or a negative
 * errno, worded in the reader's buffer. @out is for name_owners_clear() in any case.
 */
int name_owners_parse(const struct config_reader *r, const struct config_path *path, json_t *object,
		      struct name_owners *out);

void name_owners_clear(struct name_owners *o);

#endif
