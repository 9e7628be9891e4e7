/* SPDX-License-Identifier: MIT */

/* Stand-ins for devices, their exporters and their events, for a build that found no CUDA headers.
 * Each function fails and says so. */

/* What a function is given is for the one that has a driver. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include <share/error.h>

#include "base/failure.h"
#include "memory/device.h"
#include "memory/export.h"
#include "memory/without_cuda.h"

int memory_devices_init(uint32_t *n, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_device_describe(uint32_t ordinal, struct memory_device *out, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_device_open(const char *uuid_text, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

static int no_create(uint64_t size, uint64_t address, struct memory_segment *out,
		     struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

static int no_destroy(struct memory_segment *segment, struct failure *failure)
{
	return 0;
}

static bool cannot(uint32_t ordinal, uint64_t *granularity)
{
	return false;
}

#define NO_EXPORTER(NAME, name, id_, where, ...)                      \
	MEMORY_ON_##where(                                            \
	    const struct memory_exporter memory_##name##_exporter = { \
		.kind = id_, .create = no_create, .destroy = no_destroy, .can = cannot};)
MEMORY_KINDS(NO_EXPORTER)

int memory_device_zero(enum memory_kind_id kind, const struct memory_segment *segment,
		       uint64_t offset, uint64_t size, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_event_create(struct memory_event **out, unsigned char handle[64],
			struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}

int memory_event_destroy(struct memory_event *e, bool wedged, struct failure *failure)
{
	return failure_set(failure, SHARE_ENODEV, MEMORY_WITHOUT_CUDA);
}
