/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_CUDA_ACCESS_H
#define MEMORY_CUDA_ACCESS_H

#include <stdatomic.h>

#include "memory/cuda/driver.h"

/* Which devices may use a mapping. Access is not inherited from the exporter: each importer sets
 * its own, for the device the memory is on and for those whose contexts it is used in. */
struct cuda_access {
	CUdevice owner;
	_Atomic uint64_t devices; /* bit: ordinal */
};

#define CUDA_DEVICES_MAX 64

/*
 * Whether the device of the current context still lacks access: 1 and @out is that device, 0 (there
 * is no context, too), or SHARE_ENOTSUP: it could never have it. No CUDA call when this process
 * sees one device.
 */
int cuda_access_missing(const struct cuda *cu, const struct cuda_access *a, CUdevice *out,
			struct failure *failure);

/* @device has been given access. */
void cuda_access_granted(struct cuda_access *a, CUdevice device);

CUmemAccessDesc cuda_access_describe(CUdevice device, bool writable);
/* All that have it, as many as returned. */
size_t cuda_access_describe_all(const struct cuda_access *a, bool writable,
				CUmemAccessDesc out[CUDA_DEVICES_MAX]);

#endif
