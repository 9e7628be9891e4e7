/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_CUDA_STREAM_CONTEXT_H
#define MEMORY_CUDA_STREAM_CONTEXT_H

#include "memory/cuda/context.h"

/*
 * Where calls on a stream of the caller's are made: in the context that stream belongs to, or, for
 * the streams that every context has, in the one that would be used anyway.
 */
struct cuda_place {
	const struct cuda *cu;
	struct cuda_scope scope;
	bool pushed; /* the stream's context */
	bool known;  /* what the next two say */
	unsigned long long id;
	CUdevice device; /* of the stream */
};

/* SHARE_ENOTSUP when the stream is being captured into a graph, with @advice on what to do;
 * SHARE_EINVAL when it is none. */
int cuda_place_enter(CUstream stream, CUdevice device, const char *advice, struct cuda_place *out,
		     struct failure *failure);
void cuda_place_leave(struct cuda_place *p);

/* While the place is entered: which stream it is, and of what device. Fails as the above. */
int cuda_place_identify(struct cuda_place *p, CUstream stream, struct failure *failure);

/* Which stream it is, without a place. False for those that every context has, for one that is
 * being captured, and for what only a place can tell why. */
bool cuda_stream_id(const struct cuda *cu, CUstream stream, unsigned long long *id);

/* cuda_fail() for a call that failed because of what the stream is: SHARE_EINVAL when the driver
 * knows no such stream. */
int cuda_stream_fail(struct failure *failure, const char *call, CUresult result);

#endif
