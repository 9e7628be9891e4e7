/* SPDX-License-Identifier: MIT */
#pragma once

/* Every function of the stand-in driver, by its exported symbol. Its place here is its place in the
 * table of calls (calls.h). */
#define STANDIN_FUNCTIONS(X)                      \
	X(cuInit)                                 \
	X(cuDriverGetVersion)                     \
	X(cuGetErrorName)                         \
	X(cuGetErrorString)                       \
	X(cuGetProcAddress_v2)                    \
	X(cuDeviceGetCount)                       \
	X(cuDeviceGet)                            \
	X(cuDeviceGetName)                        \
	X(cuDeviceGetUuid_v2)                     \
	X(cuDeviceGetPCIBusId)                    \
	X(cuDeviceTotalMem_v2)                    \
	X(cuDeviceGetAttribute)                   \
	X(cuDeviceCanAccessPeer)                  \
	X(cuDevicePrimaryCtxRetain)               \
	X(cuDevicePrimaryCtxRelease_v2)           \
	X(cuDevicePrimaryCtxGetState)             \
	X(cuCtxCreate_v2)                         \
	X(cuCtxCreate_v4)                         \
	X(cuCtxDestroy_v2)                        \
	X(cuCtxGetCurrent)                        \
	X(cuCtxSetCurrent)                        \
	X(cuCtxPushCurrent_v2)                    \
	X(cuCtxPopCurrent_v2)                     \
	X(cuCtxGetDevice)                         \
	X(cuCtxSynchronize)                       \
	X(cuMemGetInfo_v2)                        \
	X(cuMemAlloc_v2)                          \
	X(cuMemAllocManaged)                      \
	X(cuMemFree_v2)                           \
	X(cuIpcGetMemHandle)                      \
	X(cuIpcOpenMemHandle_v2)                  \
	X(cuIpcCloseMemHandle)                    \
	X(cuMemGetAllocationGranularity)          \
	X(cuMemCreate)                            \
	X(cuMemRelease)                           \
	X(cuMemRetainAllocationHandle)            \
	X(cuMemGetAllocationPropertiesFromHandle) \
	X(cuMemExportToShareableHandle)           \
	X(cuMemImportFromShareableHandle)         \
	X(cuMemAddressReserve)                    \
	X(cuMemAddressFree)                       \
	X(cuMemMap)                               \
	X(cuMemUnmap)                             \
	X(cuMemSetAccess)                         \
	X(cuMemPoolCreate)                        \
	X(cuMemPoolDestroy)                       \
	X(cuMemPoolSetAccess)                     \
	X(cuMemPoolTrimTo)                        \
	X(cuMemPoolGetAttribute)                  \
	X(cuMemPoolSetAttribute)                  \
	X(cuMemPoolExportToShareableHandle)       \
	X(cuMemPoolImportFromShareableHandle)     \
	X(cuMemPoolExportPointer)                 \
	X(cuMemPoolImportPointer)                 \
	X(cuMemAllocFromPoolAsync)                \
	X(cuMemFreeAsync)                         \
	X(cuPointerGetAttribute)                  \
	X(cuPointerGetAttributes)                 \
	X(cuMemGetAddressRange_v2)                \
	X(cuMemcpyDtoH_v2)                        \
	X(cuMemcpyHtoD_v2)                        \
	X(cuMemcpyDtoHAsync_v2)                   \
	X(cuMemcpyHtoDAsync_v2)                   \
	X(cuMemcpyDtoDAsync_v2)                   \
	X(cuMemsetD8Async)                        \
	X(cuMemsetD32Async)                       \
	X(cuStreamCreate)                         \
	X(cuStreamDestroy_v2)                     \
	X(cuStreamQuery)                          \
	X(cuStreamSynchronize)                    \
	X(cuStreamGetId)                          \
	X(cuStreamGetCtx)                         \
	X(cuThreadExchangeStreamCaptureMode)      \
	X(cuStreamIsCapturing)                    \
	X(cuStreamBeginCapture_v2)                \
	X(cuStreamEndCapture)                     \
	X(cuGraphDestroy)                         \
	X(cuLaunchHostFunc)                       \
	X(cuStreamWriteValue64_v2)                \
	X(cuStreamWaitValue64_v2)                 \
	X(cuStreamBatchMemOp_v2)                  \
	X(cuMemHostRegister_v2)                   \
	X(cuMemHostUnregister)                    \
	X(cuMemHostGetDevicePointer_v2)           \
	X(cuEventCreate)                          \
	X(cuEventDestroy_v2)                      \
	X(cuEventRecord)                          \
	X(cuEventQuery)                           \
	X(cuEventSynchronize)                     \
	X(cuStreamWaitEvent)                      \
	X(cuIpcGetEventHandle)                    \
	X(cuIpcOpenEventHandle)

enum standin_function {
#define STANDIN_FUNCTION(name) STANDIN_##name,
	STANDIN_FUNCTIONS(STANDIN_FUNCTION)
#undef STANDIN_FUNCTION
	    STANDIN_FUNCTION_COUNT
};
