/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_CUDA_VMM_H
#define MEMORY_CUDA_VMM_H

#include "memory/cuda/driver.h"

/* Whether the importer of vmm memory has mapped something there. */
bool cuda_vmm_is_import(CUdeviceptr pointer);

#endif
