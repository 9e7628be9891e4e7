/* SPDX-License-Identifier: MIT */

/*
 * Facts about the machine and the cost of asking the driver.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/themes/facts/gpu.h"

static void uuid_text(char out[41])
{
	CUuuid uuid;
	char *at = out + 4;

	MUST(DeviceGetUuid(&uuid, 0));
	memcpy(out, "GPU-", 4);
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      (unsigned char)uuid.bytes[i]);
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

static void looker(int channel)
{
	struct message m = {0};
	CUcontext context;
	const char *why;
	int devices = 0;

	hear(channel, &m, NULL);
	m.value[1] = nanoseconds();
	why = driver_load();
	m.value[1] = nanoseconds() - m.value[1];
	if (!why) {
		MUST(DeviceGetCount(&devices));
		m.value[0] = (uint64_t)devices;
		uuid_text((char *)m.bytes);
		m.value[2] = nanoseconds();
		MUST(DevicePrimaryCtxRetain(&context, 0));
		m.value[2] = nanoseconds() - m.value[2];
	}
	tell(channel, &m, -1);
	hear(channel, &m, NULL);
}

static void visible_by_uuid(void)
{
	struct role first = role_start("machine-looker", NULL), by_uuid, unknown;
	struct message all = {0}, one = {0}, none = {0};
	char setting[80];

	/* no driver in this process: roles can be started at any time */
	ask(first.channel, &all, -1);
	role_kill(&first);
	if (!all.value[0])
		failed("no device");
	snprintf(setting, sizeof(setting), "CUDA_VISIBLE_DEVICES=%.40s", (char *)all.bytes);
	by_uuid = role_start("machine-looker", setting);
	ask(by_uuid.channel, &one, -1);
	if (one.value[0] != 1 || memcmp(one.bytes, all.bytes, 40) != 0)
		failed("%s shows %lu devices, the first %.40s", setting,
		       (unsigned long)one.value[0], (char *)one.bytes);
	unknown = role_start("machine-looker",
			     "CUDA_VISIBLE_DEVICES=GPU-00000000-1111-2222-3333-444444444444");
	ask(unknown.channel, &none, -1);
	if (none.value[0])
		failed("an unknown UUID shows %lu devices", (unsigned long)none.value[0]);
	ok("%s shows it alone, an unknown one none; load and cuInit %lu ms, then %lu ms with one "
	   "visible; primary context %lu and %lu ms",
	   setting, (unsigned long)all.value[1] / 1000000, (unsigned long)one.value[1] / 1000000,
	   (unsigned long)all.value[2] / 1000000, (unsigned long)one.value[2] / 1000000);
}

/* ---- what a call costs ---- */

#define BATCHES 101
#define CALLS   1000

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define MEDIAN(out, call)                                                     \
	do {                                                                  \
		double each_[BATCHES];                                        \
		for (int i_ = 0; i_ < BATCHES; i_++) {                        \
			uint64_t start_ = nanoseconds();                      \
			for (int j_ = 0; j_ < CALLS; j_++)                    \
				MUST(call);                                   \
			each_[i_] = (double)(nanoseconds() - start_) / CALLS; \
		}                                                             \
		qsort(each_, BATCHES, sizeof(*each_), compare);               \
		(out) = each_[BATCHES / 2];                                   \
	} while (0)

static void costs(void)
{
	double current, device, id, is_capturing, attribute, query;
	CUstreamCaptureStatus status;
	unsigned long long number;
	CUdeviceptr memory;
	CUcontext context;
	CUdevice ordinal;
	CUstream stream;
	unsigned type;

	use_context();
	MUST(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(MemAlloc(&memory, MIB));
	MEDIAN(current, CtxGetCurrent(&context));
	MEDIAN(device, CtxGetDevice(&ordinal));
	MEDIAN(id, StreamGetId(stream, &number));
	MEDIAN(is_capturing, StreamIsCapturing(stream, &status));
	MEDIAN(attribute, PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
	MEDIAN(query, StreamQuery(stream));
	ok("ns, median: cuCtxGetCurrent %.0f, cuCtxGetDevice %.0f, cuStreamGetId %.0f, "
	   "cuStreamIsCapturing %.0f, cuPointerGetAttribute %.0f, cuStreamQuery %.0f",
	   current, device, id, is_capturing, attribute, query);
}

/* ---- NVML ---- */

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml {
	int (*init)(void);
	int (*by_uuid)(const char *uuid, void **device);
	int (*memory)(void *device, struct nvml_memory *memory);
	int (*mig)(void *device, unsigned *current, unsigned *pending);
};

static void find(void *library, const char *symbol, void *out)
{
	void *address = dlsym(library, symbol);

	if (!address)
		failed("libnvidia-ml.so.1 has no %s", symbol);
	memcpy(out, &address, sizeof(address));
}

static void nvml_tells(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
	struct nvml_memory before, with;
	unsigned current = 0, pending = 0;
	struct nvml nvml;
	char uuid[41];
	int result, mig;

	use_driver();
	if (!library)
		skipped("no libnvidia-ml.so.1");
	find(library, "nvmlInit_v2", &nvml.init);
	find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid);
	find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
	find(library, "nvmlDeviceGetMigMode", &nvml.mig);
	uuid_text(uuid);
	result = nvml.init();
	if (result)
		failed("nvmlInit_v2: %d", result);
	result = nvml.by_uuid(uuid, &device);
	if (result)
		failed("nvmlDeviceGetHandleByUUID(%s): %d", uuid, result);
	result = nvml.memory(device, &before);
	if (result)
		failed("nvmlDeviceGetMemoryInfo without a context: %d", result);
	mig = nvml.mig(device, &current, &pending);
	use_context();
	nvml.memory(device, &with);
	ok("%llu MiB of %llu free without a context, %llu with one (cuMemGetInfo says %lu); MIG "
	   "mode call: %d (current %u)",
	   before.free / MIB, before.total / MIB, with.free / MIB,
	   (unsigned long)(device_free() / MIB), mig, current);
}

static void attributes(void)
{
	static const struct {
		const char *name;
		CUdevice_attribute which;
	} wanted[] = {
	    {"MPS", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
	    {"64-bit memory operations", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS},
	    {"the same, v1", CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1},
	    {"virtual memory", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
	    {"descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
	    {"RDMA", CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED},
	    {"pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
	    {"pool handle types", CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES},
	    {"interprocess events", CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
	    {"read-only registration", CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED},
	    {"host pointer for registered memory",
	     CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
	};
	CUmemAllocationProp properties = vmm_properties();
	char text[1024] = "";
	size_t granularity;

	use_driver();
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		int value = -1;

		MUST(DeviceGetAttribute(&value, wanted[i].which, 0));
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s %d, ",
			 wanted[i].name, value);
	}
	MUST(MemGetAllocationGranularity(&granularity, &properties,
					 CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	if (granularity > 2 * MIB || 2 * MIB % granularity)
		failed("granularity %lu", (unsigned long)granularity);
	ok("%sgranularity %lu", text, (unsigned long)granularity);
}

const struct fact machine_facts[] = {
    {"device_attributes", attributes},
    {"devices_made_visible_by_uuid", visible_by_uuid},
    {"nvml_tells_free_memory_without_a_context", nvml_tells},
    {"cost_of_asking_the_driver", costs},
    {NULL, NULL},
};

const struct play machine_plays[] = {
    {"machine-looker", looker},
    {NULL, NULL},
};
