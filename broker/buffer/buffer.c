/* SPDX-License-Identifier: MIT */

/*
 * Buffers: who holds which block, and the one place where "the last release frees" is true. They
 * live in a slab, as leases (lease.c) do, as there may be millions of both. Together with its block
 * descriptor and its lease a live buffer costs 192 bytes.
 */

#include <stdlib.h>
#include <string.h>

#include <share/share.h>

#include "base/mutation.h"
#include "base/probe.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/inside.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/client/client.h"
#include "broker/journal/journal.h"
#include "broker/log/log.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_object.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/segment.h"
#include "broker/monitor/monitor.h"
#include "broker/order/fence.h"
#include "broker/pools/pools.h"

_Static_assert(sizeof(struct buffer) <= 56, "a million buffers are a million of these");

uint64_t buffer_id(const struct buffer *buffer)
{
	return (uint64_t)buffer->generation << 32 | buffer_index(buffer);
}

uint32_t buffer_index(const struct buffer *buffer)
{
	return slab_index(buffer);
}

struct buffer *buffer_find(struct broker *b, uint64_t id)
{
	struct buffer *buffer = slab_at(&b->buffers->slab, (uint32_t)id);

	return buffer && buffer->refs > 0 && buffer->generation == id >> 32 ? buffer : NULL;
}

struct segment *buffer_segment(const struct buffer *buffer)
{
	return segment_of(buffer->block);
}

struct pool *buffer_pool(const struct buffer *buffer)
{
	return block_pool(buffer->block);
}

int buffer_new(struct broker *b, struct allocation *a, struct buffer **out)
{
	struct block *block = a->block;
	struct buffer *buffer;

	buffer = slab_alloc(&b->buffers->slab);
	if (!buffer) {
		pool_free_block(b, block_pool(block), block, NULL, &a->charge);
		return SHARE_ESYSTEM;
	}
	buffer->generation++;
	generation_note(&b->buffers->generations, b->journal, buffer_index(buffer),
			buffer->generation);
	buffer->block = block;
	buffer->size = a->size & BUFFER_SIZE_MAX;
	buffer->refs = 1;
	/* If this is the account's own unfinished work, it goes on paying for it. */
	if (block->payer == a->account)
		buffer->pending = fence_set_prune(block_take_gate(block));
	block->payer = a->charge.account;
	LIST_INIT(&buffer->leases);
	LIST_INIT(&buffer->referrers);
	buffer_note(buffer);
	*out = buffer;
	return 0;
}

void buffer_ref(struct buffer *buffer)
{
	buffer->refs++;
}

/* How many bytes the buffer can have. The last part of adopted memory may be less than a unit. */
static uint64_t room_of(const struct buffer *buffer)
{
	uint64_t block = block_size(buffer->block), offset = block_offset(buffer->block),
		 left = buffer_segment(buffer)->memory.recipe.size - offset;

	return block < left ? block : left;
}

bool buffer_set_size(struct buffer *buffer, uint64_t size, bool by_writer)
{
	if (size > room_of(buffer))
		return false;
	if (size == 0 || size == buffer->size)
		return true;
	if (by_writer || buffer->refs == 1 || size > buffer->size) {
		buffer->size = size & BUFFER_SIZE_MAX;
		buffer_note(buffer);
	}
	return true;
}

/* Charges the new metadata in the place of the old, whose charge is returned only if that works. A
 * user who has more than it may have is not refused what is no more than the old was. */
static bool swap_charge(struct charge *new, struct metadata *old, struct account *account,
			uint64_t size)
{
	struct account *payer = old ? account_ref(old->charge.account) : NULL;
	uint64_t old_size = old ? old->charge.amount : 0;
	uint64_t beyond = payer == account && size <= old_size ? UINT64_MAX / 2 : 0;
	bool taken;

	if (old)
		charge_return(&old->charge);
	taken = charge_take_beyond(new, account, LIMIT_METADATA, size, 0, beyond);
	if (old && !taken) /* this cannot fail, as it was just given back */
		charge_take_beyond(&old->charge, payer, LIMIT_METADATA, old_size, 0,
				   UINT64_MAX / 2);
	account_unref(payer);
	return taken;
}

int metadata_new(struct account *account, const void *bytes, uint32_t size, struct metadata *old,
		 struct metadata **out, struct failure *failure)
{
	struct metadata *m;

	*out = NULL;
	if (size == 0)
		return 0;
	m = malloc(sizeof(*m) + size);
	if (!m)
		return failure_no_memory(failure, "the broker");
	m->charge = (struct charge){0};
	if (!swap_charge(&m->charge, old, account, size)) {
		free(m);
		return account_refuse(account, LIMIT_METADATA, "", failure);
	}
	m->size = size;
	m->record = 0;
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
	if (metadata && buffer->metadata)
		metadata->record = buffer->metadata->record;
	else if (buffer->metadata)
		journal_drop(buffer_pool(buffer)->broker->journal, &buffer->metadata->record);
	metadata_free(buffer->metadata);
	buffer->metadata = metadata;
	if (!metadata)
		return;
	metadata->buffer = buffer_index(buffer);
	metadata_note(buffer);
}

