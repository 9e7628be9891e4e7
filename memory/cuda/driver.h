/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda.h>

#include "memory/cuda/functions.h"
#include "memory/kind.h"

/*
 * This room has the driver, contexts, and what is enqueued on a GPU. Above it is memory/gpu: which
 * devices there are, and the kinds of memory that they make.
 */

/* Loads and initialises the driver, once in a process; after a failure the next call tries again.
 * Returns 0; SHARE_ENODEV with the reason (there is no libcuda.so.1, it lacks a function that is
 * needed because it is too old, or there is no device); or the error of cuInit(). */
int cuda_get(const struct cuda **out, struct failure *failure);
/* Whether anybody in this process has initialised the driver, which this does not do: a child that
 * is forked afterwards could not use it. */
bool cuda_is_in_use(const struct cuda **out);

/* Puts "CALL: CUDA_ERROR_... (text)" into @failure, with what the user can do where that is known.
 * Returns the SHARE_E... number of the error. */
int cuda_fail(struct failure *failure, const char *call, CUresult result);
/* Returns 0 if the call succeeded, and otherwise what cuda_fail() does. */
static inline int cuda_check(struct failure *failure, const char *call, CUresult result)
{
	return result == CUDA_SUCCESS ? 0 : cuda_fail(failure, call, result);
}

/* Returns the value of an attribute, or 0 if the driver does not know the attribute. */
int cuda_attribute(const struct cuda *cu, CUdevice device, CUdevice_attribute which);
/* Finds the driver and the device with that ordinal. Returns false, without a reason, if it
 * cannot. */
bool cuda_device(const struct cuda **cu, uint32_t ordinal, CUdevice *device);

/* Puts the ordinal of the device with this UUID into @out. SHARE_ENODEV: this process does not see
 * it; the reason says which devices it sees. */
int cuda_find_device(const struct cuda *cu, const unsigned char uuid[16], CUdevice *out,
		     struct failure *failure);
