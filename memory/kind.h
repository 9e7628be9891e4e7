/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_KIND_H
#define MEMORY_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/failure.h"

/*
 * Kinds of memory, as data: whoever has to know them all goes through this table. Making segments
 * is memory/export.h, reaching them memory/import.h: the two run in different processes and share
 * nothing but a descriptor and a recipe.
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

/*
 * The kinds, best first: K(NAME, name, id, where, flags, granularity, segment_max, ability, text)
 *   id           on the wire: never renumber
 *   where        DEVICE: made by an agent, reached through CUDA; HOST
 *   flags        enum memory_kind_flags
 *   granularity  bytes, of which sizes of segments are multiples; a device may say more
 *   segment_max  bytes of one segment, 0: no limit of its own
 *   ability      of a device, on the wire beside enum wire_device_flags: it can make such segments
 *   text         what the descriptor of a segment is, for docs/protocol.md
 *
 * Each has a memory_NAME_importer, and a memory_NAME_exporter. An importer of a larger mempool than
 * that dies of SIGSEGV inside the driver.
 */
#define MEMORY_KINDS(K)                                                                        \
	K(VMM, vmm, 2, DEVICE, MEMORY_READONLY | MEMORY_PLACEABLE | MEMORY_DEVICE_GRANULARITY, \
	  MEMORY_ALIGNMENT, 0, 1 << 0, "a POSIX descriptor of cuMemExportToShareableHandle()") \
	K(MEMPOOL, mempool, 3, DEVICE, 0, MEMORY_ALIGNMENT, UINT64_C(4) << 30, 1 << 1,         \
	  "that of cuMemPoolExportToShareableHandle()")                                        \
	K(HOST, host, 1, HOST, MEMORY_READONLY | MEMORY_PLACEABLE, 4096, 0, 0,                 \
	  "the segment's descriptor is a memfd")

enum memory_kind_flags {
	MEMORY_READONLY = 1 << 0,           /* can be mapped for reading only */
	MEMORY_PLACEABLE = 1 << 1,          /* can be mapped at an address asked for */
	MEMORY_DEVICE_GRANULARITY = 1 << 2, /* only where the device says a granularity */
};

#define MEMORY_KIND_ID(NAME, name, id, ...) MEMORY_##NAME = id,
enum memory_kind_id { MEMORY_KINDS(MEMORY_KIND_ID) };
#undef MEMORY_KIND_ID

struct memory_kind {
	const char *name;
	enum memory_kind_id id;
	bool on_device, readonly, placeable, device_granularity;
	uint64_t granularity;
	uint64_t segment_max;
	uint32_t ability;
	const char *text;
};

/* For those macros that are for kinds of devices alone: MEMORY_ON_HOST(x) is nothing. */
#define MEMORY_ON_DEVICE(...) __VA_ARGS__
#define MEMORY_ON_HOST(...)

/* One after the other; NULL behind the last one. */
const struct memory_kind *memory_kind_at(size_t i);
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
