/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_CUDA_COMMON_H
#define EXAMPLES_CUDA_COMMON_H

/* What the examples with kernels share: an error ends the program, and each program uses the device
 * that its memory is on. */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <share/share.h>

static const char *role; /* what this process is, if the program has several */

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	if (role)
		fprintf(stderr, "%s: ", role);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

static inline void check(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s (%s)", what, share_strerror(result), share_error_detail());
}

static inline void check(cudaError_t result, const char *what)
{
	if (result != cudaSuccess)
		fail("%s: %s (%s)", what, cudaGetErrorName(result), cudaGetErrorString(result));
}

static inline void check_system(bool fine, const char *what)
{
	if (!fine)
		fail("%s: %s", what, strerror(errno));
}

/* Writes the device's UUID as the library writes it: "GPU-" and the rest. */
static inline void uuid_of(int device, char uuid[41])
{
	cudaDeviceProp properties;

	check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
	strcpy(uuid, "GPU-");
	for (int k = 0, at = 4; k < 16; k++)
		at += snprintf(uuid + at, 41 - (size_t)at, "%s%02x",
			       k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "",
			       (unsigned char)properties.uuid.bytes[k]);
}

/* Makes the device with that UUID current. The numbers of devices depend on CUDA_VISIBLE_DEVICES,
 * so shared memory names its device by UUID. */
static inline int use_device(const char *uuid)
{
	char text[41];
	int n;

	check(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
	for (int i = 0; i < n; i++) {
		uuid_of(i, text);
		if (strcmp(strchr(uuid, '-'), strchr(text, '-')) == 0) {
			check(cudaSetDevice(i), "cudaSetDevice");
			return i;
		}
	}
	fail("this process cannot see %s: is it hidden by CUDA_VISIBLE_DEVICES?", uuid);
}

static inline void use_device_of(share_pool *pool)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;

	check(share_pool_get_info(pool, &info), "share_pool_get_info");
	use_device(info.device);
}

#endif
