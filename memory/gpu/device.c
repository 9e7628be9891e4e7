/* SPDX-License-Identifier: MIT */

/*
 * Which devices there are and what each of them can do, found out without a context.
 *
 * This process is never an MPS client: the clients of one MPS server fail together, and the process
 * that made the memory has to outlive them all. If the driver finds no control pipe of MPS where it
 * looks, it uses the device directly.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "memory/cuda/device_open.h"
#include "memory/device.h"
#include "memory/export.h"
#include "memory/gpu/nvml.h"

/* No process can make a directory there. */
#define NO_MPS "/proc/share-agent-is-no-mps-client"

static bool mps_is_running;

/* Called before the driver is initialised. Only the first call sees the value that this process
 * inherited. */
static void leave_mps(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char control[4096];

	if (directory && strcmp(directory, NO_MPS) == 0)
		return;
	snprintf(control, sizeof(control), "%s/control", directory ? directory : "/tmp/nvidia-mps");
	mps_is_running = access(control, F_OK) == 0;
	setenv("CUDA_MPS_PIPE_DIRECTORY", NO_MPS, 1);
}

int memory_devices_init(uint32_t *n, struct failure *failure)
{
	const struct cuda *cu;
	int count, r;

	leave_mps();
	r = cuda_get(&cu, failure);
	if (r == 0)
		r = cuda_check(failure, "cuDeviceGetCount", cu->DeviceGetCount(&count));
	if (r == 0)
		*n = (uint32_t)count;
	return r;
}

/* An ability of which this driver does not know is 0. */
static void describe_abilities(const struct cuda *cu, CUdevice device, struct memory_device *d)
{
	const struct memory_kind *kind;

	d->compute =
	    (uint32_t)(10 * cuda_attribute(cu, device,
					   CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
		       cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
	for (size_t i = 0; (kind = memory_kind_at(i)); i++)
		if (kind->on_device &&
		    memory_device_exporter(kind->id)->can(d->ordinal, &d->granularity))
			d->kinds |= kind->ability;
	d->events = cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
	d->stream_mem_ops =
	    cuda_attribute(cu, device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
}

/* The UUID of a MIG instance looks like that of a device. Only NVML, or the device's name, tells
 * which of the two it is. */
static void describe_mig(struct memory_device *d)
{
	char as_instance[sizeof(d->uuid_text)];

	memory_uuid_text(d->uuid, d->uuid_text);
	memcpy(as_instance, d->uuid_text, sizeof(as_instance));
	memcpy(as_instance, "MIG-", 4);
	d->mig = nvml_knows(as_instance) || (strstr(d->name, " MIG ") && !nvml_knows(d->uuid_text));
	if (d->mig)
		memcpy(d->uuid_text, as_instance, sizeof(as_instance));
	else
		d->mig_enabled = nvml_mig_enabled(d->uuid_text);
}

/* The driver tells this only in a context, which is too expensive to create for it. */
static uint64_t free_memory(const struct memory_device *d, CUdevice device)
{
	const struct device_open *opened;
	struct failure ignored;
	size_t available, total;

	if (device_opened(&opened, &ignored) == 0 && opened->device == device && opened->context &&
	    opened->cu->MemGetInfo(&available, &total) == CUDA_SUCCESS)
		return available;
	return nvml_free_memory(d->uuid_text);
}

int memory_device_describe(uint32_t ordinal, struct memory_device *out, struct failure *failure)
{
	struct memory_device d = {.ordinal = ordinal, .mps = mps_is_running};
	const struct cuda *cu;
	CUdevice device;
	CUuuid uuid;
	size_t total;
	int version, r = cuda_get(&cu, failure);

	if (r == 0)
		r = cuda_check(failure, "cuDriverGetVersion", cu->DriverGetVersion(&version));
	if (r == 0)
		r = cuda_check(failure, "cuDeviceGet", cu->DeviceGet(&device, (int)ordinal));
	if (r == 0)
		r = cuda_check(failure, "cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, device));
	if (r == 0)
		r = cuda_check(failure, "cuDeviceGetName",
			       cu->DeviceGetName(d.name, sizeof(d.name), device));
	if (r == 0)
		r = cuda_check(failure, "cuDeviceGetPCIBusId",
			       cu->DeviceGetPCIBusId(d.pci, sizeof(d.pci), device));
	if (r == 0)
		r = cuda_check(failure, "cuDeviceTotalMem", cu->DeviceTotalMem(&total, device));
	if (r != 0)
		return r;
	d.driver = (uint32_t)version;
	d.total = total;
	memcpy(d.uuid, uuid.bytes, sizeof(d.uuid));
	describe_abilities(cu, device, &d);
	describe_mig(&d);
	d.free = free_memory(&d, device);
	*out = d;
	return 0;
}
