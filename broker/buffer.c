/* SPDX-License-Identifier: MIT */

/*
 * Buffers and leases: who holds which block, and the one place where "the last release frees"
 * is true. Both live in slabs, as there may be millions: together with its block descriptor and
 * its place in the table a live buffer costs about 220 bytes.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/buffer.h"
#include "broker/client.h"
#include "broker/log.h"
#include "broker/pool.h"
#include "broker/reclaim.h"
#include "broker/segment.h"
#include "wire/mutation.h"

_Static_assert(sizeof(struct lease) <= 64, "a million leases are a million of these");
_Static_assert(sizeof(struct buffer) <= 80, "a million buffers are a million of these");

#define CONTAINER_OF(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

uint64_t buffer_id(const struct buffer *buffer)
{
	return (uint64_t)buffer->generation << 32 | buffer->index;
}

struct buffer *buffer_find(struct broker *b, uint64_t id)
{
	struct buffer *buffer = slab_at(&b->buffers, (uint32_t)id);

	return buffer && buffer->refs > 0 && buffer->generation == id >> 32 ? buffer : NULL;
}

struct segment *buffer_segment(const struct buffer *buffer)
{
	return CONTAINER_OF(buffer->block->region, struct segment, region);
}

struct pool *buffer_pool(const struct buffer *buffer)
{
	return buffer_segment(buffer)->pool;
}

int buffer_new(struct broker *b, struct block *block, uint64_t size, struct account *account,
	       struct buffer **out)
{
	struct buffer *buffer;
	struct charge charge;
	uint32_t index;

	if (!charge_take(&charge, account, LIMIT_BYTES, block_size(block)))
		return LEASE_BUFFER_QUOTA;
	buffer = slab_alloc_indexed(&b->buffers, &index);
	if (!buffer) {
		charge_return(&charge);
		return -ENOMEM;
	}
	buffer->generation++;
	buffer->index = index;
	buffer->block = block;
	buffer->size = size;
	buffer->refs = 1;
	buffer->charge = charge;
	/* its own unfinished work, for which it has paid: it still does */
	if (block->payer == account)
		buffer->pending = fence_set_prune(block_take_gate(block));
	block->payer = NULL;
	LIST_INIT(&buffer->leases);
	LIST_INIT(&buffer->waits);
	*out = buffer;
	return 0;
}

void buffer_ref(struct buffer *buffer)
{
	buffer->refs++;
}

bool buffer_set_size(struct buffer *buffer, uint64_t size, bool by_writer)
{
	if (size > block_size(buffer->block))
		return false;
	if (by_writer || buffer->refs == 1 || size > buffer->size)
		buffer->size = size > 0 ? size : buffer->size;
	return true;
}

/* Charges the new in the place of the old, whose charge is returned only if that works. */
static bool swap_charge(struct charge *new, struct metadata *old, struct account *account,
			uint64_t size)
{
	struct account *payer = old ? account_ref(old->charge.account) : NULL;
	uint64_t old_size = old ? old->charge.amount : 0;
	bool taken;

	if (old)
		charge_return(&old->charge);
	taken = charge_take(new, account, LIMIT_METADATA, size);
	if (old && !taken) /* cannot fail: it was just given back */
		charge_take(&old->charge, payer, LIMIT_METADATA, old_size);
	account_unref(payer);
	return taken;
}

int metadata_new(struct account *account, const void *bytes, uint32_t size, struct metadata *old,
		 struct metadata **out)
{
	struct metadata *m;

	*out = NULL;
	if (size == 0)
		return 0;
	m = malloc(sizeof(*m) + size);
	if (!m)
		return -ENOMEM;
	m->charge = (struct charge){0};
	if (!swap_charge(&m->charge, old, account, size)) {
		free(m);
		return METADATA_QUOTA;
	}
	m->size = size;
	memcpy(m->bytes, bytes, size);
	*out = m;
	return 0;
}

void metadata_free(struct metadata *metadata)
{
	if (!metadata)
		return;
	charge_return(&metadata->charge);
	free(metadata);
}

void buffer_set_metadata(struct buffer *buffer, struct metadata *metadata)
{
	metadata_free(buffer->metadata);
	buffer->metadata = metadata;
}

/* How many holders are looked at for one who is its payer. */
#define HOLDERS_LOOKED_AT 64

/* Who has allocated it has let it go, and others hold it: they pay for it from now on. What names
 * and tokens keep is for who has made it. */
