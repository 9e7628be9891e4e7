/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/host_pages.h"

static inline const struct memory_kind *memory_host_kind(void)
{
	return memory_kind_by_id(MEMORY_HOST);
}

/* What a memfd of that size keeps for as long as it is there: where its pages come from, and huge
 * ones that are its own. */
int memory_host_set_up(const struct memory_host_pages *pages, int fd, uint64_t size,
		       struct failure *failure);
