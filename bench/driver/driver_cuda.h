/* SPDX-License-Identifier: MIT */
#pragma once

#include "bench/driver/driver.h"
#include "memory/cuda/driver.h"

/*
 * What driver.c and driver_stream.c share. Only they know CUDA's types.
 *
 * They use the table of memory/ for the functions that it has. The others are functions that the
 * broker and the library never call: X(member, symbol, type), as in memory/cuda/driver.h.
 */
#define FLOOR_FUNCTIONS(X)                                                                \
	X(MemAlloc, "cuMemAlloc_v2", PFN_cuMemAlloc_v3020)                                \
	X(MemFree, "cuMemFree_v2", PFN_cuMemFree_v3020)                                   \
	X(MemPoolSetAttribute, "cuMemPoolSetAttribute", PFN_cuMemPoolSetAttribute_v11020) \
	X(MemsetD32Async, "cuMemsetD32Async", PFN_cuMemsetD32Async_v3020)                 \
	X(StreamQuery, "cuStreamQuery", PFN_cuStreamQuery_v2000)                          \
	X(IpcGetMemHandle, "cuIpcGetMemHandle", PFN_cuIpcGetMemHandle_v4010)              \
	X(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", PFN_cuIpcOpenMemHandle_v11000)       \
	X(IpcCloseMemHandle, "cuIpcCloseMemHandle", PFN_cuIpcCloseMemHandle_v4010)

struct driver {
	const struct cuda *cu; /* NULL: driver_start() has not succeeded yet */
	CUdevice device;
	char uuid[MEMORY_UUID_TEXT];
	CUmemoryPool pool;
#define FLOOR_MEMBER(member, symbol, type) type member;
	FLOOR_FUNCTIONS(FLOOR_MEMBER)
#undef FLOOR_MEMBER
};
extern struct driver driver;

/* Ends the program unless @r is CUDA_SUCCESS. */
void must_driver(CUresult r, const char *call);

/* Puts a function of the driver into the function pointer at @member. Returns false, with @why, if
 * the driver does not have it. */
bool driver_look_up(const char *symbol, void *member, char why[DRIVER_WHY]);
