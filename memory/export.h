/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_EXPORT_H
#define MEMORY_EXPORT_H

#include "memory/kind.h"

/*
 * The exporting halves: making segments. The host's is used by the broker itself, those of GPU
 * memory by its agents. Functions return 0 or a SHARE_E... number and say why in @failure, which
 * must not be NULL. Outputs are written on success only. One thread at a time.
 */

/* A segment in the process that made it. */
struct memory_segment {
	struct memory_recipe recipe;
	int fd;          /* for reading and writing; -1 once destroyed */
	int fd_readonly; /* the same memory, cannot be mapped for writing; -1: there is no such */
	void *kept;      /* what the exporter needs to destroy it, NULL: nothing */
};

struct memory_exporter {
	enum memory_kind_id kind;
	/* @size is a multiple of the granularity; @address as in the recipe. The descriptors are
	 * the caller's, to be closed before or by destroy(). */
	int (*create)(uint64_t size, uint64_t address, struct memory_segment *out,
		      struct failure *failure);
	/* Lets go of what the exporter holds. The memory goes when nobody else holds it either. */
	void (*destroy)(struct memory_segment *segment);
	/* Of devices: whether this one can. Puts what sizes have to be multiples of into
	 * @granularity, if the device has a say in it. */
	bool (*can)(uint32_t ordinal, uint64_t *granularity);
	/* Where a segment of which something is kept lies in this process. */
	uint64_t (*pointer)(const struct memory_segment *segment);
};

/* memory_vmm_exporter and so on, those of devices in a process that has opened one
 * (memory/device.h). */
#define MEMORY_EXPORTER(NAME, name, ...) \
	extern const struct memory_exporter memory_##name##_exporter;
MEMORY_KINDS(MEMORY_EXPORTER)
#undef MEMORY_EXPORTER

/* Of a kind of devices' memory; NULL: it is none. */
const struct memory_exporter *memory_device_exporter(uint32_t kind);

/* Host memory only: gives it back to the system though importers still map it (they read zeros),
 * and closes the descriptors. 0 or negative errno. */
int memory_host_discard(struct memory_segment *segment);

/* Host memory only: that range reads as zero from now on, wherever it is mapped. Whole pages of it
 * go back to the system; who has a device driver pin one keeps the old one. 0 or negative errno. */
int memory_host_zero(const struct memory_segment *segment, uint64_t offset, uint64_t size);

/* GPU memory: the same, of any range, done when it returns. @segment as it was made here, or with
 * nothing kept: then it is imported by its recipe and descriptor. */
int memory_device_zero(enum memory_kind_id kind, const struct memory_segment *segment,
		       uint64_t offset, uint64_t size, struct failure *failure);

/* Random, for the recipe. */
void memory_identify(struct memory_recipe *recipe);

#endif
