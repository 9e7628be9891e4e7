/* SPDX-License-Identifier: MIT */
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

/*
 * The functions of the CUDA driver, found at run time: one table, which is either complete or not
 * there.
 *
 * X(member, symbol in libcuda.so.1, its type in cudaTypedefs.h)
 */
#define CUDA_FUNCTIONS(X)                                                                         \
	X(Init, "cuInit", PFN_cuInit_v2000)                                                       \
	X(DriverGetVersion, "cuDriverGetVersion", PFN_cuDriverGetVersion_v2020)                   \
	X(GetErrorName, "cuGetErrorName", PFN_cuGetErrorName_v6000)                               \
	X(GetErrorString, "cuGetErrorString", PFN_cuGetErrorString_v6000)                         \
	X(DeviceGetCount, "cuDeviceGetCount", PFN_cuDeviceGetCount_v2000)                         \
	X(DeviceGet, "cuDeviceGet", PFN_cuDeviceGet_v2000)                                        \
	X(DeviceGetName, "cuDeviceGetName", PFN_cuDeviceGetName_v2000)                            \
	X(DeviceGetUuid, "cuDeviceGetUuid_v2", PFN_cuDeviceGetUuid_v11040)                        \
	X(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", PFN_cuDeviceGetPCIBusId_v4010)                \
	X(DeviceTotalMem, "cuDeviceTotalMem_v2", PFN_cuDeviceTotalMem_v3020)                      \
	X(DeviceGetAttribute, "cuDeviceGetAttribute", PFN_cuDeviceGetAttribute_v2000)             \
	X(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", PFN_cuDeviceCanAccessPeer_v4000)          \
	X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", PFN_cuDevicePrimaryCtxRetain_v7000) \
	X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2",                                \
	  PFN_cuDevicePrimaryCtxRelease_v11000)                                                   \
	X(CtxGetCurrent, "cuCtxGetCurrent", PFN_cuCtxGetCurrent_v4000)                            \
	X(CtxPushCurrent, "cuCtxPushCurrent_v2", PFN_cuCtxPushCurrent_v4000)                      \
	X(CtxPopCurrent, "cuCtxPopCurrent_v2", PFN_cuCtxPopCurrent_v4000)                         \
	X(CtxGetDevice, "cuCtxGetDevice", PFN_cuCtxGetDevice_v2000)                               \
	X(MemGetInfo, "cuMemGetInfo_v2", PFN_cuMemGetInfo_v3020)                                  \
	X(MemGetAllocationGranularity, "cuMemGetAllocationGranularity",                           \
	  PFN_cuMemGetAllocationGranularity_v10020)                                               \
	X(MemCreate, "cuMemCreate", PFN_cuMemCreate_v10020)                                       \
	X(MemRelease, "cuMemRelease", PFN_cuMemRelease_v10020)                                    \
	X(MemRetainAllocationHandle, "cuMemRetainAllocationHandle",                               \
	  PFN_cuMemRetainAllocationHandle_v11000)                                                 \
	X(MemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle",         \
	  PFN_cuMemGetAllocationPropertiesFromHandle_v10020)                                      \
	X(MemGetAddressRange, "cuMemGetAddressRange_v2", PFN_cuMemGetAddressRange_v3020)          \
	X(MemExportToShareableHandle, "cuMemExportToShareableHandle",                             \
	  PFN_cuMemExportToShareableHandle_v10020)                                                \
	X(MemImportFromShareableHandle, "cuMemImportFromShareableHandle",                         \
	  PFN_cuMemImportFromShareableHandle_v10020)                                              \
	X(MemAddressReserve, "cuMemAddressReserve", PFN_cuMemAddressReserve_v10020)               \
	X(MemAddressFree, "cuMemAddressFree", PFN_cuMemAddressFree_v10020)                        \
	X(MemMap, "cuMemMap", PFN_cuMemMap_v10020)                                                \
	X(MemUnmap, "cuMemUnmap", PFN_cuMemUnmap_v10020)                                          \
	X(MemSetAccess, "cuMemSetAccess", PFN_cuMemSetAccess_v10020)                              \
	X(MemPoolCreate, "cuMemPoolCreate", PFN_cuMemPoolCreate_v11020)                           \
	X(MemPoolDestroy, "cuMemPoolDestroy", PFN_cuMemPoolDestroy_v11020)                        \
	X(MemPoolSetAccess, "cuMemPoolSetAccess", PFN_cuMemPoolSetAccess_v11020)                  \
	X(MemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle",                     \
	  PFN_cuMemPoolExportToShareableHandle_v11020)                                            \
	X(MemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle",                 \
	  PFN_cuMemPoolImportFromShareableHandle_v11020)                                          \
	X(MemPoolExportPointer, "cuMemPoolExportPointer", PFN_cuMemPoolExportPointer_v11020)      \
	X(MemPoolImportPointer, "cuMemPoolImportPointer", PFN_cuMemPoolImportPointer_v11020)      \
	X(MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", PFN_cuMemAllocFromPoolAsync_v11020)   \
	X(MemFreeAsync, "cuMemFreeAsync", PFN_cuMemFreeAsync_v11020)                              \
	X(MemAlloc, "cuMemAlloc_v2", PFN_cuMemAlloc_v3020)                                        \
	X(MemFree, "cuMemFree_v2", PFN_cuMemFree_v3020)                                           \
	X(IpcGetMemHandle, "cuIpcGetMemHandle", PFN_cuIpcGetMemHandle_v4010)                      \
	X(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", PFN_cuIpcOpenMemHandle_v11000)               \
	X(IpcCloseMemHandle, "cuIpcCloseMemHandle", PFN_cuIpcCloseMemHandle_v4010)                \
	X(PointerGetAttribute, "cuPointerGetAttribute", PFN_cuPointerGetAttribute_v4000)          \
	X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", PFN_cuMemcpyDtoHAsync_v3020)                   \
	X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", PFN_cuMemcpyHtoDAsync_v3020)                   \
	X(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", PFN_cuMemcpyDtoDAsync_v3020)                   \
	X(MemsetD8Async, "cuMemsetD8Async", PFN_cuMemsetD8Async_v3020)                            \
	X(StreamCreate, "cuStreamCreate", PFN_cuStreamCreate_v2000)                               \
	X(StreamDestroy, "cuStreamDestroy_v2", PFN_cuStreamDestroy_v4000)                         \
	X(StreamSynchronize, "cuStreamSynchronize", PFN_cuStreamSynchronize_v2000)                \
	X(StreamGetId, "cuStreamGetId", PFN_cuStreamGetId_v12000)                                 \
	X(StreamGetCtx, "cuStreamGetCtx", PFN_cuStreamGetCtx_v9020)                               \
	X(StreamIsCapturing, "cuStreamIsCapturing", PFN_cuStreamIsCapturing_v10000)               \
	X(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",                   \
	  PFN_cuThreadExchangeStreamCaptureMode_v10010)                                           \
	X(StreamWriteValue64, "cuStreamWriteValue64_v2", PFN_cuStreamWriteValue64_v11070)         \
	X(StreamWaitValue64, "cuStreamWaitValue64_v2", PFN_cuStreamWaitValue64_v11070)            \
	X(StreamBatchMemOp, "cuStreamBatchMemOp_v2", PFN_cuStreamBatchMemOp_v11070)               \
	X(MemHostRegister, "cuMemHostRegister_v2", PFN_cuMemHostRegister_v6050)                   \
	X(MemHostUnregister, "cuMemHostUnregister", PFN_cuMemHostUnregister_v4000)                \
	X(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2",                                \
	  PFN_cuMemHostGetDevicePointer_v3020)                                                    \
	X(EventCreate, "cuEventCreate", PFN_cuEventCreate_v2000)                                  \
	X(EventDestroy, "cuEventDestroy_v2", PFN_cuEventDestroy_v4000)                            \
	X(EventRecord, "cuEventRecord", PFN_cuEventRecord_v2000)                                  \
	X(EventQuery, "cuEventQuery", PFN_cuEventQuery_v2000)                                     \
	X(StreamWaitEvent, "cuStreamWaitEvent", PFN_cuStreamWaitEvent_v3020)                      \
	X(IpcGetEventHandle, "cuIpcGetEventHandle", PFN_cuIpcGetEventHandle_v4010)                \
	X(IpcOpenEventHandle, "cuIpcOpenEventHandle", PFN_cuIpcOpenEventHandle_v4010)

struct cuda {
#define CUDA_MEMBER(member, symbol, type) type member;
	CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* The oldest driver that has all functions: the newest of them is StreamGetId. */
#define CUDA_DRIVER_LEAST 12000
