/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_KIND_H
#define MEMORY_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/*
 * Kinds of memory, as data. Making segments is memory/export.h, reaching them memory/import.h: the
 * two run in different processes and share nothing but a descriptor and a recipe.
 */

/* Every segment starts at a multiple of this, in every process. */
#define MEMORY_ALIGNMENT (UINT64_C(2) << 20)

/*
 * Segments that lie at the same address everywhere start at multiples of this, and the addresses up
 * to the next multiple are theirs. To cuMemAddressReserve() an address is a hint: in a process with
 * a context it is heard for 128 MiB and more, not for 16 MiB, and not at every multiple of 2 MiB
 * (H200, driver 580).
 */
#define MEMORY_PLACE (UINT64_C(1) << 30)

enum memory_kind_id { /* on the wire: never renumber */
		      MEMORY_HOST = 1,
		      MEMORY_VMM = 2,
		      MEMORY_MEMPOOL = 3,
};

struct memory_kind {
	const char *name;
	enum memory_kind_id id;
	bool on_device;       /* made by an agent, reached through CUDA */
	bool readonly;        /* can be mapped for reading only */
	bool placeable;       /* can be mapped at an address asked for */
	uint64_t granularity; /* sizes of segments are multiples of it; a device may say more */
	uint64_t segment_max; /* bytes of one segment; 0: no limit of its own */
};

/* NULL when unknown; "auto" is none. */
const struct memory_kind *memory_kind_by_name(const char *name, size_t size);
const struct memory_kind *memory_kind_by_id(uint32_t id);

/* What crosses processes besides the descriptor. Plain bytes: its layout is part of the protocol.
 */
struct memory_recipe {
	uint64_t size;
	uint64_t address;           /* where every process has to map it; 0: anywhere */
	unsigned char identity[16]; /* random: the same memory, by whatever way it came */
	unsigned char device[16];   /* UUID; zeros: host memory */
	unsigned char pointer[64];  /* mempool: CUmemPoolPtrExportData of the segment's start */
	uint32_t flags;             /* enum memory_recipe_flags */
	uint32_t reserved;          /* 0 */
};
_Static_assert(sizeof(struct memory_recipe) == 120, "on the wire");

enum memory_recipe_flags {
	MEMORY_ON_MIG = 1 << 0, /* the device is an instance of one: a UUID does not tell */
};

/* "GPU-5fd4f087-86f3-7a43-b711-4771313afc50". */
#define MEMORY_UUID_TEXT 41
void memory_uuid_text(const unsigned char uuid[16], char out[MEMORY_UUID_TEXT]);
/* The same, or "MIG-...". False: @text is neither. */
bool memory_uuid_parse(const char *text, unsigned char out[16]);
/* What the broker calls the device of a segment. */
void memory_recipe_device(const struct memory_recipe *recipe, char out[MEMORY_UUID_TEXT]);

#endif
