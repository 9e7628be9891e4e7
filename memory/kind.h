/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/failure.h"

/*
 * Kinds of memory, as a table: code that has to know all of them goes through it. memory/export.h
 * makes segments and memory/import.h maps them. The two run in different processes, and share only
 * a descriptor and a recipe.
 */

/* Every segment starts at a multiple of this number, in every process. */
#define MEMORY_ALIGNMENT (UINT64_C(2) << 20)

/*
 * A segment that lies at the same address in every process starts at a multiple of this number, and
 * the addresses up to the next multiple are reserved for it. cuMemAddressReserve() takes an address
 * as a hint. In a process with a context it follows the hint for sizes of 128 MiB and more, but not
 * for 16 MiB, and not at every multiple of 2 MiB (H200, driver 580).
 */
#define MEMORY_PLACE (UINT64_C(1) << 30)

/*
 * The kinds, best first: K(NAME, name, id, where, flags, granularity, segment_max, ability, text)
 *   id           on the wire: never renumber
 *   where        DEVICE: an agent makes it, and it is reached through CUDA; HOST
 *   flags        enum memory_kind_flags
 *   granularity  bytes; sizes of segments are multiples of it, or of a larger number if a device
 *                says so
 *   segment_max  the most bytes that a segment can have; 0: no limit of the kind's own
 *   ability      the bit by which a device says that it can make such segments, on the wire beside
 *                enum wire_device_flags
 *   text         what the descriptor of a segment is, for docs/protocol.md
 *
 * Each kind has a memory_NAME_importer and a memory_NAME_exporter. A process that imports a larger
 * mempool segment than segment_max says dies of SIGSEGV inside the driver.
 */
#define MEMORY_KINDS(K)                                                                          \
	K(VMM, vmm, 2, DEVICE, MEMORY_READONLY | MEMORY_PLACEABLE | MEMORY_DEVICE_GRANULARITY,   \
	  MEMORY_ALIGNMENT, 0, 1 << 0, "a POSIX descriptor of cuMemExportToShareableHandle()")   \
	K(MEMPOOL, mempool, 3, DEVICE, 0, MEMORY_ALIGNMENT, UINT64_C(4) << 30, 1 << 1,           \
	  "that of cuMemPoolExportToShareableHandle()")                                          \
	K(LEGACY, legacy, 5, DEVICE, MEMORY_NAMED_ONLY | MEMORY_OF_MAKER, MEMORY_ALIGNMENT, 0,   \
	  1 << 7, "a pidfd of the agent that made it, or of the client, with which it goes")     \
	K(PINNED, pinned, 6, DEVICE,                                                             \
	  MEMORY_READONLY | MEMORY_PLACEABLE | MEMORY_NAMED_ONLY | MEMORY_OF_HOST,               \
	  MEMORY_ALIGNMENT, 0, 1 << 8, "that of cuMemExportToShareableHandle(), of host memory") \
	K(HOST, host, 1, HOST, MEMORY_READONLY | MEMORY_PLACEABLE, 4096, 0, 0,                   \
	  "the segment's descriptor is a memfd")                                                 \
	K(ADOPTED, adopted, 4, HOST, MEMORY_READONLY, 1, 0, 0,                                   \
	  "that of a client's memfd or file on a tmpfs, in which the segment is any range")

enum memory_kind_flags {
	MEMORY_READONLY = 1 << 0,  /* can be mapped for reading only */
	MEMORY_PLACEABLE = 1 << 1, /* can be mapped at an address that the caller chooses */
	MEMORY_DEVICE_GRANULARITY = 1 << 2, /* only for a device that says a granularity */
	MEMORY_NAMED_ONLY = 1 << 3,         /* "auto" never chooses it */
	/* is gone when the process that made it is: the descriptor is a pidfd of that one */
	MEMORY_OF_MAKER = 1 << 4,
	/* is the host's, near the device that it is reached through: the CPU reaches it as well, at
	 * the same address */
	MEMORY_OF_HOST = 1 << 5,
};

