/* SPDX-License-Identifier: MIT */

/*
 * The records of buffers and leases. There may be millions, so they say no more than they must. A
 * client is named by its slot, which is nobody else's as long as the client has leases.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/slab.h"
#include "broker/accounts/account.h"
#include "broker/accounts/price.h"
#include "broker/broker.h"
#include "broker/buffer/buffer.h"
#include "broker/buffer/lease.h"
#include "broker/buffer/records.h"
#include "broker/client/client.h"
#include "broker/client/clients.h"
#include "broker/client/records.h"
#include "broker/journal/journal.h"
#include "broker/journal/object.h"
#include "broker/memory/pool.h"
#include "broker/memory/pool_user.h"
#include "broker/memory/records.h"
#include "broker/memory/segment.h"
#include "broker/order/fence.h"
#include "broker/pools/pool_records.h"

void buffer_note(struct buffer *buffer)
{
	const struct block_use use = {.index = buffer_index(buffer),
				      .generation = buffer->generation,
				      .size = buffer->size,
				      .pending = buffer->pending};

	block_note(buffer->block, &use, buffer->block->payer);
}

void record_buffer_or_none(struct record *r, struct buffer **buffer)
{
	uint64_t id = *buffer ? buffer_id(*buffer) : 0;

	record_u64(r, &id);
	if (!record_reads(r) || id == 0)
		return;
	*buffer = buffer_find(r->broker, id);
	if (!*buffer)
		record_fail(r, -EBADMSG);
}

void record_buffer(struct record *r, struct buffer **buffer)
{
	record_buffer_or_none(r, buffer);
	if (record_reads(r) && !*buffer)
		record_fail(r, -EBADMSG);
}

void record_metadata(struct record *r, struct metadata **metadata)
{
	struct metadata *m = *metadata;
	const struct iovec bytes = record_rest(r, m ? m->bytes : NULL, m ? m->size : 0, 1);

	if (!record_reads(r) || bytes.iov_len == 0)
		return;
	m = malloc(sizeof(*m) + bytes.iov_len);
	if (!m) {
		record_fail(r, -ENOMEM);
		return;
	}
	*m = (struct metadata){.size = (uint32_t)bytes.iov_len};
	memcpy(m->bytes, bytes.iov_base, bytes.iov_len);
	*metadata = m;
}

bool metadata_charge(struct metadata *metadata, struct account *account)
{
	return !metadata || charge_take(&metadata->charge, account, LIMIT_METADATA, metadata->size);
}

struct lease_record {
	uint32_t slot;   /* the client's */
	uint32_t buffer; /* the buffer's index */
	uint32_t count : 30;
	uint32_t mode : 2;
	uint32_t since_s;
};

/* What the record of nearly all leases is; it is known by its size. */
struct small_lease {
	uint32_t buffer;
	uint32_t slot : 20;
	uint32_t count : 10;
	uint32_t mode : 2;
	uint32_t since_s;
};
_Static_assert(sizeof(struct small_lease) == 12, "a million leases are a million of these");
#define SMALL_SLOTS (UINT32_C(1) << 20)
#define SMALL_COUNT (UINT32_C(1) << 10)

void lease_note(struct lease *lease)
{
	struct journal *j = buffer_pool(lease->buffer)->broker->journal;
	const struct lease_record r = {lease->slot, buffer_index(lease->buffer), lease->count,
				       lease->mode, lease->since_s};
	const struct small_lease small = {r.buffer, r.slot & (SMALL_SLOTS - 1),
					  r.count & (SMALL_COUNT - 1), r.mode, r.since_s};

	if (r.slot < SMALL_SLOTS && r.count < SMALL_COUNT)
		journal_put(j, RECORD_LEASE, &lease->record, &small, sizeof(small));
	else
		journal_put(j, RECORD_LEASE, &lease->record, &r, sizeof(r));
}

static bool lease_record_read(const void *bytes, size_t size, struct lease_record *out)
{
	struct small_lease small;

	if (size == sizeof(small)) {
		memcpy(&small, bytes, sizeof(small));
		*out = (struct lease_record){small.slot, small.buffer, small.count, small.mode,
					     small.since_s};
		return true;
	}
	if (size < sizeof(*out))
		return false;
	memcpy(out, bytes, sizeof(*out));
	return true;
}

/* ------------------------------------------------------------------------------------------- */

/* Finds the buffer in a slot; NULL: the slot is not in use. */
static struct buffer *buffer_at_index(struct broker *b, uint32_t index)
{
	struct buffer *buffer = slab_at(&b->buffers->slab, index);

	return buffer && buffer->refs > 0 ? buffer : NULL;
}

