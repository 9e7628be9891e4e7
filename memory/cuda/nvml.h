/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_CUDA_NVML_H
#define MEMORY_CUDA_NVML_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What NVIDIA's management library knows and the driver does not say, or only in a context. It may
 * not be there: then nothing is known. @uuid_text is "GPU-..." or "MIG-...".
 */

bool nvml_knows(const char *uuid_text);
/* UINT64_MAX when unknown. */
uint64_t nvml_free_memory(const char *uuid_text);
bool nvml_mig_enabled(const char *uuid_text);

#endif
