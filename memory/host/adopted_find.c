/* SPDX-License-Identifier: MIT */

/*
 * From an address to the file that is mapped there. The kernel lists the mappings of a process with
 * the file of each, by device and inode. Which descriptor is of this file is found by looking at
 * all that the process has open; a file that has a name can be opened again.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <share/error.h>

#include "base/system/descriptor.h"
#include "memory/adopt.h"

/* One line of /proc/self/maps. */
struct line {
	uint64_t start, end, offset, inode;
	unsigned major, minor;
	char access[5];
	const char *path; /* in the line that was read; "" when it has none */
};

struct file {
	dev_t device;
	ino_t inode;
	uint64_t offset; /* of the first byte that is wanted */
	char *path;
};

static bool read_line(char *text, struct line *out)
{
	int path = 0;

	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
		   &out->start, &out->end, out->access, &out->offset, &out->major, &out->minor,
		   &out->inode, &path) < 7)
		return false;
	text[strcspn(text, "\n")] = '\0';
	out->path = text + path;
	return true;
}

static int check_line(const struct line *l, uint64_t at, struct failure *failure)
{
	if (strncmp(l->access, "---", 3) == 0)
		return failure_set(failure, SHARE_EINVAL,
				   "nobody may touch the addresses at 0x%" PRIx64
				   ": if that was memory of a GPU, it was freed",
				   at);
	if (l->access[3] != 's' || l->inode == 0)
		return failure_set(failure, SHARE_EINVAL,
				   "the memory at 0x%" PRIx64
				   " is this process's own (of malloc(), its stack, or mapped "
				   "without MAP_SHARED), so no other process can map it",
				   at);
	if (l->access[0] != 'r' || l->access[1] != 'w')
		return failure_set(
		    failure, SHARE_EINVAL,
		    "the memory at 0x%" PRIx64 " is not mapped for reading and writing", at);
	return 0;
}

/* The first line of the range says which file it is, and those behind it have to go on there. */
static int add_line(const struct line *l, uint64_t first, uint64_t at, struct file *out,
		    struct failure *failure)
{
	dev_t device = makedev(l->major, l->minor);
	uint64_t offset = l->offset + (at - l->start);
	int r = check_line(l, at, failure);

	if (r != 0)
		return r;
	if (at == first) {
		*out = (struct file){device, (ino_t)l->inode, offset, strdup(l->path)};
		return out->path ? 0 : failure_no_memory(failure, "this process");
	}
	if (device == out->device && (ino_t)l->inode == out->inode &&
	    offset == out->offset + (at - first))
		return 0;
	return failure_set(
	    failure, SHARE_EINVAL,
	    "the memory lies in more than one mapping: at 0x%" PRIx64 " begins another one", at);
}

static int nothing_at(uint64_t first, uint64_t at, struct failure *failure)
{
	if (at == first)
		return failure_set(failure, SHARE_EINVAL, "nothing is mapped at 0x%" PRIx64, at);
	return failure_set(failure, SHARE_EINVAL,
			   "only %" PRIu64 " bytes are mapped from 0x%" PRIx64 " on", at - first,
			   first);
}

/* @out->path is the caller's in any case. */
static int find_file(const void *address, uint64_t size, struct file *out, struct failure *failure)
{
	uint64_t first = (uintptr_t)address, at = first, end = first + size;
	FILE *maps = fopen("/proc/self/maps", "re");
	char *text = NULL;
	size_t room = 0;
	struct line l;
	int r = 0;

	if (!maps)
		return failure_system(failure, "reading /proc/self/maps", errno);
	while (r == 0 && at < end && getline(&text, &room, maps) > 0) {
		if (!read_line(text, &l) || l.end <= at)
			continue;
		if (l.start > at)
			break;
		r = add_line(&l, first, at, out, failure);
		at = l.end;
	}
	if (r == 0 && at < end)
		r = nothing_at(first, at, failure);
	free(text);
	fclose(maps);
	return r;
}

static bool is_that(const struct stat *st, const struct file *file)
{
	return st->st_dev == file->device && st->st_ino == file->inode;
}

static bool is_of(int fd, const struct file *file)
{
	struct stat st;

	return fstat(fd, &st) == 0 && is_that(&st, file);
}

static bool is_writable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR;
}

/* A copy of one that is open. Other threads may close theirs, and open others: so each is looked at
 * by its name, and nothing is done with one that is of another file. -1: there is none. */
static int copy_open(const struct file *file)
{
	DIR *all = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;
	int found = -1;

	while (all && found < 0 && (entry = readdir(all))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] == '.' || fstatat(dirfd(all), entry->d_name, &st, 0) != 0 ||
		    !is_that(&st, file) || !is_writable(fd))
			continue;
		found = fd_dup(fd);
		if (found >= 0 && (!is_of(found, file) || !is_writable(found)))
			found = fd_close(found);
	}
	if (all)
		closedir(all);
	return found;
}

static int open_copy(int fd, int mode)
{
	char path[sizeof("/proc/self/fd/") + 12];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, mode | O_CLOEXEC);
}

/* Others are to have one of their own: with a copy they would have the program's place in the file
 * as well, and its locks (flock(2)) would last as long as the buffer. Where the file's permissions
 * do not allow that, it is a copy all the same. Takes @fd. */
static int make_own(int fd)
{
	int own = open_copy(fd, O_RDWR);

	if (own < 0)
		return fd;
	fd_close(fd);
	return own;
}

static int open_again(const struct file *file)
{
	int fd = file->path[0] == '/' ? open(file->path, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;

	return fd >= 0 && !is_of(fd, file) ? fd_close(fd) : fd;
}

static int find_descriptor(const struct file *file, int *out, struct failure *failure)
{
	int fd = copy_open(file);

	fd = fd < 0 ? open_again(file) : make_own(fd);
	if (fd < 0)
		return failure_set(failure, SHARE_EINVAL,
				   "this process has no descriptor of that memory ('%s') that is "
				   "open for reading and writing, and cannot open it again: keep "
				   "the one by which it was mapped until it is adopted",
				   file->path);
	*out = fd;
	return 0;
}

static int open_for_reading(int fd, int *out, struct failure *failure)
{
	*out = open_copy(fd, O_RDONLY);
	return *out < 0 ? failure_system(failure, "opening the memory's file for reading", errno)
			: 0;
}

int memory_host_find(const void *address, uint64_t size, struct memory_found *out,
		     struct failure *failure)
{
	struct memory_segment found = {.recipe = {.size = size}, .fd = -1, .fd_readonly = -1};
	struct file file = {.path = NULL};
	int r = find_file(address, size, &file, failure);

	if (r == 0)
		r = find_descriptor(&file, &found.fd, failure);
	if (r == 0)
		r = open_for_reading(found.fd, &found.fd_readonly, failure);
	memcpy(found.recipe.pointer, &file.offset, sizeof(file.offset));
	if (r == 0)
		r = memory_adopted_check(found.fd, found.fd_readonly, &found.recipe, failure);
	free(file.path);
	if (r != 0) {
		fd_close(found.fd);
		fd_close(found.fd_readonly);
		return r;
	}
	*out = (struct memory_found){.kind = memory_kind_by_id(MEMORY_ADOPTED),
				     .segment = found,
				     .offset = memory_recipe_offset(&found.recipe),
				     .ordinal = -1};
	return 0;
}
