/* SPDX-License-Identifier: MIT */

/*
 * The driver's errors by name, its version, and its functions by name.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/standin/standin.h"

#define ERRORS(X)                                                                                 \
	X(CUDA_SUCCESS, "no error")                                                               \
	X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                           \
	X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                              \
	X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                     \
	X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                       \
	X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                               \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")     \
	X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                             \
	X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                    \
	X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                   \
	X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                               \
	X(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")                           \
	X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                                   \
	X(CUDA_ERROR_NOT_MAPPED, "resource not mapped")                                           \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                    \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,                                                     \
	  "peer access is not supported between these two devices")                               \
	X(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected")                 \
	X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")    \
	X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                   \
	X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")     \
	X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                         \
	X(CUDA_ERROR_NOT_READY, "device not ready")                                               \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                 \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")          \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                   \
	X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process") \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,                                              \
	  "part or all of the requested memory range is already mapped")                          \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,                                                  \
	  "pointer does not correspond to a registered memory region")                            \
	X(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")                                \
	X(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")               \
	X(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")                                    \
	X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                 \
	X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                    \
	X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                    \
	X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")                              \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,                                                      \
	  "system has unsupported display driver / cuda driver combination")                      \
	X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,                                              \
	  "forward compatibility was attempted on non supported HW")                              \
	X(CUDA_ERROR_MPS_CONNECTION_FAILED,                                                       \
	  "MPS client failed to connect to the MPS control daemon or the MPS server")             \
	X(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server is not ready to accept new clients")       \
	X(CUDA_ERROR_MPS_CLIENT_TERMINATED, "MPS client has been terminated by the MPS server")   \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,                                                  \
	  "operation not permitted when stream is capturing")                                     \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,                                                  \
	  "operation failed due to a previous error during capture")                              \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not initiated in this stream")        \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                                 \
	  "attempt to terminate a thread-local capture sequence from another thread")             \
	X(CUDA_ERROR_TIMEOUT, "wait operation timed out")                                         \
	X(CUDA_ERROR_EXTERNAL_DEVICE,                                                             \
	  "an async error has occurred in external entity outside of CUDA")                       \
	X(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
	CUresult result;
	const char *name, *text;
} errors[] = {
#define ERROR(result, text) {result, #result, text},
    ERRORS(ERROR)
#undef ERROR
};

#define ERROR_COUNT (sizeof(errors) / sizeof(*errors))

bool error_by_name(const char *name, CUresult *out)
{
	for (size_t i = 0; i < ERROR_COUNT; i++)
		if (strcmp(errors[i].name, name) == 0) {
			*out = errors[i].result;
			return true;
		}
	return false;
}

CUresult cuGetErrorName(CUresult error, const char **out)
{
	ENTER(cuGetErrorName, NEEDS_NOTHING);
	for (size_t i = 0; i < ERROR_COUNT; i++)
		if (errors[i].result == error) {
			*out = errors[i].name;
			return CUDA_SUCCESS;
		}
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	ENTER(cuGetErrorString, NEEDS_NOTHING);
	for (size_t i = 0; i < ERROR_COUNT; i++)
		if (errors[i].result == error) {
			*out = errors[i].text;
			return CUDA_SUCCESS;
		}
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

#define ADDRESS(symbol) {#symbol, (void (*)(void))symbol},
static const struct {
	const char *name;
	void (*address)(void);
} functions[] = {STANDIN_FUNCTIONS(ADDRESS)};

/* The newest form of a function wins, whatever version is asked for. */
CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	size_t length = symbol ? strlen(symbol) : 0;

	(void)version;
	(void)flags;
	ENTER(cuGetProcAddress_v2, NEEDS_NOTHING);
	if (!symbol || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < STANDIN_FUNCTION_COUNT; i++) {
		const char *name = functions[i].name;

		if (strncmp(name, symbol, length) == 0 &&
		    (name[length] == '\0' || strncmp(name + length, "_v", 2) == 0))
			memcpy(out, &functions[i].address, sizeof(*out));
	}
	if (status)
		*status = *out ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
