/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/config/pool.h"
#include "broker/rights/right.h"

/* What the operator decided: docs/configuration.md. A configuration that is read again replaces all
 * of it. */

#define CONFIG_MAX_FILE (1 << 20) /* bytes */
/** Below what service managers wait until they kill: 90 seconds. */
#define CONFIG_DRAIN_MAX_MS 60000

/** No limit, for those where that is possible. */
#define LIMIT_NONE UINT64_MAX

/** What one uid may hold at a time, over all its connections. */
enum limit_kind {
	LIMIT_CONNECTIONS,
	LIMIT_LEASES,
	LIMIT_BYTES, /* bytes of memory that is allocated */
	LIMIT_NAMES,
	LIMIT_TOKENS,
	LIMIT_WATCHES,
	LIMIT_WAITS,    /* look-ups that wait for a name */
	LIMIT_POOLS,    /* pools that are created over the socket */
	LIMIT_METADATA, /* bytes */
	LIMIT_UNSENT,   /* bytes queued for connections that do not read, or requests that wait */
	LIMIT_EVENTS,   /* interprocess events leased */
	LIMIT_CHANNELS, /* memberships in channels */
	/* pending fences that buffers and released memory are kept with */
	LIMIT_FENCES,
	LIMIT_SEGMENTS,    /* segments of pools that it has created */
	LIMIT_DESCRIPTORS, /* descriptors of the broker that clients, pools and channels cost */
	LIMIT_MEMORY,      /* bytes of the broker and the journal, for all of the above */
	LIMIT_KINDS,
};

struct limits {
	uint64_t max[LIMIT_KINDS]; /* by enum limit_kind; never 0 */
};

/** Returns what the configuration calls it: "connections". Static storage. */
const char *limit_name(enum limit_kind kind);
/** Returns what there are @n of, for a sentence: "lease" or "leases"; of sizes, what has so many
 * bytes: "metadata". Static storage. */
const char *limit_noun(enum limit_kind kind, uint64_t n);
/** Whether it is in bytes. */
bool limit_is_size(enum limit_kind kind);

struct user_limits {
	uid_t uid;
	struct limits limits; /* complete: what the file does not override is as for all */
};

struct config {
	char *file; /* NULL: the built-in configuration */
	char *text; /* as it was read, for config_load_text() */
	size_t text_size;
	char *socket; /* NULL: not configured */
	mode_t socket_mode;
	struct rights rights;
	struct limits limits;
	struct user_limits *users;
	size_t n_users;
	struct pool_config *pools; /* validated; the broker's own user has ACCESS_ALL */
	size_t n_pools;
	uint64_t default_pool_limit;
	uint64_t broker_memory;    /* so much may the broker need for all users together */
	unsigned agent_timeout_ms; /* the time for each request to an agent */
	unsigned drain_ms;         /* the time for clients, when the broker is told to end */
	unsigned hang_ms; /* the time until a broker that hangs is replaced; 0: it never is */
};

/** Makes the configuration that is in force without a file: one pool "default" for the broker's
 * own user. Returns 0 or -ENOMEM. */
int config_default(struct config **out);

/**
 * Reads the file at @path. Returns 0, CONFIG_EINVALID when something in it is wrong, or a negative
 * errno when the system failed (-ENOENT, -EACCES, -ENOMEM, ...). Whatever it is, @error says so in
 * one line without a newline: at best "FILE:LINE: KEY: what is wrong (and what would be right)".
 * @error is written on failure only, @out on success only.
 */
int config_load(const char *path, struct config **out, char *error, size_t error_size);
/** Does the same with a text that was read from @path before. */
int config_load_text(const char *path, const char *text, size_t size, struct config **out,
		     char *error, size_t error_size);

/** Frees it; NULL is fine. */
void config_free(struct config *c);
/** Returns the user's limits, which belong to the configuration. */
const struct limits *config_limits_for(const struct config *c, uid_t uid);
