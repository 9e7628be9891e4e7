/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Memory of a device that the calling process has made itself, as programs and their frameworks
 * do: by cuMemCreate(), which needs no context, or by cuMemAlloc().
 */

/* On the device of that number, of allocations of @piece bytes each, one mapped behind the other.
 * Only what is @shareable can be exported. NULL: this build has no CUDA. */
void *gpu_memory_make(int device, uint64_t size, uint64_t piece, bool shareable);
/* Unmaps and gives up what was made so; others may have it still. */
void gpu_memory_free(void *memory, uint64_t size, uint64_t piece);

/* By cuMemAlloc(). It holds on to the device's primary context. */
void *gpu_memory_make_plain(int device, uint64_t size);
void gpu_memory_free_plain(int device, void *memory);

/* As the kinds "adopted-vmm" and "adopted-legacy" say, on the first device. */
void *gpu_memory_make_as(const char *kind, uint64_t size);
void gpu_memory_free_as(const char *kind, void *memory, uint64_t size);
