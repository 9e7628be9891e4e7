/* SPDX-License-Identifier: MIT */

/*
 * The exporter of host memory. A segment is a memfd whose size is sealed, so that nobody can make
 * its users fault by truncating it. Clients that may only read get a second descriptor, which is
 * open for reading only, and which the kernel refuses to map for writing.
 *
 * The system takes pages for it when they are first touched, as with malloc, unless they are made
 * ahead or reserved (pages.c).
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <share/error.h>

#include <share/share.h>

#include "base/beat.h"
#include "base/failure.h"
#include "memory/host/inside.h"

#define PIECE (UINT64_C(1) << 30)

/* linux/memfd.h */
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

/* Opens the memfd once more, before memory_host_create() takes its permissions away; after that
 * nobody can open it again for writing through /proc. */
static int open_readonly(int fd)
{
	char path[sizeof("/proc/self/fd/") + 12];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static uint32_t flags_of(const struct memory_host_pages *pages)
{
	if (pages->huge_pages == SHARE_HUGE_PAGES_REQUIRE)
		return MEMORY_HUGETLB;
	return pages->huge_pages == SHARE_HUGE_PAGES_ADVISE ? MEMORY_HUGE_PAGES : 0;
}

int memory_host_create(const struct memory_host_pages *pages, uint64_t size, uint64_t address,
		       struct memory_segment *out, struct failure *failure)
{
	uint32_t flags = flags_of(pages);
	int fd, readonly, r;

	if (size == 0 || size > INT64_MAX)
		return failure_set(failure, SHARE_EINVAL, "no memfd can have %llu bytes",
				   (unsigned long long)size);
	fd = memfd_create("share-segment",
			  MFD_CLOEXEC | MFD_ALLOW_SEALING |
			      (flags & MEMORY_HUGETLB ? MFD_HUGETLB | MFD_HUGE_2MB : 0u));
	if (fd < 0)
		return failure_system(failure, "memfd_create", errno);
	readonly = open_readonly(fd);
	if (readonly < 0) {
		r = failure_system(failure, "opening a memfd for reading", errno);
		goto close_fd;
	}
	if (fchmod(fd, 0) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		r = failure_system(failure, "sizing and sealing a memfd", errno);
		goto close_both;
	}
	r = memory_host_set_up(pages, fd, size, failure);
	if (r != 0)
		goto close_both;
	*out = (struct memory_segment){.recipe = {.size = size, .address = address, .flags = flags},
				       .fd = fd,
				       .fd_readonly = readonly};
	memory_identify(&out->recipe);
	return 0;

close_both:
	close(readonly);
close_fd:
	close(fd);
	return r;
}

static int create_as_ever(uint64_t size, uint64_t address, struct memory_segment *out,
			  struct failure *failure)
{
	const struct memory_host_pages pages = {SHARE_HUGE_PAGES_SYSTEM, SHARE_NUMA_ANY};

	return memory_host_create(&pages, size, address, out, failure);
}

static int host_destroy(struct memory_segment *segment, struct failure *failure)
{
	(void)failure;
	if (segment->fd < 0)
		return 0;
	close(segment->fd);
	close(segment->fd_readonly);
	segment->fd = segment->fd_readonly = -1;
	return 0;
}

/* In pieces, as the system needs a second for some gigabytes. */
static int give_back(const struct memory_segment *segment, uint64_t offset, uint64_t size)
{
	for (uint64_t done = 0; done < size; done += PIECE) {
		uint64_t n = size - done < PIECE ? size - done : PIECE;

		if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)(offset + done), (off_t)n) < 0)
			return -errno;
		beat();
	}
	return 0;
}

int memory_host_discard(const struct memory_segment *segment)
{
	return give_back(segment, 0, segment->recipe.size);
}

/* The kernel copies them. Where there is no page, as whoever can write to the segment has given it
 * back and it is somebody else's by now, it says so, and a store would be the end of this process.
 */
static int read_zeros(int zeros, char *at, uint64_t size)
{
	ssize_t n;

	for (uint64_t done = 0; done < size; done += (uint64_t)n) {
		n = pread(zeros, at + done, size - done, 0);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	return 0;
}

/* A file of nothing but zeros, which take no memory. */
static int open_zeros(void)
{
	int fd = memfd_create("share-zeros", MFD_CLOEXEC), r;

	if (fd < 0 || ftruncate(fd, MEMORY_HOST_PIECE) == 0)
		return fd < 0 ? -errno : fd;
	r = -errno;
	close(fd);
	return r;
}

/* Huge pages that went back might be somebody else's before they are needed again. */
static int write_zeros(const struct memory_segment *segment, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size, at = offset - offset % MEMORY_HOST_PIECE;
	struct memory_host_window w;
	int zeros = open_zeros(), r = zeros < 0 ? zeros : memory_host_window_open(&w);

	if (r < 0)
		goto close_zeros;
	for (; r == 0 && at < end; at += MEMORY_HOST_PIECE) {
		uint64_t from = at < offset ? offset - at : 0;

		r = memory_host_window_move(&w, segment, at);
		if (r == 0)
			r = read_zeros(zeros, w.address + from,
				       (end - at < w.size ? end - at : w.size) - from);
		beat();
	}
	memory_host_window_close(&w);
close_zeros:
	if (zeros >= 0)
		close(zeros);
	return r;
}

int memory_host_zero(const struct memory_segment *segment, uint64_t offset, uint64_t size)
{
	return segment->recipe.flags & MEMORY_HUGETLB ? write_zeros(segment, offset, size)
						      : give_back(segment, offset, size);
}

const struct memory_exporter memory_host_exporter = {
    .kind = MEMORY_HOST,
    .create = create_as_ever,
    .destroy = host_destroy,
};
