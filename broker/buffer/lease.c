/* SPDX-License-Identifier: MIT */

/* Leases: what clients hold of buffers, and how one finds them, of which there may be millions. */

#include <errno.h>

#include <share/share.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "broker/accounts/account.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/inside.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/buffer/stake.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/journal/journal.h"
#include "broker/memory/pool.h"
#include "broker/memory/writer.h"
#include "broker/order/fence.h"

_Static_assert(sizeof(struct lease) <= 64, "a million leases are a million of these");

struct lease_key {
	uint32_t slot; /* the client's */
	const struct buffer *buffer;
};

static uint64_t key_hash(uint32_t slot, const struct buffer *buffer)
{
	return table_mix((uint64_t)slot << 32 | buffer_index(buffer));
}

static uint64_t lease_hash(const struct table_link *link)
{
	const struct lease *lease = (const struct lease *)(const void *)link;

	return key_hash(lease->slot, lease->buffer);
}

static bool lease_match(const struct table_link *link, const void *key)
{
	const struct lease *lease = (const struct lease *)(const void *)link;
	const struct lease_key *k = key;

	return lease->slot == k->slot && lease->buffer == k->buffer;
}

void leases_init(struct buffers *all)
{
	slab_init(&all->leases, sizeof(struct lease));
	table_init(&all->lease_table, lease_hash);
}

struct lease *lease_find(struct broker *b, struct client *client, struct buffer *buffer)
{
	struct lease_key key = {client->slot, buffer};
	struct lease *lease;
	int n = 0;

	LIST_FOREACH (lease, &buffer->leases, of_buffer) {
		if (lease->filed || n++ == LEASES_LOOKED_THROUGH)
			break;
		if (lease->slot == client->slot)
			return lease;
	}
	if (!lease)
		return NULL;
	return (struct lease *)(void *)table_find(&b->buffers->lease_table,
						  key_hash(key.slot, buffer), lease_match, &key);
}

struct client *lease_client(const struct lease *lease)
{
	return buffer_pool(lease->buffer)->broker->clients->by_slot[lease->slot];
}

/* Counts a lease among those of its client. 0 or -ENOMEM. */
static int add_to_client(struct client *c, struct lease *lease)
{
	uint64_t bytes = block_size(lease->buffer->block);

	if (stake_add(c, buffer_pool(lease->buffer), bytes) < 0)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(&c->buffers->leases, lease, of_client);
	c->holds.leases++;
	c->holds.bytes += bytes;
	return 0;
}

static void remove_from_client(struct client *c, struct lease *lease)
{
	uint64_t bytes = block_size(lease->buffer->block);

	TAILQ_REMOVE(&c->buffers->leases, lease, of_client);
	c->holds.leases--;
	c->holds.bytes -= bytes;
	stake_subtract(c, buffer_pool(lease->buffer), bytes);
}

static uint64_t age_ms(const struct broker *b)
{
	return clock_ms() - b->started_ms;
}

uint64_t lease_age_ms(const struct lease *lease)
{
	return age_ms(buffer_pool(lease->buffer)->broker) - lease->since_s * UINT64_C(1000);
}

int64_t client_oldest_lease_ms(const struct client *c)
{
	const struct lease *oldest = TAILQ_FIRST(&c->buffers->leases);

	return oldest ? (int64_t)lease_age_ms(oldest) : -1;
}

struct lease *lease_new(struct broker *b, struct client *client, struct buffer *buffer,
			uint32_t since_s)
{
	struct lease *lease = slab_alloc(&b->buffers->leases);

	if (!lease)
		return NULL;
	lease->slot = client->slot & INT32_MAX;
	lease->buffer = buffer;
	lease->since_s = since_s;
	if (add_to_client(client, lease) < 0) {
		slab_free(&b->buffers->leases, lease);
		return NULL;
	}
	LIST_INSERT_HEAD(&buffer->leases, lease, of_buffer);
	buffer->n_leases++;
	buffer_ref(buffer);
	return lease;
}

void leases_file(struct broker *b, struct buffer *buffer)
{
	struct lease *lease;
	int n = 0;

	/* a lease that comes is the first, and behind those that are looked through all are in the
	 * table */
	LIST_FOREACH (lease, &buffer->leases, of_buffer) {
		if (lease->filed)
			break;
		if (++n <= LEASES_LOOKED_THROUGH)
			continue;
		if (MUTATION(leases_not_filed))
			break;
		lease->filed = true;
		table_insert(&b->buffers->lease_table, &lease->key);
	}
}

int lease_grant(struct broker *b, struct client *client, struct buffer *buffer, uint32_t mode,
		struct lease **out, struct failure *failure)
{
	struct lease *lease = lease_find(b, client, buffer);
	uint32_t tag = buffer->block->tag;

	if (!lease) {
		if (!account_add(client->account, LIMIT_LEASES, 1))
			return account_refuse(client->account, LIMIT_LEASES, "", failure);
		lease = lease_new(b, client, buffer, (uint32_t)(age_ms(b) / 1000));
		if (!lease) {
			account_subtract(client->account, LIMIT_LEASES, 1);
			return failure_no_memory(failure, "the broker");
		}
		leases_file(b, buffer);
	} else if (lease->count == LEASE_COUNT_MAX) {
		return account_refuse(client->account, LIMIT_LEASES, "", failure);
	}
	lease->count++;
	lease->mode |= mode & SHARE_RDWR;
	if ((mode & SHARE_RDWR) == SHARE_RDWR)
		block_mark_writer(buffer->block, client->peer.uid);
	if (buffer->block->tag != tag)
		buffer_note(buffer);
	if (!MUTATION(lease_not_noted))
		lease_note(lease);
	*out = lease;
	return 0;
}

void lease_return(struct broker *b, struct lease *lease, uint32_t count, struct fence *fence)
{
	struct buffer *buffer = lease->buffer;
	struct client *client = lease_client(lease);

	if (fence->timelines) {
		buffer->pending = fence_set_add(buffer->pending, fence);
		buffer_note(buffer);
	}
	lease->count -= count & LEASE_COUNT_MAX;
	if (lease->count > 0) {
		lease_note(lease);
		if (buffer->is_awaited)
			reclaim_look(b, buffer);
		return;
	}
	if (buffer->is_awaited)
		reclaim_give_up(buffer, client);
	if (lease->filed)
		table_remove(&b->buffers->lease_table, &lease->key);
	LIST_REMOVE(lease, of_buffer);
	buffer->n_leases--;
	remove_from_client(client, lease);
	if (!MUTATION(lease_not_dropped))
		journal_drop(b->journal, &lease->record);
	slab_free(&b->buffers->leases, lease);
	account_subtract(client->account, LIMIT_LEASES, 1);
	buffer_drop(b, buffer, client->account, client);
}

bool client_return_leases(struct client *c, int *budget)
{
	for (; *budget > 0; --*budget) {
		struct lease *lease = TAILQ_FIRST(&c->buffers->leases);

		if (!lease)
			return true;
		lease_return(c->broker, lease, lease->count, &(struct fence){0});
	}
	return false;
}
