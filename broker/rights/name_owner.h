/* SPDX-License-Identifier: MIT */
#ifndef BROKER_RIGHTS_NAME_OWNER_H
#define BROKER_RIGHTS_NAME_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "broker/rights/principal.h"

/* What can be had of names that begin so. Who may have one of the others may use them, too. */
enum name_right {
	NAME_USE,     /* what is called so: look it up, see it, open it */
	NAME_PUBLISH, /* buffers */
	NAME_CREATE,  /* pools and channels */
	NAME_MANAGE,  /* replace, withdraw and destroy what others have made */
	NAME_RIGHTS,
};

/* Whose names are: by what they begin with. */
struct name_owner {
	char *prefix;
	struct principal_list lists[NAME_RIGHTS]; /* by enum name_right */
};

/* All zero: what holds when nothing is said. */
struct name_owners {
	struct name_owner *entries;
	size_t n_entries;
};

/**
 * Whether the peer has this right on that name, as far as its beginning says. Pure. @uid and all
 * its @groups, the primary one included.
 */
bool name_owners_allow(const struct name_owners *o, const void *name, size_t size,
		       enum name_right right, uid_t uid, const gid_t *groups, size_t n_groups);

/** As in the file: "use". */
extern const char *const name_rights[NAME_RIGHTS];

/** Of exactly this prefix; NULL: nothing is said of it. */
const struct name_owner *name_owners_find(const struct name_owners *o, const char *prefix);

void name_owners_deinit(struct name_owners *o);

#endif
