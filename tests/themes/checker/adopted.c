/* SPDX-License-Identifier: MIT */

/*
 * Buffers that are memory which a worker had before: host memory of its own, in a file in memory.
 * The worker unmaps it when the library says that nobody has it any more, and what was wrong about
 * that would be a SIGSEGV.
 */

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/themes/checker/worker.h"

struct range {
	void *address;
	size_t size;
};

static void unmap(void *data)
{
	struct range *r = data;

	munmap(r->address, r->size);
	free(r);
}

static struct range *map(int fd, size_t size)
{
	struct range *r = malloc(sizeof(*r));

	if (fd < 0 || !r || ftruncate(fd, (off_t)size) < 0)
		abort();
	*r = (struct range){mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), size};
	if (r->address == MAP_FAILED)
		abort();
	return r;
}

int adopt_some(struct worker *w, unsigned stream, share_buffer **out)
{
	share_alloc_options options = SHARE_ALLOC_OPTIONS_INIT;
	uint64_t size = any_size(w);
	int fd = memfd_create("checker", MFD_CLOEXEC | MFD_ALLOW_SEALING), e;
	struct range *r = map(fd, size);

	options.memory = r->address;
	options.done = unmap;
	options.data = r;
	e = share_alloc_with(w->adopted, size, &options, w->streams[stream], out);
	close(fd);
	if (e != 0)
		unmap(r);
	return e;
}
