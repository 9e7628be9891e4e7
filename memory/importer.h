/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_IMPORTER_H
#define MEMORY_IMPORTER_H

#include "memory/import.h"

/*
 * What import.c calls, by kind. The recipe has been checked as far as its numbers go. import()
 * fills address, ordinal and kept of @m; the rest is there.
 */
struct memory_importer {
	enum memory_kind_id kind;
	int (*import)(const struct memory_recipe *recipe, int fd, struct memory_mapping *m,
		      struct failure *failure);
	/* NULL: everything it maps is writable */
	int (*make_writable)(struct memory_mapping *m, int fd, struct failure *failure);
	/* NULL: there is nothing to do */
	int (*reach)(struct memory_mapping *m, struct failure *failure);
	void (*unmap)(struct memory_mapping *m);
};

#define MEMORY_IMPORTER(NAME, name, ...) \
	extern const struct memory_importer memory_##name##_importer;
MEMORY_KINDS(MEMORY_IMPORTER)
#undef MEMORY_IMPORTER

#endif
