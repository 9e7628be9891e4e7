/* SPDX-License-Identifier: MIT */
#pragma once

#include "memory/cuda/driver.h"
#include "memory/export.h"

/* The device on which the exporters of this process work. */
struct device_open {
	const struct cuda *cu;
	CUdevice device;
	unsigned char uuid[16];
	bool mig;
	CUcontext context; /* NULL until a call needed it */
};

/* Puts the device's UUID into the recipe of a segment. */
void device_name_in(const struct device_open *opened, struct memory_recipe *recipe);

/* Returns the device that was opened; SHARE_ENODEV before memory_device_open(). */
int device_opened(const struct device_open **out, struct failure *failure);

/* The same, with the primary context current. The context is kept for the rest of the process,
 * because what was made in it needs it. */
int device_opened_context(const struct device_open **out, struct failure *failure);
