/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "broker/rights/principal.h"

/** What somebody may do with a pool, in bits. ACCESS_READ and ACCESS_WRITE are those of
 * share_access. */
enum access_mode {
	ACCESS_READ = 1 << 0,
	ACCESS_WRITE = 1 << 1,
	ACCESS_MANAGE = 1 << 2,
};
#define ACCESS_RO  ((unsigned)ACCESS_READ)
#define ACCESS_RW  ((unsigned)(ACCESS_READ | ACCESS_WRITE))
#define ACCESS_ALL ((unsigned)(ACCESS_READ | ACCESS_WRITE | ACCESS_MANAGE))

struct access_entry {
	struct principal who;
	unsigned mode; /* bits of enum access_mode */
};

/** Who may do what with a pool. All zero is the empty list, which lets nobody in. */
struct access_list {
	struct access_entry *entries;
	size_t n_entries;
};

/** Lets @who in with @mode on top of what the list says; giving it twice changes nothing. That is
 * how a pool's owner gets ACCESS_ALL. Returns 0 or -ENOMEM. */
int access_grant(struct access_list *list, struct principal who, unsigned mode);

/** Returns what the peer may do: all that its matching entries allow together, 0 if there are
 * none. */
unsigned access_check(const struct access_list *list, uid_t uid, const gid_t *groups,
		      size_t n_groups);

/** Whether more than one user may write, for all the list says; @own may in any case. Root is not
 * counted, who can read all memory anyway. */
bool access_lets_several_write(const struct access_list *list, uid_t own);

/** Whether both let the same users and groups do the same, in whatever order they say so. */
bool access_list_equal(const struct access_list *a, const struct access_list *b);

/** Writes the list as it could stand in the configuration, with numbers, so that it can be shown;
 * what does not fit becomes "...". @size must be at least 8. Returns @out. */
char *access_format(const struct access_list *list, char *out, size_t size);

/** Returns what the file calls it: "ro", "rw", "manage"; "nothing" for 0. Static storage. */
const char *access_mode_name(unsigned mode);
/** Returns the mode of this name; 0: there is none. */
unsigned access_mode_named(const char *name);

/** Copies a list. Returns 0 or -ENOMEM. @out is written on success only (what it held is not
 * freed), for access_list_deinit(). */
int access_list_copy(struct access_list *out, const struct access_list *from);

/** Frees the entries and leaves an empty list. */
void access_list_deinit(struct access_list *list);
