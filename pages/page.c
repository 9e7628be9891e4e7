/* SPDX-License-Identifier: MIT */

/* Pages: memfds with seals. This file knows no layout: timeline.c and channel_page.c know what is
 * in a page. */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/descriptor.h"
#include "base/system/mapping.h"
#include "pages/page.h"

#define SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

int page_create(const char *name, size_t size)
{
	_cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int taken;

	if (fd < 0)
		return -errno;
	/* With no permissions left, only a process that has the descriptor can reach the page;
	 * opening it through /proc fails too. */
	if (fchmod(fd, 0) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		return -errno;
	taken = fd;
	fd = -1;
	return taken;
}

int page_seal(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	/* by a process that died before it could say so */
	if (seals >= 0 && (seals & SEALS) == SEALS)
		return 0;
	return fcntl(fd, F_ADD_SEALS, SEALS) < 0 ? -errno : 0;
}

int page_map(int fd, size_t size, bool writable, void **out)
{
	struct stat st;
	void *p;

	/* Never map more than the descriptor has, whoever sent it: to read there would raise
	 * SIGBUS. */
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || (size_t)st.st_size < size)
		return -EINVAL;
	p = mapping_make(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd);
	if (!p)
		return -errno;
	if (writable)
		madvise(p, size, MADV_DONTFORK);
	*out = p;
	return 0;
}

void page_unmap(const void *page, size_t size)
{
	if (page)
		munmap((void *)(uintptr_t)page, size);
}
