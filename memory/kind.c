/* SPDX-License-Identifier: MIT */

/* The table of kinds as data. */

#include "memory/kind.h"

#define IS_DEVICE true
#define IS_HOST   false
#define KIND(NAME, name_, id_, where, flags, granularity_, segment_max_, ability_, text_) \
	{                                                                                 \
	    .name = #name_,                                                               \
	    .id = id_,                                                                    \
	    .on_device = IS_##where,                                                      \
	    .readonly = (flags)&MEMORY_READONLY,                                          \
	    .placeable = (flags)&MEMORY_PLACEABLE,                                        \
	    .device_granularity = (flags)&MEMORY_DEVICE_GRANULARITY,                      \
	    .named_only = (flags)&MEMORY_NAMED_ONLY,                                      \
	    .of_maker = (flags)&MEMORY_OF_MAKER,                                          \
	    .of_host = (flags)&MEMORY_OF_HOST,                                            \
	    .granularity = granularity_,                                                  \
	    .segment_max = segment_max_,                                                  \
	    .ability = ability_,                                                          \
	    .text = text_,                                                                \
	},

static const struct memory_kind kinds[] = {MEMORY_KINDS(KIND)};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const struct memory_kind *memory_kind_at(size_t i)
{
	return i < N_KINDS ? &kinds[i] : NULL;
}

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
