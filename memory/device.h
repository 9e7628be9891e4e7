/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_DEVICE_H
#define MEMORY_DEVICE_H

#include "memory/kind.h"

/*
 * The agent's side of a GPU: what there is, and the events of one. Nothing here takes a CUDA
 * context but the mempool exporter and the events (518 MiB of an H200 against 4). Functions return
 * 0 or a SHARE_E... number and say why in @failure. One thread at a time.
 */

struct memory_device {
	unsigned char uuid[16];
	char uuid_text[64]; /* "GPU-..." or "MIG-..." */
	char name[256];
	char pci[32];     /* "0000:04:00.0" */
	uint32_t ordinal; /* in this process */
	uint32_t driver;  /* 1000 * major + 10 * minor */
	uint32_t compute; /* 10 * major + minor */
	uint64_t total;
	uint64_t free;        /* UINT64_MAX when nobody tells (it takes NVML, or a context) */
	uint64_t granularity; /* of kinds of memory in which it has a say; 0: of none */
	uint32_t kinds;       /* the abilities of those that it can make, of memory/kind.h */
	bool events, stream_mem_ops;
	bool mig;         /* is a MIG instance */
	bool mig_enabled; /* is split into instances */
	bool mps;         /* an MPS control daemon is running on this machine */
};

/* Makes sure that this process is no MPS client, loads the driver and initialises it.
 * SHARE_ENODEV: no driver, one that is too old, or no device. */
int memory_devices_init(uint32_t *n, struct failure *failure);
int memory_device_describe(uint32_t ordinal, struct memory_device *out, struct failure *failure);

/* From now on the exporters work on this device. SHARE_ENODEV when the process has none of that
 * UUID. */
int memory_device_open(const char *uuid_text, struct failure *failure);

/* Events: what a CUipcEventHandle is made of. */
struct memory_event;
int memory_event_create(struct memory_event **out, unsigned char handle[64],
			struct failure *failure);
/* @wedged: a process died while it might have recorded it: asking the driver about it could block
 * for ever, so its slot is lost. */
void memory_event_destroy(struct memory_event *e, bool wedged);

#endif