static void charge_holder(struct buffer *buffer)
{
	const struct lease *lease = LIST_FIRST(&buffer->leases);

	if (buffer->refs != buffer->n_leases || !lease || !buffer->charge.account)
		return;
	for (int i = 0; lease && i < HOLDERS_LOOKED_AT; i++) {
		if (client_account(lease->client) == buffer->charge.account)
			return;
		lease = LIST_NEXT(lease, of_buffer);
	}
	charge_move(&buffer->charge, client_account(LIST_FIRST(&buffer->leases)->client));
}

static void drop(struct broker *b, struct buffer *buffer, const struct account *by)
{
	struct fence_set *pending = buffer->pending;
	struct block *block = buffer->block;
	struct pool *pool = buffer_pool(buffer);
	struct charge charge;

	if (--buffer->refs > 0) {
		if (!by || by == buffer->charge.account)
			charge_holder(buffer);
		if (!LIST_EMPTY(&buffer->waits))
			reclaim_look(b, buffer);
		return;
	}
	if (MUTATION(free_before_fence)) {
		fence_set_drop(pending);
		pending = NULL;
	}
	if (!LIST_EMPTY(&buffer->leases))
		log_bug("buffer %llx is freed with leases", (unsigned long long)buffer_id(buffer));
	buffer_set_metadata(buffer, NULL);
	charge = buffer->charge;
	buffer->charge = (struct charge){0};
	/* a slot whose generations are used up is never used again */
	if (buffer->generation < UINT32_MAX)
		slab_free_index(&b->buffers, buffer->index);
	pool_free_block(b, pool, block, pending, &charge);
}

void buffer_unref(struct broker *b, struct buffer *buffer)
{
	drop(b, buffer, NULL);
}

struct lease_key {
	const struct client *client;
	const struct buffer *buffer;
};

static uint64_t key_hash(const struct client *client, const struct buffer *buffer)
{
	return table_mix((uint64_t)client_slot(client) << 32 | buffer->index);
}

static uint64_t lease_hash(const struct table_link *link)
{
	const struct lease *lease = (const struct lease *)(const void *)link;

	return key_hash(lease->client, lease->buffer);
}

static bool lease_match(const struct table_link *link, const void *key)
{
	const struct lease *lease = (const struct lease *)(const void *)link;
	const struct lease_key *k = key;

	return lease->client == k->client && lease->buffer == k->buffer;
}

void lease_table_init(struct table *t)
{
	table_init(t, lease_hash);
}

struct lease *lease_find(struct broker *b, struct client *client, struct buffer *buffer)
{
	struct lease_key key = {client, buffer};

	return (struct lease *)(void *)table_find(&b->lease_table, key_hash(client, buffer),
						  lease_match, &key);
}

int lease_grant(struct broker *b, struct client *client, struct buffer *buffer, uint32_t mode,
		struct lease **out)
{
	struct lease *lease = lease_find(b, client, buffer);

	if (!lease) {
		if (!account_add(client_account(client), LIMIT_LEASES, 1))
			return LEASE_QUOTA;
		lease = slab_alloc(&b->leases);
		if (!lease) {
			account_subtract(client_account(client), LIMIT_LEASES, 1);
			return -ENOMEM;
		}
		lease->client = client;
		lease->buffer = buffer;
		if (client_add_lease(client, lease) < 0) {
			slab_free(&b->leases, lease);
			account_subtract(client_account(client), LIMIT_LEASES, 1);
			return -ENOMEM;
		}
		LIST_INSERT_HEAD(&buffer->leases, lease, of_buffer);
		buffer->n_leases++;
		buffer_ref(buffer);
		table_insert(&b->lease_table, &lease->key);
	} else if (lease->count == UINT32_MAX) {
		return LEASE_QUOTA;
	}
	lease->count++;
	lease->mode |= mode;
	if ((mode & SHARE_RDWR) == SHARE_RDWR)
		reuse_mark_writer(buffer->block, client_peer(client)->uid);
	*out = lease;
	return 0;
}

void lease_return(struct broker *b, struct lease *lease, uint32_t count, struct fence *fence)
{
	struct buffer *buffer = lease->buffer;
	struct client *client = lease->client;

	if (fence->timelines)
		buffer->pending = fence_set_add(buffer->pending, fence);
	lease->count -= count;
	if (lease->count > 0) {
		if (!LIST_EMPTY(&buffer->waits))
			reclaim_look(b, buffer);
		return;
	}
	if (!LIST_EMPTY(&buffer->waits))
		reclaim_give_up(buffer, client);
	table_remove(&b->lease_table, &lease->key);
	LIST_REMOVE(lease, of_buffer);
	buffer->n_leases--;
	client_remove_lease(client, lease);
	slab_free(&b->leases, lease);
	account_subtract(client_account(client), LIMIT_LEASES, 1);
	drop(b, buffer, client_account(client));
}
