/* SPDX-License-Identifier: MIT */
#pragma once

#include "libshare/order/order.h"
#include "memory/mark.h"

/*
 * Where work on a CUDA stream ended, without a signal for now: a mark, which other streams of the
 * same context can wait for, and which becomes a fence when anybody else has to. By then the
 * program may have destroyed the stream.
 */
struct late {
	struct memory_mark mark;
	int ordinal;
	bool pending; /* there may be work before it, and no fence behind that */
};

/* Which stream this is; 0: none that can be marked. */
uint64_t gpu_late_stream(share_client *c, const struct memory_mapping *m, void *stream);

/* All work on @stream so far, as well as what was pending there, is before @l now. 0;
 * LATE_ELSEWHERE: what is pending is on another stream, and has to be signaled first;
 * LATE_IMPOSSIBLE: signal this at once, too; or an error, as of stream_signal(). */
enum { LATE_ELSEWHERE = 1, LATE_IMPOSSIBLE };
int gpu_late_note(share_client *c, const struct memory_mapping *m, void *stream, struct late *l);

/* @stream comes after what is pending, which is noted as its own from now on. 0,
 * LATE_IMPOSSIBLE: it takes a fence; or an error. */
int gpu_late_wait(share_client *c, void *stream, struct late *l);

/* A fence behind what is pending, which is no more. 0 or an error; @fatal: nothing runs on that
 * device any more. */
int gpu_late_signal(share_client *c, const struct memory_mapping *m, struct late *l,
		    share_fence *out, bool *fatal);

void gpu_late_forget(share_client *c, struct late *l);
