/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/import.h"

/*
 * What import.c calls for each kind. It has checked the numbers in the recipe before. import()
 * fills in address, ordinal and kept of @m; the other members are set already.
 */
struct memory_importer {
	enum memory_kind_id kind;
	int (*import)(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
		      struct failure *failure);
	/* NULL: all mappings of this kind are writable */
	int (*make_writable)(struct memory_mapping *m, int fd, struct failure *failure);
	/* NULL: there is nothing to do */
	int (*reach)(struct memory_mapping *m, struct failure *failure);
	void (*unmap)(struct memory_mapping *m);
	/* Of a kind whose memory is gone with its maker: whether it is. NULL: it is there as long
	 * as it is mapped */
	bool (*is_lost)(const struct memory_mapping *m);
};

#define MEMORY_IMPORTER(NAME, name, ...) \
	extern const struct memory_importer memory_##name##_importer;
MEMORY_KINDS(MEMORY_IMPORTER)
#undef MEMORY_IMPORTER
