/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>

#include "memory/cuda/driver.h"

/* The devices that may use a mapping. An importer does not inherit the access that the exporter
 * set: it sets access for the device that the memory is on, and for the devices in whose contexts
 * it is used. */
struct cuda_access {
	CUdevice owner;
	/* Of memory of the host, its node: the CPU has access as well, and a device needs none to
	 * that of the owner. Else of type CU_MEM_LOCATION_TYPE_INVALID. */
	CUmemLocation host;
	_Atomic uint64_t devices; /* one bit for each ordinal */
};

#define CUDA_DEVICES_MAX 64
#define CUDA_ACCESS_MAX  (CUDA_DEVICES_MAX + 1) /* with the CPU */

/*
 * Finds out whether the device of the current context still lacks access. Returns 1 and puts that
 * device into @out; 0 if it has access or there is no context; SHARE_ENOTSUP if it can never have
 * access. If this process sees only one device, this makes no CUDA call.
 */
int cuda_access_missing(const struct cuda *cu, const struct cuda_access *a, CUdevice *out,
			struct failure *failure);

/* Notes that @device has been given access. */
void cuda_access_granted(struct cuda_access *a, CUdevice device);

CUmemAccessDesc cuda_access_describe(CUdevice device, bool writable);
/* Describes all that have access, and returns their number. */
size_t cuda_access_describe_all(const struct cuda_access *a, bool writable,
				CUmemAccessDesc out[CUDA_ACCESS_MAX]);
