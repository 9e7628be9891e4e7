/* SPDX-License-Identifier: MIT */

/*
 * NVIDIA's management library (NVML), found at run time. Not every CUDA toolkit has its header, so
 * the few functions that are used are declared here. They have not changed since NVML 5 (2013), and
 * the one about MIG not since version 11.
 */

#include <dlfcn.h>
#include <stddef.h>

#include "memory/gpu/nvml.h"

typedef void *nvml_device;

struct nvml_memory {
	unsigned long long total, free, used;
};

static struct {
	int (*init)(void);
	int (*handle_by_uuid)(const char *uuid, nvml_device *out);
	int (*memory)(nvml_device device, struct nvml_memory *out);
	int (*mig_mode)(nvml_device device, unsigned *current, unsigned *pending);
} nvml;

static bool lookup(void *library, void *function, const char *symbol)
{
	return (*(void **)function = dlsym(library, symbol)) != NULL;
}

static bool load(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	lookup(library, &nvml.mig_mode, "nvmlDeviceGetMigMode"); /* old libraries lack it */
	return lookup(library, &nvml.init, "nvmlInit_v2") &&
	       lookup(library, &nvml.handle_by_uuid, "nvmlDeviceGetHandleByUUID") &&
	       lookup(library, &nvml.memory, "nvmlDeviceGetMemoryInfo") && nvml.init() == 0;
}

static bool find_device(const char *uuid_text, nvml_device *out)
{
	static enum { UNTRIED, READY, ABSENT } state;

	if (state == UNTRIED)
		state = load() ? READY : ABSENT;
	return state == READY && nvml.handle_by_uuid(uuid_text, out) == 0;
}

bool nvml_knows(const char *uuid_text)
{
	nvml_device device;

	return find_device(uuid_text, &device);
}

uint64_t nvml_free_memory(const char *uuid_text)
{
	struct nvml_memory memory;
	nvml_device device;

	if (!find_device(uuid_text, &device) || nvml.memory(device, &memory) != 0)
		return UINT64_MAX;
	return memory.free;
}

bool nvml_mig_enabled(const char *uuid_text)
{
	unsigned current = 0, pending;
	nvml_device device;

	return find_device(uuid_text, &device) && nvml.mig_mode &&
	       nvml.mig_mode(device, &current, &pending) == 0 && current == 1;
}
