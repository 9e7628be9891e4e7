/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The binary interface of DLPack, as far as it is used here: version 1.3, and the capsule from
 * before version 1. https://dmlc.github.io/dlpack/latest/ */

enum {
	DL_CPU = 1,
	DL_CUDA = 2,
};

struct dl_device {
	int32_t type, id;
};

struct dl_dtype {
	uint8_t code, bits;
	uint16_t lanes;
};

struct dl_tensor {
	void *data;
	struct dl_device device;
	int32_t ndim;
	struct dl_dtype dtype;
	int64_t *shape, *strides; /* in elements */
	uint64_t byte_offset;
};

/* In a capsule "dltensor", which is called "used_dltensor" after a consumer has taken it. */
struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *);
};

struct dl_version {
	uint32_t major, minor;
};

#define DL_READ_ONLY 1u

/* In a capsule "dltensor_versioned", which is called "used_dltensor_versioned" after a consumer has
 * taken it. */
struct dl_versioned {
	struct dl_version version;
	void *context;
	void (*deleter)(struct dl_versioned *);
	uint64_t flags;
	struct dl_tensor tensor;
};

/* The functions that a type has in __dlpack_c_exchange_api__, a capsule "dlpack_exchange_api". They
 * return 0, or -1 with an exception. */
struct dl_exchange {
	struct dl_version version;
	struct dl_exchange *previous;
	int (*allocate)(struct dl_tensor *prototype, struct dl_versioned **out, void *context,
			void (*fail)(void *context, const char *kind, const char *message));
	int (*managed_from)(void *object, struct dl_versioned **out);
	int (*managed_to)(struct dl_versioned *tensor, void **object);
	int (*tensor_from)(void *object, struct dl_tensor *out); /* borrowed */
	int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

/* Arrays have these functions from then on. */
bool exchange_ready(void);

struct array;
/* Lends the array behind its own stream. The deleter of what is returned gives it back, in any
 * thread and without the GIL. Returns NULL with an exception. */
struct dl_versioned *dlpack_lend(struct array *a);
