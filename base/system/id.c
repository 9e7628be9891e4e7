/* SPDX-License-Identifier: MIT */

/* Users and groups by name. */

#include "base/system/id.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#define ENTRY_SIZE     4096u
#define ENTRY_SIZE_MAX (4u << 20) /* a group comes with the names of all its members */

static int look_up_user(const char *name, char *space, size_t size, id_t *out)
{
	struct passwd entry, *found = NULL;
	int r = getpwnam_r(name, &entry, space, size, &found);

	if (found)
		*out = found->pw_uid;
	return found ? 0 : r ? r : ENOENT;
}

static int look_up_group(const char *name, char *space, size_t size, id_t *out)
{
	struct group entry, *found = NULL;
	int r = getgrnam_r(name, &entry, space, size, &found);

	if (found)
		*out = found->gr_gid;
	return found ? 0 : r ? r : ENOENT;
}

/* With as much space as the entry takes. */
static int look_up(int (*function)(const char *, char *, size_t, id_t *), const char *name,
		   id_t *out)
{
	int r = ERANGE;

	for (size_t size = ENTRY_SIZE; r == ERANGE && size <= ENTRY_SIZE_MAX; size *= 4) {
		char *space = malloc(size);

		if (!space)
			return ENOMEM;
		r = function(name, space, size, out);
		free(space);
	}
	/* getpwnam_r(3) lists all these as ways to say that there is none */
	return r == ESRCH || r == EBADF || r == EPERM ? ENOENT : r;
}

int id_of_user(const char *name, id_t *out)
{
	return look_up(look_up_user, name, out);
}

int id_of_group(const char *name, id_t *out)
{
	return look_up(look_up_group, name, out);
}
