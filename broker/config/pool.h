/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "broker/config/reader.h"
#include "broker/rights/access.h"

#define CONFIG_MAX_POOLS 4096

/** In bytes. No pool can have a lower limit, since there would be no room for a segment in it. */
#define POOL_MIN_LIMIT UINT64_C(65536)
/** No pool can have a higher limit, which no process could map, nor more segments than this. */
#define POOL_MAX_LIMIT    (UINT64_C(128) << 40)
#define POOL_MAX_SEGMENTS 262144

/** What a pool is asked to be, by the file or by a client. */
struct pool_config {
	char *name;
	const char *kind; /* in static storage once pool_config_validate() has seen it */
	char *device;     /* UUID as text; NULL: any that does */
	bool same_address;
	uint32_t reuse; /* enum share_reuse */
	uint64_t limit;
	uint64_t segment_size;
	uint64_t alignment;
	uint64_t release_threshold;
	uint64_t prefault;
	uint32_t huge_pages; /* enum share_huge_pages */
	uint32_t numa;       /* SHARE_NUMA_... */
	struct access_list access;
	bool leaving; /* the file that was read last lacks it; the pool is still there */
};
#define POOL_CONFIG_INIT                        \
	{                                       \
		.release_threshold = UINT64_MAX \
	}

/**
 * Fills in what is left to defaults and checks a pool's options, from the file or from a client:
 * kind NULL, limit 0, segment_size 0, alignment 0, release_threshold UINT64_MAX. @default_limit is
 * the configuration's default_pool_limit. Makes @p->kind point to static storage, leaves access
 * alone. Returns 0, or CONFIG_EINVALID with "KEY: what is wrong" in @error.
 */
int pool_config_validate(struct pool_config *p, uint64_t default_limit, char *error,
			 size_t error_size);

/** Returns the highest limit with segments of that size, which a limit of UINT64_MAX stands
 * for. */
uint64_t pool_config_highest_limit(uint64_t segment_size);

/** "gate", "clean" or "scrub". */
const char *pool_reuse_name(uint32_t reuse);

/** "system", "advise" or "require". */
const char *pool_huge_pages_name(uint32_t huge_pages);
/** "any", "interleave" or the number of a node. Returns @out. */
#define POOL_NUMA_MAX 16
const char *pool_numa_name(uint32_t numa, char out[static POOL_NUMA_MAX]);

/** Frees name, device and access. */
void pool_config_deinit(struct pool_config *p);

/**
 * Reads the list "pools" of the file; they are validated then. @path says where it is, for
 * messages. Returns 0, CONFIG_EINVALID or a negative errno, worded in the reader's buffer. @out and
 * @n_out are written on success only, for pool_configs_free().
 */
int pool_configs_read(const struct config_reader *r, const struct config_path *path,
		      const json_t *array, uint64_t default_limit, struct pool_config **out,
		      size_t *n_out);

/** Makes what there is when nobody says which pools there are: "default". @default_limit must be
 * at least POOL_MIN_LIMIT. Returns 0 or -ENOMEM; otherwise as pool_configs_read(). */
int pool_configs_default(uint64_t default_limit, struct pool_config **out, size_t *n_out);

/** NULL is fine. */
void pool_configs_free(struct pool_config *pools, size_t n);
