/* SPDX-License-Identifier: MIT */
#ifndef BROKER_BUFFER_STAKE_H
#define BROKER_BUFFER_STAKE_H

#include <stdint.h>
#include <sys/queue.h>

struct client;
struct pool;

/*
 * What one client holds of one pool: the sum of its leases there. Kept with every lease, so that
 * who finds a pool full can be told at once who holds most of it, however many buffers it has.
 */
struct stake {
	LIST_ENTRY(stake) of_client;
	LIST_ENTRY(stake) of_pool;
	struct client *client;
	struct pool *pool;
	uint64_t leases, bytes;
};

/* A lease of a block of @bytes: 0 or -ENOMEM. And its end. */
int stake_add(struct client *client, struct pool *pool, uint64_t bytes);
void stake_subtract(struct client *client, const struct pool *pool, uint64_t bytes);

/* The largest one; NULL: no client holds any of it. */
const struct stake *stake_largest(const struct pool *pool);

#endif
