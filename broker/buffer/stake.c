/* SPDX-License-Identifier: MIT */

/*
 * What each client holds of each pool. A client uses few pools at a time, and mostly the same one
 * again, which is at the head of its list then.
 */

#include <errno.h>
#include <stdlib.h>

#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/stake.h"
#include "broker/client/client.h"
#include "broker/memory/pool.h"

static struct stake *stake_new(struct client *client, struct pool *pool)
{
	struct stake *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->client = client;
	s->pool = pool;
	LIST_INSERT_HEAD(&client->buffers->stakes, s, of_client);
	LIST_INSERT_HEAD(&pool->use.stakes, s, of_pool);
	return s;
}

static struct stake *stake_find(struct client *client, const struct pool *pool)
{
	struct stake *s;

	LIST_FOREACH (s, &client->buffers->stakes, of_client)
		if (s->pool == pool)
			break;
	if (s && s != LIST_FIRST(&client->buffers->stakes)) {
		LIST_REMOVE(s, of_client);
		LIST_INSERT_HEAD(&client->buffers->stakes, s, of_client);
	}
	return s;
}

int stake_add(struct client *client, struct pool *pool, uint64_t bytes)
{
	struct stake *s = stake_find(client, pool);

	if (!s)
		s = stake_new(client, pool);
	if (!s)
		return -ENOMEM;
	s->leases++;
	s->bytes += bytes;
	return 0;
}

void stake_subtract(struct client *client, const struct pool *pool, uint64_t bytes)
{
	struct stake *s = stake_find(client, pool);

	s->bytes -= bytes;
	if (--s->leases > 0)
		return;
	LIST_REMOVE(s, of_client);
	LIST_REMOVE(s, of_pool);
	free(s);
}

const struct stake *stake_largest(const struct pool *pool)
{
	const struct stake *s, *largest = NULL;

	LIST_FOREACH (s, &pool->use.stakes, of_pool)
		if (!largest || s->bytes > largest->bytes)
			largest = s;
	return largest;
}
