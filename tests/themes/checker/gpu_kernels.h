/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "memory/cuda/driver.h"

/*
 * Kernels that spin for a while and then fill memory, or copy it: unlike fills, copies and host
 * functions they go on for a moment when their process is killed. The context is current.
 */

/* Loads and runs them once, so that nothing has to be loaded while streams are parked. False where
 * there are none: the stand-in runs no kernels. */
bool kernels_load(void);

CUresult kernel_fill(CUstream stream, CUdeviceptr at, uint64_t words, uint32_t word,
		     unsigned spin_us);
CUresult kernel_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, uint64_t words,
		     unsigned spin_us);
