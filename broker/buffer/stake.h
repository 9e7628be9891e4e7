/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

struct client;
struct pool;

/*
 * What one client holds of one pool: the sum of its leases there. It is kept with every lease, so
 * that a client that finds a pool full can be told at once who holds most of it, however many
 * buffers there are.
 */
struct stake {
	LIST_ENTRY(stake) of_client;
	LIST_ENTRY(stake) of_pool;
	struct client *client;
	struct pool *pool;
	uint64_t leases, bytes;
};

/* Adds a lease of a block of @bytes (0 or -ENOMEM), and subtracts it when it ends. */
int stake_add(struct client *client, struct pool *pool, uint64_t bytes);
void stake_subtract(struct client *client, const struct pool *pool, uint64_t bytes);

/* Returns the largest stake; NULL: no client holds any of the pool. */
const struct stake *stake_largest(const struct pool *pool);
