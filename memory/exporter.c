/* SPDX-License-Identifier: MIT */

/* The list of the exporters of GPU memory, for code that is given the number of a kind. */

#include "memory/export.h"

#define EXPORTER(NAME, name, id, where, ...) MEMORY_ON_##where(&memory_##name##_exporter, )

static const struct memory_exporter *const exporters[] = {MEMORY_KINDS(EXPORTER)};

const struct memory_exporter *memory_device_exporter(uint32_t kind)
{
	for (size_t i = 0; i < sizeof(exporters) / sizeof(exporters[0]); i++)
		if ((uint32_t)exporters[i]->kind == kind)
			return exporters[i];
	return NULL;
}
