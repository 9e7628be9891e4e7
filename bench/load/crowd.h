/* SPDX-License-Identifier: MIT */
#pragma once

#include "bench/bench.h"

/*
 * Processes that hold buffers, for those benchmarks that are about how much a broker has to
 * remember. They are silent but for what they are told.
 */

#define CROWD_POOL   "crowd" /* has to be there */
#define CROWD_BUFFER 512     /* bytes of each */

struct worker {
	struct other other;
	int pidfd;
};

/* A configuration with higher limits than what 1,000 clients of one user and a few more need.
 * @path: as mkstemp() wants it. */
void crowd_write_config(char *path);

/* Starts the workers, before this process connects to anything, because they would inherit the
 * connection. They are ended by a signal: each inherits the sockets of those before it, so they
 * would not see a socket close. */
void crowd_start(struct worker *workers, int n);
/* So many more connections of each, to the broker of @c. */
void crowd_connect(const struct worker *workers, int n, share_client *c, uint32_t connections);
/* So many more buffers of each connection. */
void crowd_fill(const struct worker *workers, int n, uint32_t buffers);
void crowd_kill(const struct worker *workers, int n);
/* Frees what this process has of workers that were killed. */
void crowd_forget(struct worker *workers, int n);
