/* SPDX-License-Identifier: MIT */

/*
 * Where the broker serves. What can be wrong with a path is looked for before anything is bound to
 * it, so that `share-broker --check` has the same answer as the broker that starts: bind() itself
 * has but one word for a directory that was misspelled and one that nobody has made yet.
 *
 * The last directory is made if it is missing, for it may lie where everything is gone after a
 * restart of the machine. Those above are the operator's: a path of which they are missing, too, is
 * more likely to be misspelled.
 */

#include "broker/socket/socket_path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ADVICE "name another path (\"socket\" in the configuration, or --socket)"

int socket_path_default(char *out, size_t size, char *error, size_t error_size)
{
	const char *parent = geteuid() == 0 ? "/run" : secure_getenv("XDG_RUNTIME_DIR");

	if (!parent || parent[0] != '/') {
		snprintf(error, error_size,
			 "no path for the socket: XDG_RUNTIME_DIR is %s (set \"socket\" in the "
			 "configuration, or use --socket)",
			 parent && parent[0] ? "not absolute" : "not set");
		return -EINVAL;
	}
	if ((size_t)snprintf(out, size, "%s/share/broker.sock", parent) < size)
		return 0;
	snprintf(error, error_size, "%s/share/broker.sock: %s", parent, strerror(ENAMETOOLONG));
	return -ENAMETOOLONG;
}

/* Puts the directory in which @path lies into @out. */
static void directory_of(const char *path, char out[static PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	while (slash && slash > path && slash[-1] == '/')
		slash--;
	if (!slash)
		strcpy(out, ".");
	else if (slash == path)
		strcpy(out, "/");
	else
		snprintf(out, PATH_MAX, "%.*s", (int)(slash - path), path);
}

/* 0 if this user can make something in the directory, else negative errno. */
static int look_at_directory(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return access(path, W_OK | X_OK) < 0 ? -errno : 0;
}

/* Makes a directory with exactly this mode, whatever the umask is. */
static int make_directory(const char *path, mode_t mode)
{
	mode_t before = umask(0);
	int r = mkdir(path, mode) < 0 && errno != EEXIST ? -errno : 0;

	umask(before);
	return r;
}

static int check_file(const char *path, char *error, size_t error_size)
{
	struct stat st;

	if (lstat(path, &st) < 0 || S_ISSOCK(st.st_mode))
		return 0;
	if (S_ISDIR(st.st_mode))
		snprintf(error, error_size, "%s: this is a directory, not a socket (" ADVICE ")",
			 path);
	else
		snprintf(error, error_size,
			 "%s: there is a file that is no socket (remove it, or " ADVICE ")", path);
	return -EEXIST;
}

int socket_path_check(const char *path, bool make, bool common, char *error, size_t error_size)
{
	const size_t longest = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
	char directory[PATH_MAX], parent[PATH_MAX];
	int r;

	if (strlen(path) > longest) {
		snprintf(error, error_size, "%s: the path of a socket has at most %zu bytes", path,
			 longest);
		return -ENAMETOOLONG;
	}
	directory_of(path, directory);
	directory_of(directory, parent);
	r = look_at_directory(directory);
	if (r == 0)
		return check_file(path, error, error_size);
	if (r != -ENOENT) {
		snprintf(error, error_size,
			 "%s: uid %u cannot make a socket in %s: %s (%s" ADVICE ")", path,
			 (unsigned)geteuid(), directory, strerror(-r),
			 r == -EACCES ? "let that user write there, or " : "");
		return r;
	}
	r = look_at_directory(parent);
	if (r == 0 && make)
		r = make_directory(directory, common ? 0755 : 0700);
	if (r < 0)
		snprintf(error, error_size,
			 "%s: there is no directory %s, and uid %u cannot make it in %s: %s (make "
			 "it for that user, or " ADVICE ")",
			 path, directory, (unsigned)geteuid(), parent, strerror(-r));
	return r;
}
