/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_KIND_H
#define MEMORY_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Kinds of memory. Each is a const vtable with two halves: the exporting one makes a segment and
 * the recipe by which others reach it; the importing one turns a recipe into an address. They run
 * in different processes and share nothing but the recipe.
 *
 * Functions return 0 or negative errno. Outputs are written on success only.
 */

/* Every segment starts at a multiple of this, in every process. */
#define MEMORY_ALIGNMENT (UINT64_C(2) << 20)

enum memory_kind_id { /* on the wire: never renumber */
		      MEMORY_HOST = 1,
};

/* A segment in the process that created it. Filled by create(), emptied by destroy(). */
struct memory_segment {
	uint64_t size;
	int fd;          /* for reading and writing */
	int fd_readonly; /* the same memory; cannot be mapped for writing */
};

struct memory_kind {
	const char *name;
	enum memory_kind_id id;
	uint64_t granularity; /* sizes of segments are multiples of it */

	/* exporting half */
	int (*create)(struct memory_segment *out, uint64_t size);
	void (*destroy)(struct memory_segment *segment);
	/* Gives the memory back to the system though importers still map it (they read zeros), and
	 * lets go of the descriptors. destroy() has to follow. */
	int (*discard)(struct memory_segment *segment);

	/* importing half; sizes are multiples of the granularity; @fd stays the caller's and is not
	 * needed any more afterwards */
	int (*import)(int fd, uint64_t size, bool writable, void **out);
	void (*unmap)(void *address, uint64_t size);
};

extern const struct memory_kind memory_host;

/* NULL when unknown. "auto" is the best kind that works here. */
const struct memory_kind *memory_kind_by_name(const char *name, size_t size);
const struct memory_kind *memory_kind_by_id(uint32_t id);

#endif
