/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/import.h"

/*
 * Marks: points in the work of CUDA streams, which only this process can see. A mark costs a fifth
 * of a signal, which other processes can see, and outlives its stream: when the stream no longer
 * exists, a stream of the library can still turn the mark into a signal.
 *
 * Marks are only for streams of a device's primary context, which is kept. Another context may be
 * destroyed while there is a mark of it, and the driver crashes when it is asked about something in
 * it. Nobody ever asks the driver whether a mark is reached, since that would spoil a capture of
 * the stream into a graph.
 */
struct memory_marks; /* the marks of one device */

/* Keeps the primary context of the device, and creates the stream below, until
 * memory_marks_close(), for which NULL is allowed. All marks have to be freed before. */
int memory_marks_open(int ordinal, struct memory_marks **out, struct failure *failure);
void memory_marks_close(struct memory_marks *k);
/* Returns the stream that waits for marks in place of streams that no longer exist. */
void *memory_marks_stream(struct memory_marks *k);

struct memory_mark {
	void *event;     /* NULL: the mark was never used */
	uint64_t stream; /* the stream it is a point of, as `id` of struct memory_stream */
};

/* Puts the number of @stream into @id; no other stream of this process ever has the same. The
 * per-thread default stream is a different stream in each thread. */
int memory_stream_identify(int ordinal, void *stream, uint64_t *id, struct failure *failure);

/* Moves the mark to the end of the work that @stream has now; with @stay, only if the mark was a
 * point of that stream before. Returns 0; MARK_OTHER_CONTEXT when the stream is not of the primary
 * context; MARK_OTHER_STREAM when @stay forbids it; or an error, of which SHARE_ENOTSUP means that
 * the stream is being captured. */
enum { MARK_OTHER_CONTEXT = 1, MARK_OTHER_STREAM };
int memory_mark_move(struct memory_marks *k, void *stream, struct memory_mark *m, bool stay,
		     struct failure *failure);
/* Makes the work that @stream gets from now on wait for the mark. Returns 0, MARK_OTHER_CONTEXT or
 * an error, as above. */
int memory_mark_wait(struct memory_marks *k, void *stream, const struct memory_mark *m,
		     struct failure *failure);
/* The same for the stream of memory_marks_stream(). */
int memory_mark_wait_inside(struct memory_marks *k, const struct memory_mark *m,
			    struct failure *failure);
/* Frees what the mark has of the driver. The mark can be used again afterwards. */
void memory_mark_free(struct memory_marks *k, struct memory_mark *m);
