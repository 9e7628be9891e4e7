/* SPDX-License-Identifier: MIT */

/*
 * What a core dump of this process has of the memory of pools. By default it has none of it
 * (base/system/mapping.h). With SHARE_DUMP=mine it has the blocks of host memory that this process
 * may write, for whoever looks for an error in what it wrote. A dump consists of whole pages, and a
 * page can have parts of several blocks; so each page counts the buffers that want it there.
 */

#include <stdlib.h>
#include <unistd.h>

#include "base/system/mapping.h"
#include "libshare/buffer/inside.h"

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* One buffer more or less wants a page. True when it is the first or the last one. */
static bool count(struct segment *s, uint64_t page, bool more)
{
	return more ? s->dumped[page]++ == 0 : --s->dumped[page] == 0;
}

static void count_all(share_buffer *b, bool more)
{
	uint64_t size = page_size(), at = b->offset / size, end = at + b->dumped, changed;
	struct segment *s = b->segment;

	for (; at < end; at += changed + 1) {
		for (changed = 0; at + changed < end && count(s, at + changed, more); changed++)
			;
		if (changed > 0)
			mapping_set_dumped((char *)b->mapping->address + at * size, changed * size,
					   more);
	}
}

void segment_dump(share_buffer *b)
{
	struct segment *s = b->segment;
	uint64_t size, first;

	/* what was adopted is whoever's it is to put into a dump */
	if (!b->client->buffers->dumps_mine || b->mode != SHARE_RDWR || s->kind->id != MEMORY_HOST)
		return;
	size = page_size();
	first = b->offset / size;
	pthread_mutex_lock(&s->importing);
	if (!s->dumped)
		s->dumped = calloc((s->size + size - 1) / size, sizeof(s->dumped[0]));
	if (s->dumped) {
		b->dumped = (uint32_t)((b->offset + b->size + size - 1) / size - first);
		count_all(b, true);
	}
	pthread_mutex_unlock(&s->importing);
}

void segment_dump_end(share_buffer *b)
{
	if (b->dumped == 0)
		return;
	pthread_mutex_lock(&b->segment->importing);
	count_all(b, false);
	pthread_mutex_unlock(&b->segment->importing);
	b->dumped = 0;
}
