/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_MARK_H
#define MEMORY_MARK_H

#include "memory/import.h"

/*
 * Marks: points in the work of CUDA streams, for this process alone. A mark costs a fifth of what a
 * signal does that other processes can see, and outlives its stream: it can be made into a signal
 * later, by a stream of the library's own, when nobody has the first one any more.
 *
 * Only for streams of a device's primary context, which is kept: any other may be gone by then, and
 * the driver crashes when it is asked about what is gone. Nothing is ever asked of a mark: while a
 * stream is captured into a graph, that would spoil it.
 */
struct memory_marks; /* of one device */

int memory_marks_open(int ordinal, struct memory_marks **out, struct failure *failure);
void memory_marks_close(struct memory_marks *k);
/* The stream that waits for marks: stands in for those that are gone. */
void *memory_marks_stream(struct memory_marks *k);

struct memory_mark {
	void *event;     /* NULL: none yet */
	uint64_t stream; /* what it is a point of, as in struct memory_stream */
};

/* Which stream it is. The per-thread default stream is another one in each thread. */
int memory_stream_identify(int ordinal, void *stream, uint64_t *id, struct failure *failure);

/* The mark becomes the point that @stream has been given work up to; with @stay, only if it was a
 * point of that stream before. 0, one of these two, or an error: SHARE_ENOTSUP, the stream is being
 * captured. */
enum { MARK_OTHER_CONTEXT = 1, MARK_OTHER_STREAM };
int memory_mark_move(struct memory_marks *k, void *stream, struct memory_mark *m, bool stay,
		     struct failure *failure);
/* What is given to @stream comes after the mark. 0, MARK_OTHER_CONTEXT or an error, as above. */
int memory_mark_wait(struct memory_marks *k, void *stream, const struct memory_mark *m,
		     struct failure *failure);
/* The same for memory_marks_stream(). */
int memory_mark_wait_inside(struct memory_marks *k, const struct memory_mark *m,
			    struct failure *failure);
void memory_mark_free(struct memory_marks *k, struct memory_mark *m);

#endif
