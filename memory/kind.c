/* SPDX-License-Identifier: MIT */

/* The table of kinds, best first. Adding one means adding a line here. */

#include <string.h>

#include "memory/kind.h"

static const struct memory_kind *const kinds[] = {
    &memory_host,
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const struct memory_kind *memory_kind_by_name(const char *name, size_t size)
{
	if (size == 4 && memcmp(name, "auto", 4) == 0)
		return kinds[0];
	for (size_t i = 0; i < N_KINDS; i++)
		if (strlen(kinds[i]->name) == size && memcmp(kinds[i]->name, name, size) == 0)
			return kinds[i];
	return NULL;
}

const struct memory_kind *memory_kind_by_id(uint32_t id)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if ((uint32_t)kinds[i]->id == id)
			return kinds[i];
	return NULL;
}
