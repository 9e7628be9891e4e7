/* SPDX-License-Identifier: MIT */
#ifndef BROKER_CONFIG_PRINCIPAL_H
#define BROKER_CONFIG_PRINCIPAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <jansson.h>

#include "broker/config/reader.h"

#define PRINCIPAL_LIST_MAX 256 /* entries of one list */

enum principal_type {
	PRINCIPAL_EVERYONE = 0,
	PRINCIPAL_USER,
	PRINCIPAL_GROUP,
};

/** Who. */
struct principal {
	enum principal_type type;
	id_t id; /* a uid or a gid; 0 for everyone */
};

/** Some users and groups. All zero is the empty list. */
struct principal_list {
	struct principal *entries;
	size_t n_entries;
};

/** The uid of a user given by name, or in digits when there is no user of that name. Returns 0,
 * CONFIG_EINVALID when there is none, or a negative errno of the system's user database. */
int principal_find_user(const char *name, uid_t *out);

/** The same for groups. */
int principal_find_group(const char *name, gid_t *out);

/* Peers: @uid and all their @groups, the primary one included. */

/**
 * Reads a list like ["root", "@video", 1000, "*"]. @path says where it is, for messages. Returns
 * 0, CONFIG_EINVALID or a negative errno, worded in the reader's buffer. @out is written on
 * success only (what it held is not freed), for principal_list_clear().
 */
int principal_list_parse(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, struct principal_list *out);

bool principal_equal(struct principal a, struct principal b);

/** Adds @who unless it is there. Returns 0 or -ENOMEM. */
int principal_list_add(struct principal_list *list, struct principal who);

/** Whether the peer is on the list. */
bool principal_match(const struct principal_list *list, uid_t uid, const gid_t *groups,
		     size_t n_groups);

/** Frees the entries and leaves an empty list. */
void principal_list_clear(struct principal_list *list);

/** Refuses what is no list of entries, or of too many; @example shows one. */
int principal_check_list(const struct config_reader *r, const struct config_path *path,
			 const json_t *array, const char *example);

/** Reads the user or group, as @who->type says, that @value names: by @name, or by number if that
 * is NULL. */
int principal_parse(const struct config_reader *r, const struct config_path *path,
		    const json_t *value, const char *name, struct principal *who);

/** Whether the peer is this user, or of this group. */
bool principal_is(struct principal who, uid_t uid, const gid_t *groups, size_t n_groups);

#endif
