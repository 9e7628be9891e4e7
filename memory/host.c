/* SPDX-License-Identifier: MIT */

/*
 * Host memory: a segment is a memfd whose size is sealed, so that nobody who maps it can be made
 * to fault by truncating it. Readers get a descriptor opened read-only, which the kernel refuses
 * to map for writing.
 *
 * Pages are taken from the system when they are first touched, as with malloc.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/kind.h"

/* Opened before the mode is taken away, so that holders of it cannot reopen it for writing. */
static int open_readonly(int fd)
{
	char path[sizeof("/proc/self/fd/") + 12];
	int readonly;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	readonly = open(path, O_RDONLY | O_CLOEXEC);
	return readonly < 0 ? -errno : readonly;
}

static int host_create(struct memory_segment *out, uint64_t size)
{
	int fd, readonly, r;

	if (size > INT64_MAX)
		return -EFBIG;
	fd = memfd_create("share-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	readonly = open_readonly(fd);
	if (readonly < 0) {
		r = readonly;
		goto close_fd;
	}
	if (fchmod(fd, 0) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		r = -errno;
		goto close_both;
	}
	*out = (struct memory_segment){.size = size, .fd = fd, .fd_readonly = readonly};
	return 0;

close_both:
	close(readonly);
close_fd:
	close(fd);
	return r;
}

static void host_destroy(struct memory_segment *segment)
{
	if (segment->fd < 0)
		return;
	close(segment->fd);
	close(segment->fd_readonly);
	segment->fd = segment->fd_readonly = -1;
}

static int host_discard(struct memory_segment *segment)
{
	int r = 0;

	if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)segment->size) < 0)
		r = -errno;
	host_destroy(segment);
	return r;
}

/* Offsets in a segment are aligned to its start, so the start is aligned to the largest promise. */
static void *map_aligned(int fd, uint64_t size, int protection)
{
	char *reserved, *start, *end;
	void *mapped;

	reserved = mmap(NULL, size + MEMORY_ALIGNMENT, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		return NULL;
	end = reserved + size + MEMORY_ALIGNMENT;
	start = reserved + (-(uintptr_t)reserved & (MEMORY_ALIGNMENT - 1));
	mapped = mmap(start, size, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED) {
		int saved = errno;

		munmap(reserved, size + MEMORY_ALIGNMENT);
		errno = saved;
		return NULL;
	}
	if (start > reserved)
		munmap(reserved, (size_t)(start - reserved));
	munmap(start + size, (size_t)(end - (start + size)));
	return mapped;
}

static int host_import(int fd, uint64_t size, bool writable, void **out)
{
	struct stat st;
	void *p;

	/* the recipe comes from another process: never map beyond what is there */
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size < size)
		return -EINVAL;
	p = map_aligned(fd, size, writable ? PROT_READ | PROT_WRITE : PROT_READ);
	if (!p)
		return -errno;
	/* leases belong to one process; a forked child that touches the memory faults */
	madvise(p, size, MADV_DONTFORK);
	*out = p;
	return 0;
}

static void host_unmap(void *address, uint64_t size)
{
	munmap(address, size);
}

const struct memory_kind memory_host = {
    .name = "host",
    .id = MEMORY_HOST,
    .granularity = 4096,
    .create = host_create,
    .destroy = host_destroy,
    .discard = host_discard,
    .import = host_import,
    .unmap = host_unmap,
};
