/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * What NVIDIA's management library (NVML) knows, and the driver says not at all or only in a
 * context. Where the library is missing, nothing is known. @uuid_text is "GPU-..." or "MIG-...".
 */

bool nvml_knows(const char *uuid_text);
/* Returns UINT64_MAX when it is unknown. */
uint64_t nvml_free_memory(const char *uuid_text);
bool nvml_mig_enabled(const char *uuid_text);
