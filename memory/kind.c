/* SPDX-License-Identifier: MIT */

/* The table of kinds, best first. Adding one means a line here, an exporter and an importer. */

#include <string.h>

#include "memory/kind.h"

static const struct memory_kind kinds[] = {
    {
	.name = "vmm",
	.id = MEMORY_VMM,
	.on_device = true,
	.readonly = true,
	.placeable = true,
	.granularity = MEMORY_ALIGNMENT,
    },
    {
	.name = "mempool",
	.id = MEMORY_MEMPOOL,
	.on_device = true,
	.granularity = MEMORY_ALIGNMENT,
	/* an importer of a larger one dies of SIGSEGV inside the driver */
	.segment_max = UINT64_C(4) << 30,
    },
    {
	.name = "host",
	.id = MEMORY_HOST,
	.readonly = true,
	.placeable = true,
	.granularity = 4096,
    },
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const struct memory_kind *memory_kind_by_name(const char *name, size_t size)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if (strlen(kinds[i].name) == size && memcmp(kinds[i].name, name, size) == 0)
			return &kinds[i];
	return NULL;
}

const struct memory_kind *memory_kind_by_id(uint32_t id)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if ((uint32_t)kinds[i].id == id)
			return &kinds[i];
	return NULL;
}
