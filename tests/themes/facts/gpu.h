/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Facts about a GPU, each shown by processes of its own: a fact is one function that runs in one
 * process and starts others, which play a role and have nothing of the first but a socket. Nobody
 * forks after a CUDA call.
 */

/* X(member, function): the symbol is what cuda.h makes of the function's name. */
#define DRIVER_FUNCTIONS(X)                                             \
	X(Init, cuInit)                                                 \
	X(DriverGetVersion, cuDriverGetVersion)                         \
	X(GetErrorName, cuGetErrorName)                                 \
	X(DeviceGetCount, cuDeviceGetCount)                             \
	X(DeviceGetName, cuDeviceGetName)                               \
	X(DeviceGetUuid, cuDeviceGetUuid)                               \
	X(DeviceGetAttribute, cuDeviceGetAttribute)                     \
	X(DeviceCanAccessPeer, cuDeviceCanAccessPeer)                   \
	X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)             \
	X(CtxSetCurrent, cuCtxSetCurrent)                               \
	X(CtxGetCurrent, cuCtxGetCurrent)                               \
	X(CtxGetDevice, cuCtxGetDevice)                                 \
	X(CtxSynchronize, cuCtxSynchronize)                             \
	X(MemGetInfo, cuMemGetInfo)                                     \
	X(MemGetAllocationGranularity, cuMemGetAllocationGranularity)   \
	X(MemCreate, cuMemCreate)                                       \
	X(MemRelease, cuMemRelease)                                     \
	X(MemExport, cuMemExportToShareableHandle)                      \
	X(MemRetainHandle, cuMemRetainAllocationHandle)                 \
	X(MemGetProperties, cuMemGetAllocationPropertiesFromHandle)     \
	X(MemGetAddressRange, cuMemGetAddressRange)                     \
	X(MemAllocManaged, cuMemAllocManaged)                           \
	X(MemImport, cuMemImportFromShareableHandle)                    \
	X(MemAddressReserve, cuMemAddressReserve)                       \
	X(MemAddressFree, cuMemAddressFree)                             \
	X(MemMap, cuMemMap)                                             \
	X(MemUnmap, cuMemUnmap)                                         \
	X(MemSetAccess, cuMemSetAccess)                                 \
	X(MemPoolCreate, cuMemPoolCreate)                               \
	X(MemPoolDestroy, cuMemPoolDestroy)                             \
	X(MemPoolSetAccess, cuMemPoolSetAccess)                         \
	X(MemPoolTrimTo, cuMemPoolTrimTo)                               \
	X(MemPoolExport, cuMemPoolExportToShareableHandle)              \
	X(MemPoolImport, cuMemPoolImportFromShareableHandle)            \
	X(MemPoolExportPointer, cuMemPoolExportPointer)                 \
	X(MemPoolImportPointer, cuMemPoolImportPointer)                 \
	X(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync)               \
	X(MemFreeAsync, cuMemFreeAsync)                                 \
	X(MemAlloc, cuMemAlloc)                                         \
	X(PointerGetAttribute, cuPointerGetAttribute)                   \
	X(MemcpyDtoH, cuMemcpyDtoH)                                     \
	X(MemcpyHtoD, cuMemcpyHtoD)                                     \
	X(MemsetD8Async, cuMemsetD8Async)                               \
	X(StreamCreate, cuStreamCreate)                                 \
	X(StreamQuery, cuStreamQuery)                                   \
	X(StreamSynchronize, cuStreamSynchronize)                       \
	X(StreamGetId, cuStreamGetId)                                   \
	X(StreamGetCtx, cuStreamGetCtx)                                 \
	X(StreamIsCapturing, cuStreamIsCapturing)                       \
	X(StreamBeginCapture, cuStreamBeginCapture)                     \
	X(StreamEndCapture, cuStreamEndCapture)                         \
	X(ThreadExchangeCaptureMode, cuThreadExchangeStreamCaptureMode) \
	X(StreamDestroy, cuStreamDestroy)                               \
	X(MemFree, cuMemFree)                                           \
	X(MemHostUnregister, cuMemHostUnregister)                       \
	X(MemcpyDtoHAsync, cuMemcpyDtoHAsync)                           \
	X(StreamWriteValue64, cuStreamWriteValue64)                     \
	X(StreamWaitValue64, cuStreamWaitValue64)                       \
	X(StreamWaitEvent, cuStreamWaitEvent)                           \
	X(MemHostRegister, cuMemHostRegister)                           \
	X(MemHostGetDevicePointer, cuMemHostGetDevicePointer)           \
	X(EventCreate, cuEventCreate)                                   \
	X(EventDestroy, cuEventDestroy)                                 \
	X(EventRecord, cuEventRecord)                                   \
	X(EventQuery, cuEventQuery)                                     \
	X(IpcGetEventHandle, cuIpcGetEventHandle)                       \
	X(IpcOpenEventHandle, cuIpcOpenEventHandle)                     \
	X(IpcGetMemHandle, cuIpcGetMemHandle)                           \
	X(IpcOpenMemHandle, cuIpcOpenMemHandle)                         \
	X(IpcCloseMemHandle, cuIpcCloseMemHandle)

