/* SPDX-License-Identifier: MIT */

/*
 * Loads the CUDA driver at run time, so that programs that never ask for GPU memory run without
 * one. The table of its functions is published when every lookup and cuInit() have succeeded, and
 * does not change afterwards.
 *
 * This is also the only file that says which SHARE_E... number an error of CUDA becomes.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/driver.h"
#include "memory/import.h"

#define LIBRARY    "libcuda.so.1"
#define VERSION(v) (v) / 1000, (v) % 1000 / 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda table; /* written under the lock, before it is published */
static bool loaded;
static _Atomic(const struct cuda *) published;

static const struct {
	const char *symbol;
	size_t offset;
} symbols[] = {
#define SYMBOL(member, symbol, type) {symbol, offsetof(struct cuda, member)},
    CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

/* Fails if the driver is too old or lacks a function, and says so. */
static int check_version(void *library, const char *missing, struct failure *failure)
{
	PFN_cuDriverGetVersion_v2020 get_version;
	int version = 0;

	*(void **)&get_version = dlsym(library, "cuDriverGetVersion");
	if (get_version && get_version(&version) != CUDA_SUCCESS)
		version = 0;
	if (get_version && version < CUDA_DRIVER_LEAST)
		return failure_set(
		    failure, SHARE_ENODEV,
		    "the GPU driver (" LIBRARY
		    ") is too old: it is made for CUDA %d.%d, and %d.%d or newer is needed",
		    VERSION(version), VERSION(CUDA_DRIVER_LEAST));
	if (missing)
		return failure_set(failure, SHARE_ENODEV,
				   LIBRARY " (CUDA %d.%d) has no %s: it is no driver we can use",
				   VERSION(version), missing);
	return 0;
}

static int load(struct failure *failure)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *missing = NULL;
	struct cuda found;
	int r;

	if (!library)
		return failure_set(failure, SHARE_ENODEV, "no GPU driver: %s", dlerror());
	for (size_t i = 0; i < N_SYMBOLS && !missing; i++) {
		void *function = dlsym(library, symbols[i].symbol);

		memcpy((char *)&found + symbols[i].offset, &function, sizeof(function));
		if (!function)
			missing = symbols[i].symbol;
	}
	r = check_version(library, missing, failure);
	if (r < 0) {
		dlclose(library);
		return r;
	}
	table = found;
	loaded = true;
	return 0;
}

static int load_and_init(struct failure *failure)
{
	CUresult result;
	int n, r = loaded ? 0 : load(failure);

	if (r == 0)
		r = cuda_check(failure, "cuInit", table.Init(0));
	if (r < 0)
		return r;
	result = table.DeviceGetCount(&n);
	if (result == CUDA_SUCCESS && n == 0)
		result = CUDA_ERROR_NO_DEVICE;
	return cuda_check(failure, "cuDeviceGetCount", result);
}

int cuda_get(const struct cuda **out, struct failure *failure)
{
	const struct cuda *cu = atomic_load(&published);
	int r = 0;

	if (!cu) {
		pthread_mutex_lock(&lock);
		cu = atomic_load(&published);
		if (!cu) {
			r = load_and_init(failure);
			if (r == 0) {
				cu = &table;
				atomic_store(&published, cu);
			}
		}
		pthread_mutex_unlock(&lock);
	}
	if (r == 0)
		*out = cu;
	return r;
}

bool cuda_is_in_use(const struct cuda **out)
{
	bool known = atomic_load(&published) != NULL;
	struct failure ignored;
	int n;

	if (!known && memory_driver_is_loaded()) {
		pthread_mutex_lock(&lock);
		known = loaded || load(&ignored) == 0;
		pthread_mutex_unlock(&lock);
	}
	return known && table.DeviceGetCount(&n) == CUDA_SUCCESS && cuda_get(out, &ignored) == 0;
}

bool memory_driver_is_loaded(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOLOAD | RTLD_LAZY);

	if (library)
		dlclose(library);
	return library != NULL;
}

/*
 * An error that is listed as not fatal concerns only the call that returned it. One that is not
 * listed is taken for a broken context or driver: such errors are sticky, as every later call
 * returns them too, and only a new process gets rid of them.
 */
