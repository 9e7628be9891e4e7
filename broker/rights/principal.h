/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum principal_type {
	PRINCIPAL_EVERYONE = 0,
	PRINCIPAL_USER,
	PRINCIPAL_GROUP,
};

/** Who is meant: everyone, a user or a group. */
struct principal {
	enum principal_type type;
	id_t id; /* a uid or a gid; 0 for everyone */
};

/** Some users and groups. All zero is the empty list. */
struct principal_list {
	struct principal *entries;
	size_t n_entries;
};

/* A peer is its @uid and all its @groups, the primary one included. */

bool principal_equal(struct principal a, struct principal b);

/** Adds @who unless it is there. Returns 0 or -ENOMEM. */
int principal_list_add(struct principal_list *list, struct principal who);

/** Whether exactly this user or group is on the list. */
bool principal_list_has(const struct principal_list *list, struct principal who);

/** Whether the peer is on the list. */
bool principal_match(const struct principal_list *list, uid_t uid, const gid_t *groups,
		     size_t n_groups);

/** Frees the entries and leaves an empty list. */
void principal_list_deinit(struct principal_list *list);

/** Whether the peer is this user, or of this group. */
bool principal_is(struct principal who, uid_t uid, const gid_t *groups, size_t n_groups);
