/* SPDX-License-Identifier: MIT */

/*
 * The device that this process works on, and its primary context. The context costs half a gigabyte
 * of the device's memory, so it is created by the first call that cannot do without one.
 */

#include <string.h>

#include <share/error.h>

#include "base/failure.h"
#include "memory/cuda/context.h"
#include "memory/cuda/device_open.h"
#include "memory/device.h"

static struct device_open opened;

int memory_device_open(const char *uuid_text, struct failure *failure)
{
	struct device_open found = {0};
	int r;

	if (!memory_uuid_parse(uuid_text, found.uuid))
		return failure_set(failure, SHARE_EINVAL,
				   "'%.64s' is no device: a UUID is needed, as \"GPU-...\" or "
				   "\"MIG-...\"",
				   uuid_text);
	found.mig = strncmp(uuid_text, "MIG-", 4) == 0;
	r = cuda_get(&found.cu, failure);
	if (r == 0)
		r = cuda_find_device(found.cu, found.uuid, &found.device, failure);
	if (r == 0)
		opened = found;
	return r;
}

int device_opened(const struct device_open **out, struct failure *failure)
{
	if (!opened.cu)
		return failure_set(failure, SHARE_ENODEV, "no device has been opened");
	*out = &opened;
	return 0;
}

int device_opened_context(const struct device_open **out, struct failure *failure)
{
	CUcontext context;
	int r = device_opened(out, failure);

	if (r < 0 || opened.context)
		return r;
	r = cuda_enter_primary(opened.cu, opened.device, &context, failure);
	if (r == 0)
		opened.context = context;
	return r;
}

void device_name_in(const struct device_open *device, struct memory_recipe *recipe)
{
	memcpy(recipe->device, device->uuid, sizeof(recipe->device));
	if (device->mig)
		recipe->flags |= MEMORY_ON_MIG;
}
