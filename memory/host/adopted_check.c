/* SPDX-License-Identifier: MIT */

/*
 * What a client brings is not trusted: it may be a descriptor of anything, and its file may become
 * smaller at any time, under who reads it. What is asked first is answered by the kernel alone, and
 * not by a file system that belongs to the client, which could have the broker wait for as long as
 * it likes. A seal cannot be taken away again, so it is read before the size that it keeps.
 */

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <share/error.h>

#include "memory/adopt.h"

#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Which no other driver can have (Documentation/admin-guide/devices.txt of the kernel). */
#define NVIDIA_MAJOR 195

/*
 * The driver exports memory as descriptors of its device for control (/dev/nvidiactl). A path to
 * one that nobody has opened (O_PATH) may be in a file system that says so of anything. What
 * statx() is not to bring up to date the kernel knows already.
 */
static bool is_of_driver(int fd)
{
	struct statx st;

	return !(fcntl(fd, F_GETFL) & O_PATH) &&
	       statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
	       S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR;
}

bool memory_may_be_brought(int fd)
{
	return fcntl(fd, F_GET_SEALS) >= 0 || is_of_driver(fd);
}

static int check_type(int fd, int *seals, struct stat *st, struct failure *failure)
{
	struct statfs fs;

	*seals = fcntl(fd, F_GET_SEALS);
	if (*seals < 0)
		return failure_set(failure, SHARE_EINVAL,
				   "the memory is not of a memfd, nor of a file on a tmpfs: only "
				   "these can be adopted");
	if (fstat(fd, st) < 0 || fstatfs(fd, &fs) < 0)
		return failure_system(failure, "looking at a file in memory", errno);
	if (fs.f_type != TMPFS_MAGIC)
		return failure_set(failure, SHARE_ENOTSUP,
				   "the memory consists of huge pages of hugetlbfs, which cannot "
				   "be adopted");
	if (!S_ISREG(st->st_mode))
		return failure_set(failure, SHARE_EINVAL, "the descriptor is of no regular file");
	return 0;
}

static bool is_open_as(int fd, int mode)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == mode;
}

static int check_same(int fd_readonly, const struct stat *st, struct failure *failure)
{
	struct stat other;
	int seals, r = check_type(fd_readonly, &seals, &other, failure);

	if (r != 0)
		return r;
	if (other.st_dev != st->st_dev || other.st_ino != st->st_ino ||
	    !is_open_as(fd_readonly, O_RDONLY))
		return failure_set(failure, SHARE_EINVAL,
				   "the second descriptor is not the same file, open for reading");
	return 0;
}

static int check_range(const struct stat *st, const struct memory_recipe *recipe,
		       struct failure *failure)
{
	uint64_t offset = memory_recipe_offset(recipe), size = (uint64_t)st->st_size;

	if (recipe->size > 0 && offset <= size && recipe->size <= size - offset)
		return 0;
	return failure_set(failure, SHARE_EINVAL,
			   "%llu bytes from byte %llu on are not in the file, which has %llu",
			   (unsigned long long)recipe->size, (unsigned long long)offset,
			   (unsigned long long)size);
}

int memory_adopted_check(int fd, int fd_readonly, struct memory_recipe *recipe,
			 struct failure *failure)
{
	struct stat st;
	int seals, r = check_type(fd, &seals, &st, failure);

	if (r == 0)
		r = check_same(fd_readonly, &st, failure);
	if (r != 0)
		return r;
	if (!is_open_as(fd, O_RDWR))
		return failure_set(failure, SHARE_EINVAL,
				   "the descriptor of the memory is not open for reading and "
				   "writing");
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return failure_set(failure, SHARE_EINVAL,
				   "the memory is sealed against writing (F_SEAL_WRITE), and a "
				   "buffer can be written");
	recipe->flags = seals & F_SEAL_SHRINK ? 0 : MEMORY_MAY_SHRINK;
	/* its size from after the seal was seen */
	if (fstat(fd, &st) < 0)
		return failure_system(failure, "looking at a file in memory", errno);
	return check_range(&st, recipe, failure);
}

/* ------------------------------------------------------------------------------------------- */

int memory_adopted_check_device(const struct memory_kind *kind, int fd,
				const struct memory_recipe *recipe, struct failure *failure)
{
	if (!kind || (kind->id != MEMORY_VMM && kind->id != MEMORY_LEGACY))
		return failure_set(failure, SHARE_EINVAL,
				   "memory of a device is brought as that of kind vmm or legacy");
	if (memory_recipe_has_handle(recipe) != kind->of_maker)
		return failure_set(failure, SHARE_EINVAL,
				   "memory of kind legacy has a handle, and no other has");
	if (!kind->of_maker && !memory_may_be_brought(fd))
		return failure_set(failure, SHARE_EINVAL,
				   "the descriptor is not of memory of a device");
	if (recipe->address != 0)
		return failure_set(failure, SHARE_EINVAL,
				   "what is there already lies at no address of everybody's");
	return memory_recipe_check(kind, recipe, failure);
}