#define MEMORY_KIND_ID(NAME, name, id, ...) MEMORY_##NAME = id,
enum memory_kind_id { MEMORY_KINDS(MEMORY_KIND_ID) };
#undef MEMORY_KIND_ID

struct memory_kind {
	const char *name;
	enum memory_kind_id id;
	bool on_device, readonly, placeable, device_granularity, named_only, of_maker, of_host;
	uint64_t granularity;
	uint64_t segment_max;
	uint32_t ability;
	const char *text;
};

/* For macros that concern only the kinds of GPU memory: MEMORY_ON_HOST(x) expands to nothing. */
#define MEMORY_ON_DEVICE(...) __VA_ARGS__
#define MEMORY_ON_HOST(...)

/* Returns the kind number @i of the table, or NULL after the last one. */
const struct memory_kind *memory_kind_at(size_t i);
/* Return NULL when there is no such kind. "auto" is not a kind. */
const struct memory_kind *memory_kind_by_name(const char *name, size_t size);
const struct memory_kind *memory_kind_by_id(uint32_t id);

/* The recipe of a segment: what another process needs beside the descriptor. It is sent as plain
 * bytes, so its layout is part of the protocol. */
struct memory_recipe {
	uint64_t size;
	uint64_t address; /* at which every process has to map it; 0: anywhere */
	/* Random; the same memory has the same identity, however it arrives. */
	unsigned char identity[16];
	unsigned char device[16]; /* UUID; zeros: host memory, but of kind pinned */
	/* mempool: CUmemPoolPtrExportData of the segment's start. legacy: a CUipcMemHandle.
	 * adopted: a u64, where in the file the segment begins, and zeros. */
	unsigned char pointer[64];
	/* enum memory_recipe_flags; libraries of protocol versions before 8 take none of host
	 * memory */
	uint32_t flags;
	uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct memory_recipe) == 120, "on the wire");

enum memory_recipe_flags {
	MEMORY_ON_MIG = 1 << 0, /* the device is a MIG instance, which its UUID does not tell */
	/* adopted: nothing keeps who can open the file from making it smaller, and then who reads
	 * what was cut off faults */
	MEMORY_MAY_SHRINK = 1 << 1,
	MEMORY_HUGE_PAGES = 1 << 2, /* host: who maps it asks for huge pages, where there are any */
	MEMORY_HUGETLB = 1 << 3,    /* host: it consists of huge pages that are reserved for it */
	MEMORY_IS_THERE = 1 << 4,   /* host: all its pages were made before it was needed */
};

/* The text of a device's UUID, "GPU-5fd4f087-86f3-7a43-b711-4771313afc50", and room for it. */
#define MEMORY_UUID_TEXT 41
void memory_uuid_text(const unsigned char uuid[16], char out[MEMORY_UUID_TEXT]);
/* Reads such a text, or one that begins with "MIG-". Returns false when @text is neither. */
bool memory_uuid_parse(const char *text, unsigned char out[16]);
/* adopted: where in its file the segment begins. */
static inline uint64_t memory_recipe_offset(const struct memory_recipe *recipe)
{
	uint64_t offset;

	memcpy(&offset, recipe->pointer, sizeof(offset));
	return offset;
}

/* Puts the text by which the broker calls the segment's device into @out. */
void memory_recipe_device(const struct memory_recipe *recipe, char out[MEMORY_UUID_TEXT]);
/* Whether it is of memory of a device; and whether it has more than a descriptor to lead there. */
bool memory_recipe_on_device(const struct memory_recipe *recipe);
bool memory_recipe_has_handle(const struct memory_recipe *recipe);
/* Whether there can be such a segment of that kind; recipes come from other processes. 0, or
 * SHARE_EPROTO and why not. */
int memory_recipe_check(const struct memory_kind *kind, const struct memory_recipe *recipe,
			struct failure *failure);