/* How many leases are looked at for one whose account is the payer, and how many referrers. */
#define HOLDERS_LOOKED_AT 64

/* Finds the buffer's payer, if that is among those who hold it; if not, another one of them. A
 * lease goes before something that only leads to the buffer. NULL: nobody has it but the broker. */
static struct account *holder_of(const struct buffer *buffer)
{
	const struct account *payer = buffer->block->payer;
	const struct lease *lease = LIST_FIRST(&buffer->leases);
	const struct referrer *referrer = LIST_FIRST(&buffer->referrers);
	struct account *found = NULL, *one;

	for (int i = 0; lease && i < HOLDERS_LOOKED_AT && found != payer; i++) {
		one = lease_client(lease)->account;
		found = found && one != payer ? found : one;
		lease = LIST_NEXT(lease, of_buffer);
	}
	for (int i = 0; referrer && i < HOLDERS_LOOKED_AT && found != payer; i++) {
		found = found && referrer->account != payer ? found : referrer->account;
		referrer = LIST_NEXT(referrer, of_buffer);
	}
	return found;
}

/* Called when whoever pays for a buffer has let something of it go. If that was the last of the
 * payer's, somebody who still holds the buffer pays from now on. */
static void charge_holder(struct buffer *buffer)
{
	struct charge charge = pool_charge_of(buffer->block, PRICE_BUFFER_OWN);
	struct account *holder = charge.account ? holder_of(buffer) : NULL;

	if (!holder || holder == charge.account)
		return;
	pool_charge_move(buffer_pool(buffer), &charge, holder);
	buffer->block->payer = charge.account;
	buffer_note(buffer);
}

void buffer_tell(struct broker *b, const struct buffer *buffer, const char *action,
		 const struct client *client, uint64_t count)
{
	const struct access_object what = pool_object(buffer_pool(buffer));

	monitors_tell(b, &(struct notice){.action = action,
					  .what = &what,
					  .client = client,
					  .uid = NOTICE_NOBODY,
					  .buffer = buffer_id(buffer),
					  .size = buffer->size,
					  .count = count});
}

void buffer_drop(struct broker *b, struct buffer *buffer, const struct account *by,
		 const struct client *client)
{
	struct fence_set *pending = buffer->pending;
	struct block *block = buffer->block;
	struct pool *pool = buffer_pool(buffer);
	const uint64_t size = buffer->size;
	struct charge charge;

	if (--buffer->refs > 0) {
		if (!by || by == block->payer)
			charge_holder(buffer);
		if (buffer->is_awaited)
			reclaim_look(b, buffer);
		return;
	}
	if (MUTATION(free_before_fence)) {
		fence_set_drop(pending);
		pending = NULL;
	}
	if (!LIST_EMPTY(&buffer->leases))
		log_bug("buffer %llx is freed with leases", (unsigned long long)buffer_id(buffer));
	PROBE(reclaim, buffer_id(buffer), size, pool->id);
	if (monitors_any(b))
		buffer_tell(b, buffer, "free", client, 0);
	buffer_set_metadata(buffer, NULL);
	charge = pool_charge_of(block, PRICE_BUFFER_OWN);
	block->payer = NULL;
	/* a slot whose generations are used up is never used again */
	if (buffer->generation < UINT32_MAX)
		slab_free(&b->buffers->slab, buffer);
	pool_free_block(b, pool, block, pending, &charge);
}

void buffer_unref(struct broker *b, struct buffer *buffer)
{
	buffer_drop(b, buffer, NULL, NULL);
}

void referrer_attach(struct buffer *buffer, struct referrer *referrer, enum referrer_kind kind,
		     struct account *account)
{
	static const struct referrer none;
	const struct referrer *first = LIST_FIRST(&buffer->referrers);

	*referrer = (struct referrer){.account = account, .kind = kind};
	memcpy(referrer->n, first ? first->n : none.n, sizeof(referrer->n));
	if (referrer->n[kind]++ == 0)
		buffer_pool(buffer)->use.referred[kind] += block_size(buffer->block);
	LIST_INSERT_HEAD(&buffer->referrers, referrer, of_buffer);
	buffer_ref(buffer);
}

uint64_t referrer_bytes(const struct buffer *buffer, enum referrer_kind kind)
{
	const struct referrer *first = LIST_FIRST(&buffer->referrers);

	return first && first->n[kind] > 0 ? 0 : block_size(buffer->block);
}

void referrer_detach(struct broker *b, struct buffer *buffer, struct referrer *referrer)
{
	struct referrer *first = LIST_FIRST(&buffer->referrers),
			*next = LIST_NEXT(first, of_buffer);

	if (--first->n[referrer->kind] == 0)
		buffer_pool(buffer)->use.referred[referrer->kind] -= block_size(buffer->block);
	if (referrer == first && next)
		memcpy(next->n, first->n, sizeof(next->n));
	LIST_REMOVE(referrer, of_buffer);
	buffer_drop(b, buffer, referrer->account, NULL);
}
