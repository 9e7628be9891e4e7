/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/kind.h"

/*
 * Exporters: the halves of the kinds that make segments. The broker itself uses the exporter of
 * host memory, and its agents use those of GPU memory. Functions return 0 or a SHARE_E... number
 * and give the reason in @failure, which must not be NULL. They write their results on success
 * only. Only one thread may call them at a time.
 */

/* A segment in the process that made it. */
struct memory_segment {
	struct memory_recipe recipe;
	int fd;          /* for reading and writing; -1: closed */
	int fd_readonly; /* the same memory, which the kernel refuses to map for writing; -1: none
			  */
	void *opaque;    /* what the exporter needs to destroy the segment; NULL: nothing */
};

struct memory_exporter {
	enum memory_kind_id kind;
	/* Makes a segment. @size is a multiple of the granularity; @address is what the recipe is
	 * to say. The caller owns the descriptors, and closes them itself or lets destroy() do
	 * it. */
	int (*create)(uint64_t size, uint64_t address, struct memory_segment *out,
		      struct failure *failure);
	/* Gives up what the exporter keeps of the segment. The memory is freed when no other
	 * process has it any more; after a failure, which only a driver that is broken has, not
	 * before this process ends. Of host memory it cannot fail, and @failure may be NULL. */
	int (*destroy)(struct memory_segment *segment, struct failure *failure);
	/* Only of kinds of GPU memory: whether the device can make segments of this kind. If the
	 * device limits their sizes, @granularity gets the number of which they have to be
	 * multiples. */
	bool (*can)(uint32_t ordinal, uint64_t *granularity);
	/* The address in this process of a segment of which the exporter keeps something. */
	uint64_t (*pointer)(const struct memory_segment *segment);
};

/* memory_vmm_exporter and so on. Those of GPU memory work in a process that has opened a device
 * (memory/device.h). */
#define MEMORY_EXPORTER(NAME, name, ...) \
	extern const struct memory_exporter memory_##name##_exporter;
MEMORY_KINDS(MEMORY_EXPORTER)
#undef MEMORY_EXPORTER

/* Returns the exporter of a kind of GPU memory, or NULL when @kind is none. */
const struct memory_exporter *memory_device_exporter(uint32_t kind);

/* Host memory only: the range reads as zeros from now on, wherever it is mapped. Whole pages in it
 * go back to the system; but if a device driver has pinned a page, its device keeps the old one.
 * Returns 0 or a negative errno. */
int memory_host_zero(const struct memory_segment *segment, uint64_t offset, uint64_t size);

/* Zeroes any range of a segment of GPU memory; it is zero when the function returns. @segment is
 * one that this process made, or, with `opaque` NULL, a recipe and a descriptor by which it is
 * imported for this. */
int memory_device_zero(enum memory_kind_id kind, const struct memory_segment *segment,
		       uint64_t offset, uint64_t size, struct failure *failure);

/* Puts a random identity into the recipe. */
void memory_identify(struct memory_recipe *recipe);