static const struct meaning {
	CUresult result;
	int error;
	bool fatal;
	const char *advice; /* what the user can do, when that is known */
} meanings[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, SHARE_ENOMEM, false, NULL},
    {CUDA_ERROR_NOT_SUPPORTED, SHARE_ENOTSUP, false, NULL},
    {CUDA_ERROR_NOT_PERMITTED, SHARE_ENOTSUP, false, NULL},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, SHARE_ENOTSUP, false, NULL},
    {CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, SHARE_ENOTSUP, false, "update the driver"},

    {CUDA_ERROR_NO_DEVICE, SHARE_ENODEV, false,
     "is CUDA_VISIBLE_DEVICES right, and are there /dev/nvidia* that this user may open?"},
    {CUDA_ERROR_INVALID_DEVICE, SHARE_ENODEV, false, NULL},
    {CUDA_ERROR_STUB_LIBRARY, SHARE_ENODEV, false,
     "that is the toolkit's stub: take it out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, SHARE_ENODEV, false,
     "another process has it to itself, or its compute mode is prohibited (nvidia-smi -q)"},
    {CUDA_ERROR_DEVICE_NOT_LICENSED, SHARE_ENODEV, false, NULL},
    {CUDA_ERROR_SYSTEM_NOT_READY, SHARE_ENODEV, false,
     "is nvidia-fabricmanager running, and nvidia-persistenced?"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, SHARE_ENODEV, false,
     "kernel module and library are of different versions: reload the module, or reboot"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, SHARE_ENODEV, false,
     "take the forward-compatibility package out of LD_LIBRARY_PATH"},

    {CUDA_ERROR_OPERATING_SYSTEM, SHARE_ESYSTEM, false,
     "a system call of the driver failed; are there descriptors left (ulimit -n)?"},
    {CUDA_ERROR_NOT_INITIALIZED, SHARE_EDEVICE, false,
     "a child forked by a process that has used CUDA cannot use it"},
    {CUDA_ERROR_INVALID_VALUE, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_INVALID_CONTEXT, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_INVALID_HANDLE, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_MAP_FAILED, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_UNMAP_FAILED, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_ALREADY_MAPPED, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_NOT_MAPPED, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_ILLEGAL_STATE, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_NOT_FOUND, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, SHARE_EDEVICE, false,
     "not while the stream is being captured"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, SHARE_EDEVICE, false,
     "not while a stream is being captured"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, SHARE_EDEVICE, false,
     "is the MPS control daemon running, and CUDA_MPS_PIPE_DIRECTORY right?"},
    {CUDA_ERROR_MPS_SERVER_NOT_READY, SHARE_EDEVICE, false, "the MPS server is starting: wait"},
    {CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, SHARE_EDEVICE, false, NULL},
    {CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, SHARE_EDEVICE, false, NULL},

    {CUDA_ERROR_ECC_UNCORRECTABLE, SHARE_EDEVICE, true,
     "the GPU's memory is damaged: nvidia-smi -q -d ECC, and reset or replace it"},
    {CUDA_ERROR_UNKNOWN, SHARE_EDEVICE, true, "look for NVRM and Xid in the kernel's log"},
};

int cuda_fail(struct failure *failure, const char *call, CUresult result)
{
	struct meaning meaning = {result, SHARE_EDEVICE, true, NULL};
	const char *name, *text;
	char number[32];

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].result == result)
			meaning = meanings[i];
	if (table.GetErrorName(result, &name) != CUDA_SUCCESS || !name) {
		snprintf(number, sizeof(number), "CUresult %d", (int)result);
		name = number;
	}
	if (table.GetErrorString(result, &text) != CUDA_SUCCESS || !text)
		text = "unknown to this driver";
	failure_set(failure, meaning.error, "%s: %s (%s)%s%s", call, name, text,
		    meaning.advice ? "; " : "", meaning.advice ? meaning.advice : "");
	failure->fatal = meaning.fatal;
	return meaning.error;
}

/* Writes the visible devices as "GPU-..., GPU-...", as many as there is room for. */
static void list_devices(const struct cuda *cu, int n, char *out, size_t size)
{
	size_t used = 0;

	out[0] = '\0';
	for (int i = 0; i < n && used + MEMORY_UUID_TEXT + 2 < size; i++) {
		char text[MEMORY_UUID_TEXT];
		CUdevice device;
		CUuuid uuid;

		if (cu->DeviceGet(&device, i) != CUDA_SUCCESS ||
		    cu->DeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
			continue;
		memory_uuid_text((const unsigned char *)uuid.bytes, text);
		used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", text);
	}
}

int cuda_attribute(const struct cuda *cu, CUdevice device, CUdevice_attribute which)
{
	int value = 0;

	return cu->DeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

bool cuda_device(const struct cuda **cu, uint32_t ordinal, CUdevice *device)
{
	struct failure ignored;

	return cuda_get(cu, &ignored) == 0 &&
	       (*cu)->DeviceGet(device, (int)ordinal) == CUDA_SUCCESS;
}

int cuda_find_device(const struct cuda *cu, const unsigned char uuid[16], CUdevice *out,
		     struct failure *failure)
{
	char wanted[MEMORY_UUID_TEXT], visible[96];
	int n, r = cuda_check(failure, "cuDeviceGetCount", cu->DeviceGetCount(&n));

	if (r < 0)
		return r;
	for (int i = 0; i < n; i++) {
		CUdevice device;
		CUuuid found;

		r = cuda_check(failure, "cuDeviceGet", cu->DeviceGet(&device, i));
		if (r == 0)
			r = cuda_check(failure, "cuDeviceGetUuid",
				       cu->DeviceGetUuid(&found, device));
		if (r < 0)
			return r;
		if (memcmp(found.bytes, uuid, 16) == 0) {
			*out = device;
			return 0;
		}
	}
	memory_uuid_text(uuid, wanted);
	list_devices(cu, n, visible, sizeof(visible));
	return failure_set(failure, SHARE_ENODEV,
			   "no device %s in this process, which sees %d: %s; is "
			   "CUDA_VISIBLE_DEVICES right?",
			   wanted, n, visible);
}
