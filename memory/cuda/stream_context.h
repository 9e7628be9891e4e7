/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/cuda/context.h"

/*
 * The place in which calls on a stream of the caller are made: the context of the stream; or, for
 * the streams that every context has, the context that would be used without a stream
 * (cuda_enter()).
 */
struct cuda_place {
	const struct cuda *cu;
	struct cuda_scope scope;
	bool pushed; /* the stream's context was pushed */
	bool known;  /* whether `id` and `device` are set */
	unsigned long long id;
	CUdevice device; /* the device of the stream */
};

/* Enters the place of a stream. SHARE_ENOTSUP: the stream is being captured into a graph, and
 * @advice is added to say what to do. SHARE_EINVAL: the driver knows no such stream. */
int cuda_place_enter(CUstream stream, CUdevice device, const char *advice, struct cuda_place *out,
		     struct failure *failure);
void cuda_place_leave(struct cuda_place *p);

/* Sets the identifier and the device of the stream in @p, while the place is entered. Fails like
 * cuda_place_enter(). */
int cuda_place_identify(struct cuda_place *p, CUstream stream, struct failure *failure);

/* Puts the identifier of the stream into @id without entering a place. Returns false for the
 * streams that every context has, for a stream that is being captured, and for errors, whose reason
 * cuda_place_enter() gives. */
bool cuda_stream_id(const struct cuda *cu, CUstream stream, unsigned long long *id);