static int restore_buffer_of(struct broker *b, struct block *block, const struct block_use *use,
			     struct fence_set *pending, uint32_t payer)
{
	struct buffer *buffer = slab_at(&b->buffers->slab, use->index);
	struct account *account = account_of_record(b, payer);
	struct charge charge = {0};

	if (!buffer || buffer->refs > 0 || use->size == 0 || use->size > block_size(block) ||
	    use->generation == 0 || use->generation > buffer->generation) {
		fence_set_drop(pending);
		account_unref(account);
		return -EBADMSG;
	}
	buffer->generation = use->generation;
	buffer->block = block;
	buffer->size = use->size & BUFFER_SIZE_MAX;
	buffer->refs = 1;
	buffer->pending = pending;
	buffer->metadata = NULL;
	LIST_INIT(&buffer->leases);
	LIST_INIT(&buffer->referrers);
	if (account && pool_charge_take(block_pool(block), &charge, account, block_size(block),
					PRICE_BUFFER_OWN) != 0) {
		account_unref(account);
		return -ENOMEM;
	}
	block->payer = charge.account;
	account_unref(account);
	return 0;
}

static void metadata_fields(struct record *r, void *object)
{
	struct metadata *m = object;
	size_t size = m->size;

	record_u32(r, &m->buffer);
	record_payer(r, &m->charge);
	record_rest_of(r, m->bytes, &size);
	m->size = (uint32_t)size;
}

static int metadata_attach(struct broker *b, void *object)
{
	struct metadata *m = object;
	struct buffer *buffer = buffer_at_index(b, m->buffer);

	if (!buffer || buffer->metadata || m->size == 0 || !m->charge.account)
		return -EBADMSG;
	buffer->metadata = m;
	return payer_charge(&m->charge, LIMIT_METADATA, m->size) ? 0 : -ENOMEM;
}

static const struct object_kind metadata_kind = {
    .type = RECORD_METADATA,
    .name = "buffer's metadata",
    .size = sizeof(struct metadata),
    .record = offsetof(struct metadata, record),
    .is_packed = true,
    .fields = metadata_fields,
    .attach = metadata_attach,
};

void metadata_note(struct buffer *buffer)
{
	object_put(buffer_pool(buffer)->broker->journal, &metadata_kind, buffer->metadata);
}

static int read_lease(void *data, uint32_t record, const void *bytes, size_t size)
{
	struct broker *b = data;
	const struct clients *clients = b->clients;
	struct lease_record copy;
	struct buffer *buffer;
	struct client *c;
	struct lease *lease, *oldest;

	if (!lease_record_read(bytes, size, &copy))
		return -EBADMSG;
	c = copy.slot < clients->n_slots ? clients->by_slot[copy.slot] : NULL;
	buffer = buffer_at_index(b, copy.buffer);
	if (!c || !buffer || copy.count == 0 || copy.mode == 0 || lease_find(b, c, buffer))
		return -EBADMSG;
	oldest = TAILQ_FIRST(&c->buffers->leases);
	lease = lease_new(b, c, buffer, copy.since_s);
	if (!lease || !account_add(c->account, LIMIT_LEASES, 1))
		return -ENOMEM;
	leases_file(b, buffer);
	lease->count = copy.count;
	lease->mode = copy.mode;
	lease->record = record;
	/* the first one is the oldest; how the others follow matters to nobody */
	if (oldest && lease->since_s < oldest->since_s) {
		TAILQ_REMOVE(&c->buffers->leases, lease, of_client);
		TAILQ_INSERT_HEAD(&c->buffers->leases, lease, of_client);
	}
	return 0;
}

int buffers_restore(struct broker *b)
{
	struct journal *j = b->journal;
	int r = generations_make_slots(&b->buffers->generations, j, &b->buffers->slab);

	if (r == 0)
		r = blocks_restore(b, restore_buffer_of);
	if (r == 0)
		r = objects_restore(j, &metadata_kind, b);
	if (r == 0)
		r = journal_read(j, RECORD_LEASE, sizeof(struct small_lease), read_lease, b);
	return r;
}

void buffers_restored(struct broker *b)
{
	uint32_t end = slab_end(&b->buffers->slab);

	for (uint32_t i = 0; i < end; i++) {
		struct buffer *buffer = slab_at(&b->buffers->slab, i);

		/* whoever has the buffer had it before, so nothing is to be charged to another
		 * one */
		if (buffer && buffer->refs > 1)
			buffer->refs--;
		else if (buffer && buffer->refs == 1)
			buffer_unref(b, buffer);
		else if (buffer)
			slab_free(&b->buffers->slab, buffer);
	}
}
