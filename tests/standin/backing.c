/* SPDX-License-Identifier: MIT */

/*
 * Device memory: memfds. Their names say which device they are of, so that what a device has left
 * can be counted from outside, over every descriptor of every process: whoever crashed, this is the
 * truth, and memory is given back when the last descriptor is closed, as with the real driver. They
 * are sparse: a segment of 4 GiB costs nothing until it is written.
 *
 * Every mapping keeps its backing, so descriptors are all there is to count. One that is in flight
 * in a socket is nobody's for that long.
 */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/standin/standin.h"

#define PREFIX "/memfd:standin-gpu"

struct census {
	unsigned device;
	uint64_t bytes;
	ino_t *inodes;
	size_t count, room;
};

static bool seen(struct census *c, ino_t inode)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->inodes[i] == inode)
			return true;
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 64;
		ino_t *inodes = realloc(c->inodes, room * sizeof(*inodes));

		if (!inodes)
			abort();
		c->inodes = inodes;
		c->room = room;
	}
	c->inodes[c->count++] = inode;
	return false;
}

/* The descriptors of one process: it may end meanwhile. */
static void count_process(struct census *c, const char *pid)
{
	char path[64], link[128], wanted[64];
	int wanted_length =
	    snprintf(wanted, sizeof(wanted), PREFIX "%u:%u:", c->device, machine.number);
	struct dirent *e;
	struct stat st;
	ssize_t n;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	fds = opendir(path);
	if (!fds)
		return;
	while ((e = readdir(fds))) {
		n = readlinkat(dirfd(fds), e->d_name, link, sizeof(link) - 1);
		if (n < wanted_length || strncmp(link, wanted, (size_t)wanted_length) != 0)
			continue;
		if (fstatat(dirfd(fds), e->d_name, &st, 0) == 0 && !seen(c, st.st_ino))
			c->bytes += (uint64_t)st.st_size;
	}
	closedir(fds);
}

static uint64_t device_used(unsigned device)
{
	struct census c = {.device = device};
	DIR *processes = opendir("/proc");
	struct dirent *e;

	if (!processes)
		return 0;
	while ((e = readdir(processes)))
		if (isdigit((unsigned char)e->d_name[0]))
			count_process(&c, e->d_name);
	closedir(processes);
	free(c.inodes);
	return c.bytes;
}

uint64_t device_free(unsigned device)
{
	uint64_t used = device_used(device);

	return used < machine.memory ? machine.memory - used : 0;
}

static struct backing *backing_new(int fd, unsigned device)
{
	struct backing *b = calloc(1, sizeof(*b));
	struct stat st;

	if (!b || fstat(fd, &st) != 0)
		abort();
	b->references = 1;
	b->fd = fd;
	b->device = device;
	b->size = (uint64_t)st.st_size;
	b->inode = st.st_ino;
	return b;
}

/* Taken first and counted then: two processes at once may both be refused the last of it, but never
 * get more than there is. Of the host there is as much as anybody wants. */
static CUresult size_to(int fd, unsigned device, uint64_t from, uint64_t size)
{
	bool limited = device != STANDIN_HOST;

	if ((limited && size - from > machine.memory) || ftruncate(fd, (off_t)size) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (limited && !taken_add(device, size - from)) {
		uint64_t mark = taken_count(device), used = device_used(device);

		if (used > machine.memory) {
			if (ftruncate(fd, (off_t)from) != 0)
				abort();
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		taken_counted(device, mark, used);
	}
	return CUDA_SUCCESS;
}

CUresult backing_create(unsigned device, const char *type, uint64_t size, struct backing **out)
{
	CUresult result;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "standin-gpu%u:%u:%s", device, machine.number, type);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	result = size_to(fd, device, 0, size);
	if (result != CUDA_SUCCESS) {
		close(fd);
		return result;
	}
	*out = backing_new(fd, device);
	return CUDA_SUCCESS;
}

CUresult backing_grow(struct backing *b, uint64_t size)
{
	CUresult result = size_to(b->fd, b->device, b->size, size);

	if (result == CUDA_SUCCESS)
		b->size = size;
	return result;
}

CUresult backing_import(int fd, const char *type, struct backing **out)
{
	char path[64], link[128], name[16];
	unsigned device, number;
	ssize_t n;
	int own;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return CUDA_ERROR_INVALID_VALUE;
	link[n] = '\0';
	if (sscanf(link, PREFIX "%u:%u:%15[a-z]", &device, &number, name) != 3 ||
	    strcmp(name, type) != 0 || number != machine.number)
		return CUDA_ERROR_INVALID_VALUE;
	if (device != STANDIN_HOST && ordinal_of(device) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*out = backing_new(own, device);
	return CUDA_SUCCESS;
}

struct backing *backing_ref(struct backing *b)
{
	atomic_fetch_add(&b->references, 1);
	return b;
}

struct backing *backing_unref(struct backing *b)
{
	if (b && atomic_fetch_sub(&b->references, 1) == 1) {
		close(b->fd);
		free(b);
	}
	return NULL;
}

int backing_export(const struct backing *b)
{
	return fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
}
