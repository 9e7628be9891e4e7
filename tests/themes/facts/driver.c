/* SPDX-License-Identifier: MIT */

/*
 * The CUDA driver by dlopen, whole or not at all.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/themes/facts/gpu.h"

struct driver cu;

#define TEXT(symbol) #symbol
#define NAME(symbol) TEXT(symbol) /* cuda.h has a say first */

static const struct {
	const char *symbol;
	size_t offset;
} functions[] = {
#define FUNCTION(member, function) {NAME(function), offsetof(struct driver, member)},
    DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

const char *driver_load(void)
{
	static char why[256];
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult result;
	int devices;

	if (!library) {
		snprintf(why, sizeof(why), "no driver: %s", dlerror());
		return why;
	}
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		void *address = dlsym(library, functions[i].symbol);

		if (!address) {
			snprintf(why, sizeof(why), "the driver has no %s", functions[i].symbol);
			return why;
		}
		memcpy((char *)&cu + functions[i].offset, &address, sizeof(address));
	}
	result = cu.Init(0);
	if (result == CUDA_SUCCESS)
		result = cu.DeviceGetCount(&devices);
	if (result != CUDA_SUCCESS) {
		snprintf(why, sizeof(why), "no GPU: %s", error_name(result));
		return why;
	}
	return devices > 0 ? NULL : "no GPU";
}

const char *error_name(CUresult result)
{
	const char *name = NULL;

	if (cu.GetErrorName)
		cu.GetErrorName(result, &name);
	return name ? name : "an error without a name";
}

void must(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		failed("%s: %s", call, error_name(result));
}

void use_driver(void)
{
	const char *why = driver_load();

	if (why)
		skipped("%s", why);
}

CUcontext use_context(void)
{
	CUcontext context;

	use_driver();
	MUST(DevicePrimaryCtxRetain(&context, 0));
	MUST(CtxSetCurrent(context));
	return context;
}

uint64_t device_free(void)
{
	size_t bytes, total;

	MUST(MemGetInfo(&bytes, &total));
	return bytes;
}

void a_moment(void)
{
	struct timespec t = {.tv_nsec = 1000000};

	nanosleep(&t, NULL);
}

uint64_t device_free_reaches(uint64_t wanted)
{
	uint64_t start = nanoseconds(), now;

	while ((now = device_free()) < wanted && nanoseconds() - start < UINT64_C(2000000000))
		a_moment();
	return now;
}

bool settles(CUstream stream, int milliseconds)
{
	uint64_t start = nanoseconds();
	CUresult result;

	while ((result = cu.StreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
		if (nanoseconds() - start > (uint64_t)milliseconds * 1000000)
			return false;
		a_moment();
	}
	must(result, "cuStreamQuery");
	return true;
}
