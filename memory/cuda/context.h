/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_CUDA_CONTEXT_H
#define MEMORY_CUDA_CONTEXT_H

#include "memory/cuda/driver.h"

/*
 * The context in which an importer's calls run: the caller's, of whatever device, when there is
 * one; else the primary one of @device, made current until cuda_leave().
 */
struct cuda_scope {
	const struct cuda *cu;
	CUdevice device;
	bool entered; /* the primary one: retained and pushed */
};

int cuda_enter(const struct cuda *cu, CUdevice device, struct cuda_scope *out,
	       struct failure *failure);
void cuda_leave(struct cuda_scope *scope);
/* The same, but the primary context stays: true when the caller has to release it one day. */
bool cuda_leave_keeping(struct cuda_scope *scope);

/*
 * While any thread captures a stream into a graph, the driver refuses calls that allocate, import,
 * free or register memory, and those that block, in case the graph leans on what they do; and
 * refusing spoils that capture. Ours concern nothing that a graph has seen: between these two they
 * are let through, for the calling thread.
 */
struct cuda_relaxed {
	const struct cuda *cu;
	CUstreamCaptureMode before;
};

void cuda_relax(const struct cuda *cu, struct cuda_relaxed *out);
void cuda_relax_end(struct cuda_relaxed *relaxed);

/* That @pointer is device memory of @device: what an import made is what it should be. */
int cuda_check_pointer(const struct cuda *cu, CUdeviceptr pointer, CUdevice device,
		       struct failure *failure);

#endif
