/* SPDX-License-Identifier: MIT */

/* The process that looks how much memory is free. */

#include <stddef.h>

#include "memory/cuda/driver.h"
#include "tests/harness/check.h"
#include "tests/harness/child.h"
#include "tests/support/free_memory.h"

static struct child *child;

static void measures(struct child *self, void *data)
{
	struct failure failure;
	const struct cuda *cu;
	CUcontext context;
	CUdevice device;
	size_t free, total;
	uint64_t told;

	(void)data;
	check_ok(cuda_get(&cu, &failure));
	check(cu->DeviceGet(&device, 0) == CUDA_SUCCESS);
	check(cu->DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
	check(cu->CtxPushCurrent(context) == CUDA_SUCCESS);
	for (;;) {
		child_point(self, "asked");
		check(cu->MemGetInfo(&free, &total) == CUDA_SUCCESS);
		told = free;
		child_point_with(self, "measured", &told, sizeof(told));
	}
}

void free_memory_start(void)
{
	child = child_start(measures, NULL);
}

void free_memory_stop(void)
{
	child_kill(child);
}

uint64_t free_memory(void)
{
	uint64_t bytes;

	child_wait(child, "asked");
	child_go(child);
	child_wait_with(child, "measured", &bytes, sizeof(bytes));
	child_go(child);
	return bytes;
}