struct driver {
#define DRIVER_MEMBER(member, function) __typeof__(&function) member;
	DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

/* ---- driver.c ---- */

extern struct driver cu;

/* NULL, or why there is no driver or device to talk to. */
const char *driver_load(void);
/* "CUDA_ERROR_..."; never NULL. */
const char *error_name(CUresult result);
/* Loads, or the fact is skipped. */
void use_driver(void);
/* The same, with the primary context of device 0 current. */
CUcontext use_context(void);
/* Of the current context's device. */
uint64_t device_free(void);
/* The same, once it is @wanted or more, or two seconds have passed. */
uint64_t device_free_reaches(uint64_t wanted);
/* A moment, while polling for something. */
void a_moment(void);
/* Whether all work of a stream is done before the time is up. */
bool settles(CUstream stream, int milliseconds);

/* What must work. */
#define MUST(call) must(cu.call, "cu" #call)
void must(CUresult result, const char *call);

/* ---- processes.c ---- */

struct message {
	int32_t result;
	uint32_t count;
	uint64_t value[8];
	unsigned char bytes[64];
};

struct role {
	pid_t pid;
	int channel;
};

struct play {
	const char *name;
	void (*run)(int channel); /* a role, at the other end of the channel */
};

struct fact {
	const char *name;
	void (*run)(void); /* ends with one of the three below */
};

_Noreturn void ok(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skipped(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Starts this program again, in that role. @setting: "NAME=VALUE" for its environment, or NULL. */
struct role role_start(const char *name, const char *setting);
void role_kill(struct role *r);
/* In a role, first of all. */
void role_begin(void);

/* @fd -1: none. The receiver owns what it gets. Who is gone fails the fact. */
void tell(int channel, const struct message *m, int fd);
void hear(int channel, struct message *m, int *fd);
/* 1; 0 when nothing came in time, -1 when the other is gone. */
int hear_within(int channel, struct message *m, int *fd, int milliseconds);
/* tell() and hear(). */
void ask(int channel, struct message *m, int fd);
/* The same, where anything may come of it: NULL, or "hangs" or "dies". */
const char *try(int channel, struct message *m, int fd, int milliseconds);

uint64_t nanoseconds(void);

/* ---- the facts ---- */

extern const struct fact vmm_facts[], pool_facts[], event_facts[], value_facts[], machine_facts[],
    capture_facts[], zero_facts[], stream_facts[], adopt_facts[], legacy_facts[], pinned_facts[];
extern const struct play vmm_plays[], pool_plays[], event_plays[], value_plays[], machine_plays[],
    stream_plays[], adopt_plays[], legacy_plays[], pinned_plays[];

/* ---- memory.c: what the facts about memory share ---- */

#define MIB (UINT64_C(1) << 20)

CUmemAllocationProp vmm_properties(void);
CUmemPoolProps pool_properties(void);
CUmemAccessDesc access_for(int ordinal, CUmemAccess_flags flags);
/* Maps at @hint or anywhere, for device 0. */
CUdeviceptr vmm_map(CUmemGenericAllocationHandle handle, uint64_t size, CUmemAccess_flags flags);
void vmm_unmap(CUdeviceptr p, uint64_t size);
CUmemGenericAllocationHandle vmm_import(int fd);
/* Fills on the legacy stream, and waits. */
CUresult fill(CUdeviceptr p, unsigned char value, uint64_t size);
/* Whether the first and last byte are @value. */
bool holds(CUdeviceptr p, unsigned char value, uint64_t size);
