/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "broker/rights/principal.h"

/* What users may have of names that begin in one way. Whoever may have one of the others may use
 * such names, too. */
enum name_right {
	NAME_USE,     /* to look up, see and open what is called so */
	NAME_PUBLISH, /* to publish buffers */
	NAME_CREATE,  /* to create pools and channels */
	NAME_MANAGE,  /* to replace, withdraw and destroy what others have made */
	NAME_RIGHTS,
};

/* Whose names are that begin with this prefix. */
struct name_owner {
	char *prefix;
	struct principal_list lists[NAME_RIGHTS]; /* by enum name_right */
};

/* All zero is what holds when nothing is said. */
struct name_owners {
	struct name_owner *entries;
	size_t n_entries;
};

/** Whether the peer, with this @uid and all its @groups, the primary one included, has this right
 * on that name, as far as its beginning says. It looks at nothing else. */
bool name_owners_allow(const struct name_owners *o, const void *name, size_t size,
		       enum name_right right, uid_t uid, const gid_t *groups, size_t n_groups);

/** The names of rights in the file: "use". */
extern const char *const name_rights[NAME_RIGHTS];

/** Finds what is said of exactly this prefix; NULL: nothing is. */
const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix);

void name_owners_deinit(struct name_owners *o);
