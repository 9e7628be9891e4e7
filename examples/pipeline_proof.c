/* SPDX-License-Identifier: MIT */

/*
 * The proof of the pipeline example: the consumers computed the right thing, in the producer's own
 * memory. The producer trusts none of them. It draws all frames once more in private memory,
 * computes the right results, and counts as a copy each frame for which a consumer cannot show both
 * of these:
 *
 *   - The frame lies in the same place for producer and consumer. For host memory the kernel tells:
 *     /proc/self/maps says which place of which file is mapped, and the same place of the same
 *     file, mapped MAP_SHARED in both, is the same physical memory. For GPU memory the kernel does
 *     not know, and it is the place that the library says: device, segment and offset.
 *   - The producer writes a random mark behind the picture when all consumers have received the
 *     frame, and the consumers see it through the handle that they had before. A copy that somebody
 *     made for them on the way would not have it.
 *
 * The order of messages decides who writes the mark when, and who reads it: see pipeline.c.
 */
#include "pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define SEGMENT "/memfd:share-segment" /* the name that the library gives to host memory */

struct report *make_reports(const struct options *o)
{
	size_t size = sizeof(struct report) * (size_t)(o->consumers + 1) * (size_t)o->frames;
	void *reports = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check_system(reports != MAP_FAILED, "mmap");
	return reports;
}

struct report *report_of(struct report *reports, const struct options *o, int row, int frame)
{
	return &reports[(size_t)row * (size_t)o->frames + (size_t)frame];
}

static struct place find_in_maps(const void *data, size_t size)
{
	uint64_t first = (uintptr_t)data, start, end, offset, inode;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], rights[5], file[64];
	struct place found = {0};
	unsigned major, minor;

	check_system(maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		/* start-end rights offset major:minor inode file */
		if (sscanf(line,
			   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %63[^\n]",
			   &start, &end, rights, &offset, &major, &minor, &inode, file) == 8 &&
		    first >= start && first + size <= end && rights[3] == 's' &&
		    strncmp(file, SEGMENT, strlen(SEGMENT)) == 0)
			found = (struct place){(uint64_t)major << 32 | minor, inode,
					       offset + (first - start)};
	fclose(maps);
	return found;
}

const char *find_frame(share_buffer *b, struct place *place)
{
	share_buffer_info info = SHARE_BUFFER_INFO_INIT;
	struct result uuid;

	check(share_buffer_get_info(b, &info), "share_buffer_get_info");
	if (!info.device) {
		*place = find_in_maps(share_ptr(b), share_size(b));
	} else {
		compute((const unsigned char *)info.device, strlen(info.device), &uuid);
		*place = (struct place){uuid.hash, info.segment, info.offset};
	}
	return info.device;
}

void leave_mark(share_buffer *frame, struct report *r)
{
	size_t offset = share_size(frame) - sizeof(r->mark);

	check_system(getrandom(&r->mark, sizeof(r->mark), 0) == sizeof(r->mark), "getrandom");
	check(share_copy_from_host(frame, offset, &r->mark, sizeof(r->mark), NULL),
	      "share_copy_from_host");
	check(share_release(frame, NULL), "share_release");
}

void read_mark(share_buffer *frame, struct report *r)
{
	size_t offset = share_size(frame) - sizeof(r->mark);

	check(share_copy_to_host(frame, offset, &r->mark, sizeof(r->mark), NULL),
	      "share_copy_to_host");
}

int judge(const struct options *o, const struct picture *p, struct report *reports, int *copies)
{
	unsigned char *frame = malloc(p->size);
	struct result expected;
	int wrong = 0;

	check_system(frame, "malloc");
	for (int k = 0; k < o->frames; k++) {
		const struct report *made = report_of(reports, o, 0, k), *got;

		draw(p, k, frame);
		compute(frame, p->size, &expected);
		for (int i = 1; i <= o->consumers; i++) {
			got = report_of(reports, o, i, k);
			if (memcmp(got->shape, p->shape, sizeof(p->shape)) != 0 ||
			    memcmp(&got->result, &expected, sizeof(expected)) != 0) {
				printf("consumer %d, frame %d: wrong or missed\n", i, k);
				wrong++;
			}
			if (!got->place.number || got->mark != made->mark ||
			    memcmp(&got->place, &made->place, sizeof(made->place)) != 0) {
				printf("consumer %d, frame %d: not the producer's memory\n", i, k);
				++*copies;
			}
		}
	}
	free(frame);
	return wrong;
}
