/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <share/share.h>

#include "bench/bridge/bridge.h"

/* Two brokers, a bridge on each, and this process as a client of both, so that one clock sees both
 * ends. */

#define BRIDGE_POOL "bench"
#define BRIDGE_MIB  (UINT64_C(1) << 20)

struct bridge_side {
	share_client *client;
	share_pool *pool;
	pid_t bridge;
};

struct bridge_pair {
	struct bridge_side here, there;
	share_watch *watch;
	unsigned arrived; /* names, over there */
	int reserved;     /* the port at which the bridge here listens */
	char directory[PATH_MAX], key[PATH_MAX + 8], log[PATH_MAX + 8], program[PATH_MAX];
};

/* How it is set up. */
struct bridge_setup {
	const char *kind;    /* of both pools */
	const char *gpu;     /* --gpu of both bridges */
	const char *channel; /* NULL: none is mirrored */
	uint64_t room;       /* of the pool here; that over there has as much again */
	bool apart;          /* the pools are on the first GPU and the last one */
};

/* false: there is no share-bridge beside this program. */
bool bridge_pair_find(struct bridge_pair *p);
/* 0, or the error of making a pool, when there is nothing left of it. */
int bridge_pair_open(struct bridge_pair *p, const struct bridge_setup *setup);
void bridge_pair_close(struct bridge_pair *p);
/* Ends the program if a bridge has ended. */
void bridge_pair_must_live(const struct bridge_pair *p);
/* Processor time of both bridges, in microseconds. */
double bridge_pair_cpu_us(const struct bridge_pair *p);

/* Publishes these buffers anew, each with content of its own, as "bench/@name/...", and waits until
 * they have come. Every byte is compared, which is not measured. The cost is of each of them. */
struct bridge_cost bridge_pair_send(struct bridge_pair *p, const char *name, share_buffer **buffers,
				    unsigned n, uint64_t seed);
