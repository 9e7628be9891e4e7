/* SPDX-License-Identifier: MIT */

/*
 * The devices: how many SHARE_STANDIN wants, less those that CUDA_VISIBLE_DEVICES hides, and what
 * they say about themselves.
 */

#include <stdio.h>
#include <string.h>

#include "tests/standin/standin.h"

struct machine machine;
pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool initialised;

static void number(const char *text, const char *key, uint64_t *out)
{
	size_t length = strlen(key);

	for (const char *at = text; at && *at; at = strchr(at, ','), at = at ? at + 1 : NULL)
		if (strncmp(at, key, length) == 0 && at[length] == '=')
			*out = strtoull(at + length + 1, NULL, 0);
}

static uint64_t option(const char *key, uint64_t value)
{
	const char *text = getenv("SHARE_STANDIN");

	if (text)
		number(text, key, &value);
	return value;
}

static void device_uuid(unsigned device, char out[16])
{
	char text[17];

	snprintf(text, sizeof(text), "standin-device-%u", device % 10);
	memcpy(out, text, 16);
}

/* "GPU-" or "MIG-", 8-4-4-4-12. */
static void uuid_text(unsigned device, char out[41])
{
	char bytes[16], *at = out + 4;

	device_uuid(device, bytes);
	memcpy(out, machine.mig ? "MIG-" : "GPU-", 4);
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      (unsigned char)bytes[i]);
}

/* One entry of CUDA_VISIBLE_DEVICES: an ordinal, or a UUID of which the end may be missing. */
static int entry(const char *text, size_t length)
{
	char *end;

	if (length >= 4 && strncmp(text, machine.mig ? "MIG-" : "GPU-", 4) == 0) {
		for (unsigned d = 0; d < machine.devices; d++) {
			char uuid[41];

			uuid_text(d, uuid);
			if (length <= 40 && strncasecmp(uuid, text, length) == 0)
				return (int)d;
		}
		return -1;
	}
	if (length == 0 || text[0] < '0' || text[0] > '9')
		return -1;
	{
		unsigned long n = strtoul(text, &end, 10);

		return n < machine.devices && (size_t)(end - text) == length ? (int)n : -1;
	}
}

/* The first entry that is none hides the rest; an entry twice hides everything. */
static void see(const char *list)
{
	machine.visible_count = 0;
	for (const char *at = list;; at++) {
		size_t length = strcspn(at, ",");
		int device = entry(at, length);

		if (device < 0)
			return;
		for (unsigned i = 0; i < machine.visible_count; i++)
			if (machine.visible[i] == (unsigned)device) {
				machine.visible_count = 0;
				return;
			}
		machine.visible[machine.visible_count++] = (unsigned)device;
		at += length;
		if (*at == '\0')
			return;
	}
}

CUresult devices_init(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	uint64_t devices = option("devices", 1);
	int most = connections ? atoi(connections) : 8;

	machine.devices = devices < STANDIN_DEVICES ? (unsigned)devices : STANDIN_DEVICES;
	machine.memory = option("memory", UINT64_C(1) << 30);
	machine.granularity = option("granularity", UINT64_C(2) << 20);
	machine.driver = (int)option("driver", 13000);
	machine.peers = option("peers", 1);
	machine.mig = option("mig", 0);
	machine.vmm = option("vmm", 1);
	machine.rdma = option("rdma", 1);
	machine.numa = option("numa", 1);
	machine.mempool = option("mempool", 1);
	machine.memops = option("memops", 1);
	machine.events = (unsigned)option("events", 4096);
	machine.number = (unsigned)option("machine", 0);
	machine.connections =
	    (unsigned)option("connections", most >= 1 && most <= 32 ? (uint64_t)most : 8);
	for (unsigned d = 0; d < machine.devices; d++)
		machine.visible[d] = d;
	machine.visible_count = machine.devices;
	if (visible)
		see(visible);
	return machine.visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

bool devices_initialised(void)
{
	return initialised;
}

int device_of(CUdevice ordinal)
{
	return ordinal >= 0 && (unsigned)ordinal < machine.visible_count
		   ? (int)machine.visible[ordinal]
		   : -1;
}

int ordinal_of(unsigned device)
{
	for (unsigned i = 0; i < machine.visible_count; i++)
		if (machine.visible[i] == device)
			return (int)i;
	return -1;
}

CUresult cuInit(unsigned flags)
{
	CUresult result = CUDA_SUCCESS;

	ENTER(cuInit, NEEDS_NOTHING);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	if (!initialised) {
		result = devices_init();
		initialised = result == CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

CUresult cuDriverGetVersion(int *out)
{
	ENTER(cuDriverGetVersion, NEEDS_NOTHING);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	/* may be asked before cuInit() */
	*out = (int)option("driver", 13000);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out)
{
	ENTER(cuDeviceGetCount, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (int)machine.visible_count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	ENTER(cuDeviceGet, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *out, int size, CUdevice ordinal)
{
	ENTER(cuDeviceGetName, NEEDS_INIT);
	if (!out || size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(out, (size_t)size, "Stand-in %d%s", device_of(ordinal),
		 machine.mig ? " MIG 1g.1gb" : "");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice ordinal)
{
	ENTER(cuDeviceGetUuid_v2, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	device_uuid((unsigned)device_of(ordinal), out->bytes);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *out, int size, CUdevice ordinal)
{
	ENTER(cuDeviceGetPCIBusId, NEEDS_INIT);
	if (!out || size < 13)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(out, (size_t)size, "0000:%02x:00.0", 4 + device_of(ordinal));
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice ordinal)
{
	ENTER(cuDeviceTotalMem_v2, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = machine.memory;
	return CUDA_SUCCESS;
}

static int attribute(CUdevice_attribute which, unsigned device)
{
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
		return 1;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return 4 + (int)device;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		return machine.vmm;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		return machine.vmm && machine.rdma;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		return machine.vmm && machine.numa;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		return machine.numa ? 0 : -1;
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
		return machine.mempool;
	case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
		return machine.mempool ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
		return machine.memops;
	default: /* the v1-named attributes of the above among them */
		return 0;
	}
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice ordinal)
{
	ENTER(cuDeviceGetAttribute, NEEDS_INIT);
	if (!out || which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = attribute(which, (unsigned)device_of(ordinal));
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *out, CUdevice ordinal, CUdevice peer)
{
	ENTER(cuDeviceCanAccessPeer, NEEDS_INIT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_of(ordinal) < 0 || device_of(peer) < 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = ordinal != peer && machine.peers;
	return CUDA_SUCCESS;
}
