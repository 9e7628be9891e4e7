/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/kind.h"

/*
 * GPUs as the agent sees them: which devices there are, the one it works on, and that one's
 * interprocess events. Of all this, only the exporters of mempool and legacy, the events and
 * zeroing create a CUDA context, because a context is expensive (518 MiB of an H200 instead of 4).
 * Functions return 0 or a SHARE_E... number and give the reason in @failure. Only one thread may
 * call them at a time.
 */

struct memory_device {
	unsigned char uuid[16];
	char uuid_text[64]; /* "GPU-..." or "MIG-..." */
	char name[256];
	char pci[32];     /* "0000:04:00.0" */
	uint32_t ordinal; /* CUDA's number of the device in this process */
	uint32_t driver;  /* 1000 * major + 10 * minor */
	uint32_t compute; /* 10 * major + minor */
	uint64_t total;
	uint64_t free;        /* UINT64_MAX: unknown, as it takes NVML or a context to know */
	uint64_t granularity; /* of the kinds whose granularity depends on the device; 0: there is
				 none */
	uint32_t kinds;       /* the abilities of the kinds that it can make, of memory/kind.h */
	bool events, stream_mem_ops;
	bool mig;         /* the device is a MIG instance */
	bool mig_enabled; /* the device is split into MIG instances */
	bool mps;         /* an MPS control daemon is running on this machine */
};

/* Loads the driver and initialises it, after making sure that this process will not be an MPS
 * client. Puts the number of devices into @n. SHARE_ENODEV: there is no driver, it is too old, or
 * there is no device. */
int memory_devices_init(uint32_t *n, struct failure *failure);
/* Describes one device, by CUDA's number of it in this process. */
int memory_device_describe(uint32_t ordinal, struct memory_device *out, struct failure *failure);

/* Chooses the device on which all exporters of this process work from now on. SHARE_ENODEV: this
 * process sees no device with that UUID. */
int memory_device_open(const char *uuid_text, struct failure *failure);

/* An interprocess event; @handle gets the CUipcEventHandle by which other processes open it. */
struct memory_event;
int memory_event_create(struct memory_event **out, unsigned char handle[64],
			struct failure *failure);
/* Destroys the event. With @wedged, a process died while it may have recorded the event, and asking
 * the driver about the event could block for ever: then the event is forgotten, and its slot in the
 * driver is lost. After a failure, which only a driver that is broken has, the event is gone when
 * this process ends. */
int memory_event_destroy(struct memory_event *e, bool wedged, struct failure *failure);
