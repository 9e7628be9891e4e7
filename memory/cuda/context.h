/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/cuda/driver.h"

/*
 * The context in which an importer makes its calls: the caller's current one, of whatever device,
 * if there is one; otherwise the primary one of @device, which is current until cuda_leave().
 */
struct cuda_scope {
	const struct cuda *cu;
	CUdevice device;
	bool entered; /* the primary context was retained and pushed */
};

int cuda_enter(const struct cuda *cu, CUdevice device, struct cuda_scope *out,
	       struct failure *failure);
void cuda_leave(struct cuda_scope *scope);
/* The same, but it does not release the primary context. Returns true if the caller has to release
 * it later. */
bool cuda_leave_keeping(struct cuda_scope *scope);

/* Retains the primary context of @device and makes it current; neither of these if it fails. */
int cuda_enter_primary(const struct cuda *cu, CUdevice device, CUcontext *out,
		       struct failure *failure);

/*
 * While any thread captures a stream into a graph, the driver refuses calls that block or that
 * allocate, import, free or register memory, because the graph could depend on what they do; and a
 * refused call spoils the capture. The library's calls concern nothing that a graph has seen.
 * Between these two functions the driver allows them to the calling thread.
 */
struct cuda_relaxed {
	const struct cuda *cu;
	CUstreamCaptureMode before;
};

void cuda_relax(const struct cuda *cu, struct cuda_relaxed *out);
void cuda_relax_end(struct cuda_relaxed *relaxed);

/* A stream of the library's own, which waits for nobody else's work, in the primary context of a
 * device. The context is kept as long as there is the stream. */
struct cuda_own_stream {
	const struct cuda *cu;
	CUdevice device;
	CUcontext context;
	CUstream stream;
};

int cuda_own_stream_init(struct cuda_own_stream *s, CUdevice device, struct failure *failure);
void cuda_own_stream_deinit(struct cuda_own_stream *s);

/* Checks that @pointer is device memory of @device, so that an import has made what its recipe
 * says. */
int cuda_check_pointer(const struct cuda *cu, CUdeviceptr pointer, CUdevice device,
		       struct failure *failure);
